//! Tests of cursors: their positions, the changes they pin, and the changes freed with them.

use model::{Kind, SnapshotRange};

use super::*;

impl World {
    fn register(&mut self, name: &str, after: u64) -> (CursorId, Option<SnapshotRange>) {
        let registered = self.log.register(name, Seqno(after));
        self.check();
        (registered.cursor, registered.gap)
    }

    /// Returns the changes that a cursor reads, as text: the announced range if it is new, then the
    /// changes.
    fn read(&mut self, cursor: CursorId, items: usize) -> String {
        let budget = FlushBudget {
            items,
            bytes: usize::MAX,
        };
        let read = self.log.take(cursor, budget);
        self.check();
        match read {
            CursorRead::Nothing => "nothing".into(),
            CursorRead::Dropped => "dropped".into(),
            CursorRead::Changes(batch) => {
                let mut parts = Vec::new();
                if batch.new_snapshot {
                    parts.push(format!("{}..{}", batch.snapshot.start, batch.snapshot.end));
                }
                let named = |document: &Document| {
                    format!("{}@{}", document.key().escape_ascii(), document.seqno())
                };
                parts.extend(batch.documents().map(named));
                parts.join(" ")
            }
        }
    }

    fn flush(&mut self) -> Garbage {
        let (_, _, flight) = self.take(usize::MAX);
        let garbage = self.log.finish(&flight, self.flying);
        self.check();
        garbage
    }

    fn sets(&mut self, count: usize) {
        (0..count).for_each(|index| self.set(&format!("k{index}")));
    }
}

fn changes(garbage: &Garbage) -> usize {
    garbage
        .segments
        .iter()
        .map(|sealed| sealed.slots.len())
        .sum()
}

pub(super) fn range(start: u64, end: u64) -> SnapshotRange {
    SnapshotRange {
        start: Seqno(start),
        end: Seqno(end),
    }
}

#[test]
fn replacing_a_change_keeps_every_cursor_correct() {
    // Cursors before, on, after and far after the change that is replaced.
    let mut world = World::new(usize::MAX);
    world.sets(5);
    let cursors: Vec<CursorId> = (0..=5)
        .map(|after| world.register(&format!("after {after}"), after).0)
        .collect();
    world.set("k2");
    let told: Vec<String> = cursors
        .into_iter()
        .map(|cursor| world.read(cursor, usize::MAX))
        .collect();
    let expected = [
        "1..6 k0@1 k1@2 k3@4 k4@5 k2@6",
        "2..6 k1@2 k3@4 k4@5 k2@6",
        "3..6 k3@4 k4@5 k2@6",
        "4..6 k3@4 k4@5 k2@6",
        "5..6 k4@5 k2@6",
        "6..6 k2@6",
    ];
    assert_eq!(told, expected);
}

#[test]
fn cursors_are_seated_in_every_region() {
    let mut world = World::new(usize::MAX);
    assert_eq!(world.register("empty", 0).1, None);
    assert_eq!(world.register("beyond", 9).1, None);
    let pin = world.register("pin", 0).0;
    world.sets(100);
    drop(world.flush());
    // All changes are in memory: in the middle of a segment, at its edges, at the end.
    for after in [0, 1, 15, 16, 17, 50, 99, 100, 200] {
        let (cursor, gap) = world.register("probe", after);
        assert_eq!(gap, None, "after {after}");
        let told = world.read(cursor, usize::MAX);
        match after {
            ..100 => assert!(told.starts_with(&format!("{}..100 ", after + 1)), "{told}"),
            _ => assert_eq!(told, "nothing"),
        }
    }
    for name in ["empty", "beyond"] {
        let cursor = world.register(name, 100).0;
        drop(world.log.remove(cursor));
    }
    // Some changes have left memory.
    world.read(pin, 60);
    let at = world.log.cursors.iter().find(|cursor| cursor.id == pin);
    let held = at.unwrap().position + 1;
    assert_eq!(world.register("probe", 0).1, Some(range(1, held - 1)));
    assert_eq!(
        world.register("probe", held - 2).1,
        Some(range(held - 1, held - 1))
    );
    assert_eq!(world.register("probe", held - 1).1, None);
    assert_eq!(world.register("probe", 100).1, None);
    // All changes have left memory.
    drop(world.log.remove(pin));
    assert_eq!(world.log.stats().items, 0);
    assert_eq!(world.register("probe", 0).1, Some(range(1, 100)));
    assert_eq!(world.register("probe", 99).1, Some(range(100, 100)));
    let (cursor, gap) = world.register("probe", 100);
    assert_eq!(gap, None, "contiguous: nothing to read from the store");
    world.set("a");
    assert_eq!(world.read(cursor, 9), "101..101 a@101");
}

