//! Tests of expelling: every kind of checkpoint, open or closed, with any number of cursors.

use model::Kind;

use super::cursors::{durable, range};
use super::*;

const ITEMS: u64 = 60;

fn marker(start: u64, end: u64, kind: CheckpointKind) -> SnapshotMarker {
    SnapshotMarker {
        start: Seqno(start),
        end: Seqno(end),
        kind,
        checkpoint: true,
        ..SnapshotMarker::default()
    }
}

/// A checkpoint of 60 changes; each cursor has read up to its seqno in `after`.
fn world(kind: CheckpointKind, closed: bool, after: &[u64]) -> (World, Vec<CursorId>) {
    let mut world = World::new(usize::MAX);
    let seated = after.iter().enumerate().map(|(index, _)| {
        let name = format!("cursor {index}");
        world.log.register(&name, Seqno(0)).cursor
    });
    let cursors: Vec<CursorId> = seated.collect();
    world
        .log
        .begin_snapshot(&marker(1, ITEMS, kind))
        .expect("it is the first one");
    (1..=ITEMS).for_each(|seqno| world.set_at(&format!("k{seqno}"), seqno));
    if closed {
        let next = marker(ITEMS + 1, ITEMS + 9, CheckpointKind::Memory);
        world.log.begin_snapshot(&next).expect("it follows");
    }
    for (cursor, after) in cursors.iter().zip(after) {
        read_to(&mut world, *cursor, *after);
    }
    (world, cursors)
}

/// Reads until at least `seqno`.
fn read_to(world: &mut World, cursor: CursorId, seqno: u64) {
    let budget = FlushBudget {
        items: 1,
        bytes: usize::MAX,
    };
    while behind(&world.log, cursor).is_some_and(|left| ITEMS - left < seqno) {
        let CursorRead::Changes(_) = world.log.take(cursor, budget) else {
            return;
        };
    }
}

fn flush(world: &mut World) {
    let (_, taken, flight) = world.take(usize::MAX);
    drop(taken);
    world.finish(&flight);
}

#[test]
fn expel_works_in_every_state_of_a_checkpoint() {
    for kind in [CheckpointKind::Memory, CheckpointKind::Disk] {
        for closed in [false, true] {
            for after in [&[][..], &[0], &[30], &[60], &[0, 30, 60], &[60, 60]] {
                let case = format!("{kind:?}, closed {closed}, read {after:?}");
                let (mut world, cursors) = world(kind, closed, after);
                assert_eq!(world.log.stats().items, 60, "not on disk yet: {case}");
                flush(&mut world);
                let lowest = after.iter().min().copied().unwrap_or(ITEMS);
                let left = world.log.stats().items;
                assert!(
                    left >= ITEMS - lowest,
                    "a cursor needs them: {left}, {case}"
                );
                // Only whole segments leave, of at most 32 changes.
                assert!(left <= ITEMS - lowest + 32, "{left} stay, {case}");
                for cursor in &cursors {
                    read_to(&mut world, *cursor, ITEMS);
                }
                world.check();
                assert_eq!(world.log.stats().items, 0, "to the empty log: {case}");
                let removed = world.log.stats().removed;
                assert_eq!(removed.items, ITEMS, "{case}");
                assert!(removed.bytes > 0, "{case}");
                let late = world.log.register("late", Seqno(0));
                assert_eq!(late.gap, Some(range(1, ITEMS)), "{case}");
                let level = world.log.register("level", Seqno(ITEMS));
                assert_eq!(level.gap, None, "{case}");
                for cursor in cursors.into_iter().chain([late.cursor, level.cursor]) {
                    drop(world.log.remove(cursor));
                }
                world.check();
                assert_eq!(world.log.stats().cursors, 0);
                assert_eq!(world.log.memory_bytes(), 0, "{case}");
            }
        }
    }
}

#[test]
fn expelled_prepares_still_separate_changes_of_their_key() {
    let mut log = CheckpointLog::new(&LogStart::default(), usize::MAX);
    let flush = |log: &mut CheckpointLog| {
        let (taken, flight) = log.take_dirty(FlushBudget::ALL, &mut SpareBuffers::default());
        let count = taken.count();
        drop(taken);
        drop(log.finish(&flight, count));
    };
    log.append(&durable("A", 1, Kind::Prepare), LogEntry::over(None));
    log.append(&change("B", 2), LogEntry::over(None));
    flush(&mut log);
    assert_eq!((log.stats().items, log.stats().open_id), (0, 1));
    // The consumer of the open checkpoint already has a prepare of A.
    log.append(&durable("A", 3, Kind::Abort), LogEntry::over(None));
    assert_eq!(log.stats().open_id, 2, "an abort over an expelled prepare");
    flush(&mut log);
    log.append(&durable("A", 4, Kind::Prepare), LogEntry::over(None));
    assert_eq!(log.stats().open_id, 3, "a prepare over an expelled abort");
    flush(&mut log);
    log.append(&change("B", 5), LogEntry::over(None));
    log.append(&change("B", 6), LogEntry::over(None));
    assert_eq!(log.stats().open_id, 3, "plain changes are of no matter");
}