/// A cursor at the edge of two checkpoints reads the following changes once; at the end of the log
/// it pins nothing.
#[test]
fn cursors_at_checkpoint_edges_repeat_and_pin_nothing() {
    let mut world = World::new(100);
    let pin = world.register("pin", 0).0;
    for round in 0..6 {
        (0..3).for_each(|index| world.set(&format!("r{round} {index}")));
        world.log.close_checkpoint();
    }
    assert!(world.log.stats().checkpoints > 6, "{:?}", world.log.stats());
    for after in 0..=18 {
        let (cursor, gap) = world.register("probe", after);
        assert_eq!(gap, None);
        let mut told = Vec::new();
        loop {
            let part = world.read(cursor, usize::MAX);
            if part == "nothing" {
                break;
            }
            let seqno = |word: &str| word.split_once('@')?.1.parse::<u64>().ok();
            told.extend(part.split(' ').filter_map(seqno));
        }
        assert_eq!(told, (after + 1..=18).collect::<Vec<_>>(), "after {after}");
    }
    drop(world.flush());
    drop(world.log.remove(pin));
    for after in [18, 19, 100] {
        let quiet = world.register(&format!("quiet {after}"), after).0;
        assert_eq!(behind(&world.log, quiet), Some(0));
    }
    let stats = world.log.stats();
    assert_eq!(
        (stats.items, stats.checkpoints),
        (0, 1),
        "who waits at the end"
    );
}

#[test]
fn cursor_with_the_same_name_replaces_the_old_one() {
    let mut world = World::new(100);
    let old = world.register("s", 0).0;
    world.sets(20);
    drop(world.flush());
    let (new, gap) = world.register("s", 0);
    assert_eq!(gap, None, "it was there, and still is");
    assert_eq!(world.read(old, 9), "dropped");
    assert_eq!(world.read(new, 9), "1..1 k0@1");
    assert_eq!(world.log.stats().cursors, 1);
}

#[test]
fn only_changes_passed_by_all_cursors_leave_from_the_front() {
    let mut world = World::new(100);
    let slow = world.register("slow", 0).0;
    let quick = world.register("quick", 0).0;
    world.sets(40);
    while world.read(quick, usize::MAX) != "nothing" {}
    drop(world.flush());
    assert_eq!(
        world.log.stats().items,
        40,
        "slow holds the front, and all behind it"
    );
    let checkpoints = world.log.stats().checkpoints;
    world.read(slow, usize::MAX);
    assert_eq!(world.log.stats().checkpoints, checkpoints - 1);
    let garbage = world.log.drop_cursor(slow);
    world.check();
    assert_eq!(changes(&garbage), 40);
    assert_eq!(world.log.stats().checkpoints, 1);
    drop(world.log.remove(quick));
    assert_eq!(world.log.memory_bytes(), 0, "to the last byte");
}

#[test]
fn keys_written_after_expel_are_new_changes() {
    let mut world = World::new(usize::MAX);
    let cursor = world.register("s", 0).0;
    world.sets(50);
    drop(world.flush());
    world.read(cursor, usize::MAX);
    assert_eq!(world.log.stats().items, 0);
    world.set("k3");
    world.set("k3");
    assert_eq!(world.read(cursor, 9), "51..52 k3@52");
    let (told, ..) = world.take(usize::MAX);
    assert_eq!(told, "k3@52-4", "the store's row goes");
}

#[test]
fn pressure_names_the_slowest_cursor() {
    let mut world = World::new(100);
    let one = world.register("one", 0).0;
    let two = world.register("two", 0).0;
    world.sets(40);
    assert_eq!(
        world.log.pressure().slowest,
        None,
        "the store is no further"
    );
    let (_, taken, flight) = world.take(usize::MAX);
    assert_eq!(
        world.log.pressure().slowest,
        None,
        "a flush under way counts as failed"
    );
    drop(taken);
    drop(world.log.finish(&flight, world.flying));
    world.read(two, usize::MAX);
    let slowest = world.log.pressure().slowest.unwrap();
    assert_eq!(slowest.cursor, one);
    let pinned = slowest.pinned_bytes;
    assert!(pinned > 0 && pinned <= world.log.memory_bytes());
    drop(world.log.drop_cursor(one));
    assert_eq!(world.log.pressure().slowest.unwrap().cursor, two);
    assert_eq!(world.read(one, 1), "dropped");
    drop(world.log.drop_cursor(two));
    world.check();
    assert_eq!(world.log.pressure(), CheckpointPressure::default());
    assert_eq!(world.log.stats().cursors_dropped, 2);
}

#[test]
fn pressure_separates_bytes_that_only_a_flush_frees() {
    let mut world = World::new(usize::MAX);
    world.sets(40);
    let pressure = world.log.pressure();
    assert!(pressure.bytes > 0);
    let queues = pressure.bytes - pressure.undurable_bytes;
    assert!(queues < 1000, "all but room for entries: {pressure:?}");
    let cursor = world.register("s", 0).0;
    drop(world.flush());
    let pressure = world.log.pressure();
    assert_eq!(pressure.undurable_bytes, 0);
    assert_eq!(pressure.slowest.unwrap().cursor, cursor);
}

#[test]
fn long_run_is_read_completely_in_parts() {
    for items in [1, 7, 33, 100] {
        let mut world = World::new(usize::MAX);
        let cursor = world.register("s", 0).0;
        world.sets(300);
        world.sets(100);
        let mut told = vec![world.read(cursor, items)];
        assert!(told[0].starts_with("1..400 "), "{told:?}");
        world.sets(20);
        while behind(&world.log, cursor) > Some(20) {
            let part = world.read(cursor, items);
            assert!(part.split(' ').count() <= items.max(32), "{part}");
            assert!(!part.contains(".."), "announced already: {part}");
            told.push(part);
        }
        let told = told.join(" ");
        let all: Vec<&str> = told.split_whitespace().skip(1).collect();
        assert_eq!(all.len(), 300, "each key once");
        assert!(world.read(cursor, usize::MAX).starts_with("401..420 "));
    }
}

#[test]
fn rows_of_a_store_are_not_de_duplicated() {
    let mut world = World::new(usize::MAX);
    let marker = SnapshotMarker {
        start: Seqno(1),
        end: Seqno(10),
        kind: CheckpointKind::Disk,
        checkpoint: true,
        high_prepared: Some(Seqno(4)),
        ..SnapshotMarker::default()
    };
    world.log.begin_snapshot(&marker).unwrap();
    world.set_at("a", 1);
    world.set_at("a", 5);
    let prepare = durable("b", 7, Kind::Prepare);
    assert_eq!(world.log.check_next(&prepare, None, false), Ok(()));
    world.log.append(&prepare, LogEntry::over(None));
    let again = durable("b", 8, Kind::Prepare);
    assert_eq!(
        world.log.check_next(&again, None, false),
        Ok(()),
        "nor are they compared"
    );
    let stats = world.log.stats();
    assert_eq!(
        (stats.items, stats.deduplicated, stats.checkpoints),
        (3, 0, 1)
    );
    assert!(world.log.prepared_keys.is_none(), "no index");
}

pub(super) fn durable(key: &str, seqno: u64, kind: Kind) -> Document {
    let meta = Meta {
        cas: Cas(seqno),
        seqno: Seqno(seqno),
        kind,
        level: kind
            .is_prepare()
            .then_some(model::DurabilityLevel::Majority),
        ..Meta::default()
    };
    Document::from_parts(key.as_bytes(), VALUE, &meta)
}

#[test]
fn changes_of_durable_writes_are_kept_apart() {
    // Example of the specification: set A, prepare A, commit A, prepare A, abort A, set A.
    let mut log = CheckpointLog::new(&LogStart::default(), usize::MAX);
    let ids = |log: &CheckpointLog| log.stats().open_id;
    let one = change("A", 1);
    log.append(&one, LogEntry::over(None));
    log.append(&durable("A", 2, Kind::Prepare), LogEntry::over(None));
    assert_eq!(ids(&log), 1, "two namespaces");
    let three = durable("A", 3, Kind::Commit);
    log.append(&three, LogEntry::over(Some(&one)));
    assert_eq!(ids(&log), 2, "a commit over a change");
    log.append(&durable("A", 4, Kind::Prepare), LogEntry::over(None));
    assert_eq!(ids(&log), 2);
    log.append(&durable("A", 5, Kind::Abort), LogEntry::over(None));
    assert_eq!(ids(&log), 3, "an abort over its prepare");
    log.append(&change("A", 6), LogEntry::over(Some(&three)));
    assert_eq!(ids(&log), 3, "the commit lies in another checkpoint");
    log.append(&durable("B", 7, Kind::Prepare), LogEntry::over(None));
    assert_eq!(ids(&log), 3);
    assert_eq!(log.stats().deduplicated, 0);
    assert_eq!(log.open.prepares.prepared, Seqno(7));
    assert_eq!(log.open.visible_end, Seqno(6));
}

#[test]
fn small_flushes_stay_cheap_while_a_reader_lags() {
    let mut world = World::new(usize::MAX);
    let cursor = world.register("lags", 0).0;
    world.sets(2000);
    drop(world.flush());
    let before = world.log.stats().slot_bytes;
    for round in 0..100 {
        (0..20).for_each(|index| world.set(&format!("r{round} {index}")));
        drop(world.flush());
    }
    let grown = world.log.stats().slot_bytes - before;
    assert!(grown < 100 * (20 * size_of::<Slot>() * 2 + 200), "{grown}");
    drop(world.log.remove(cursor));
    assert_eq!(world.log.memory_bytes(), 0);
}

/// Each stream has a cursor, and their list has little unused capacity.
#[test]
fn cursors_are_small_and_their_list_has_little_capacity() {
    let size = size_of::<crate::checkpoint::cursor::Cursor>();
    assert!(size <= 72, "{size}");
    let mut log = CheckpointLog::new(&LogStart::default(), 1 << 20);
    for number in 0..100 {
        let _registered = log.register(&format!("c{number}"), Seqno::ZERO);
    }
    let room = log.cursors.capacity();
    assert!((100..=112).contains(&room), "{room}");
}
