//! `CheckpointBench`.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use engine::{CheckpointKind, CursorId, FlushBudget, SnapshotMarker, VBucket, VbConfig};
use model::{Cas, Document, FailoverEntry, Meta, Seqno, VbId, VbState, VbUuid};

use crate::common::{flush, key, set};
use crate::{Run, nanoseconds, report};

fn vbucket(state: VbState, checkpoint_bytes_max: usize) -> VBucket {
    let config = VbConfig {
        checkpoint_bytes_max,
        ..VbConfig::default()
    };
    let first = FailoverEntry {
        uuid: VbUuid(1),
        seqno: Seqno(0),
    };
    let mut vbucket = VBucket::new(VbId(0), state, first, Arc::new(config));
    flush(&mut vbucket);
    vbucket
}

/// A cursor at the beginning, which holds everything back.
fn pin(vbucket: &mut VBucket) -> CursorId {
    vbucket.register_cursor("pin", Seqno(0)).cursor
}

/// `items` + 1 durable changes in one checkpoint, held by one cursor.
fn to_expel(kind: CheckpointKind, closed: bool, items: u64) -> (VBucket, CursorId) {
    // As in the reference, but for the largest number, which would take a gigabyte.
    let value = vec![b'v'; if items > 100_000 { 64 } else { 1024 }];
    let disk = kind != CheckpointKind::Memory;
    let state = if disk {
        VbState::Replica
    } else {
        VbState::Active
    };
    let mut vbucket = vbucket(state, 1_000_000_000);
    let cursor = pin(&mut vbucket);
    if disk {
        marker(&mut vbucket, 1, items + 1, kind);
    }
    for seqno in 1..=items + 1 {
        change(&mut vbucket, disk, seqno, &value);
    }
    flush(&mut vbucket);
    if closed {
        if disk {
            marker(&mut vbucket, items + 2, items + 2, CheckpointKind::Memory);
        }
        vbucket.set_checkpoint_bytes_max(1);
        change(&mut vbucket, disk, items + 2, b"");
    }
    assert_eq!(
        vbucket.checkpoint_stats().items,
        items + 1 + u64::from(closed)
    );
    (vbucket, cursor)
}

fn marker(vbucket: &mut VBucket, start: u64, end: u64, kind: CheckpointKind) {
    let marker = SnapshotMarker {
        start: Seqno(start),
        end: Seqno(end),
        kind,
        checkpoint: true,
        high_completed: None,
        high_prepared: None,
        visible_end: None,
        purge_seqno: None,
        historical: false,
    };
    assert_eq!(vbucket.begin_snapshot(&marker), Ok(()));
}

fn change(vbucket: &mut VBucket, follows: bool, seqno: u64, value: &[u8]) {
    if !follows {
        return set(vbucket, &key(seqno), value);
    }
    let meta = Meta {
        cas: Cas(seqno),
        seqno: Seqno(seqno),
        rev: 1,
        ..Meta::default()
    };
    let document = Document::from_parts(&key(seqno), value, &meta);
    assert!(vbucket.apply(&document).is_ok());
}

/// Takes all the changes that every reader has passed out of the checkpoint. Here this happens
/// when the last reader passes them: the visit in which it leaves is measured.
fn extract_items_to_expel(run: &Run) {
    for (kind, type_name) in [
        (CheckpointKind::Disk, "Disk"),
        (CheckpointKind::Memory, "Memory"),
    ] {
        for (closed, state_name) in [(false, "Open"), (true, "Closed")] {
            for items in [1, 100, 10_000, 1_000_000] {
                run.single(
                    &format!(
                        "CheckpointBench/ExtractItemsToExpel/{type_name}/{state_name}/{items}"
                    ),
                    if items >= 100_000 { 3 } else { 11 },
                    || to_expel(kind, closed, items),
                    |(vbucket, cursor)| {
                        let garbage = vbucket.remove_cursor(*cursor);
                        assert!(!garbage.is_empty());
                        garbage
                    },
                );
            }
        }
    }
}

/// `count` durable checkpoints of one change each, closed and held by one cursor.
fn many_checkpoints(count: u64) -> (VBucket, CursorId) {
    let mut vbucket = vbucket(VbState::Active, 1);
    let cursor = pin(&mut vbucket);
    (0..=count).for_each(|index| set(&mut vbucket, &key(index), b""));
    flush(&mut vbucket);
    assert_eq!(vbucket.checkpoint_stats().checkpoints, count + 1);
    (vbucket, cursor)
}

/// Finds the cursor that holds most back. In the reference nobody is behind; here one is.
fn cursors_to_drop(run: &Run) {
    for count in [1, 100, 10_000, 100_000] {
        run.single(
            &format!("CheckpointBench/GetCursorsToDrop/{count}"),
            11,
            || many_checkpoints(count),
            |(vbucket, cursor)| {
                let slowest = vbucket.checkpoint_pressure().slowest;
                assert_eq!(slowest.map(|(slowest, _)| slowest), Some(*cursor));
            },
        );
    }
}

/// Takes closed checkpoints that nobody needs out of the log: the visit that drops their last
/// reader.
fn closed_unreferenced(run: &Run) {
    for count in [1, 100, 10_000, 100_000] {
        run.single(
            &format!("CheckpointBench/ExtractClosedUnrefCheckpoints/{count}"),
            11,
            || many_checkpoints(count),
            |(vbucket, cursor)| vbucket.drop_cursor(*cursor),
        );
    }
}

/// Looks whether the lowest cursor lets anything go.
fn lowest_cursor(run: &Run) {
    const LOOKS: u32 = 10_000;
    for items in [1, 100, 10_000, 100_000] {
        let name = format!("CheckpointBench/GetLowestCursor/{items}");
        if !run.wants(&name) {
            continue;
        }
        let mut vbucket = vbucket(VbState::Active, 1_000_000_000);
        let cursor = pin(&mut vbucket);
        (0..items).for_each(|index| set(&mut vbucket, &key(index), b""));
        flush(&mut vbucket);
        drop(vbucket.take_from(cursor, FlushBudget::ALL));
        let started = Instant::now();
        for _ in 0..LOOKS {
            assert!(black_box(&mut vbucket).expel().is_empty());
        }
        let each = nanoseconds(started.elapsed()) / f64::from(LOOKS);
        report(&name, each, &[]);
    }
}

/// Writes while another thread flushes a hundred thousand checkpoints of one change, a thousand
/// at a time, and so removes them.
fn queue_while_removing(run: &Run) {
    const CHECKPOINTS: u64 = 100_000;
    let name = format!("CheckpointBench/QueueDirtyWithManyClosedUnrefCheckpoints/{CHECKPOINTS}");
    if !run.wants(&name) {
        return;
    }
    let mut vbucket = vbucket(VbState::Active, 1);
    (0..CHECKPOINTS).for_each(|index| set(&mut vbucket, &key(index), b""));
    let (shared, done) = (Mutex::new(vbucket), AtomicBool::new(false));
    let lock = || {
        shared
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    };
    let (mut queued, mut worst) = (0_u32, Duration::ZERO);
    let took = std::thread::scope(|scope| {
        scope.spawn(|| {
            let budget = FlushBudget {
                items: 1_000,
                bytes: usize::MAX,
            };
            for _ in 0..CHECKPOINTS / 1_000 {
                let batch = lock().begin_flush(budget);
                let garbage = batch.map(|batch| {
                    let done = batch.done(true);
                    lock().finish_flush(done)
                });
                drop(garbage);
            }
            done.store(true, Ordering::Release);
        });
        let started = Instant::now();
        while !done.load(Ordering::Acquire) {
            let before = Instant::now();
            let key = key(CHECKPOINTS + u64::from(queued));
            set(&mut lock(), &key, b"");
            worst = worst.max(before.elapsed());
            queued += 1;
        }
        started.elapsed()
    });
    let each = nanoseconds(took) / f64::from(queued.max(1));
    report(
        &name,
        each,
        &[
            ("items", f64::from(queued)),
            ("longest_ns", nanoseconds(worst)),
        ],
    );
}

/// Both visits of a flush under the lock, as they grow with what is flushed.
fn flush_visits(run: &Run) {
    for items in [100, 10_000, 1_000_000] {
        for visit in ["begin", "finish"] {
            run.single(
                &format!("CheckpointBench/Flush/{visit}/{items}"),
                if items >= 100_000 { 3 } else { 11 },
                || {
                    let mut vbucket = vbucket(VbState::Active, 256 << 10);
                    (0..items).for_each(|index| set(&mut vbucket, &key(index), b"v"));
                    let done = (visit == "finish").then(|| {
                        let batch = vbucket.begin_flush(FlushBudget::ALL);
                        batch.map(|batch| batch.done(true))
                    });
                    (vbucket, done.flatten())
                },
                |(vbucket, done)| match done.take() {
                    Some(done) => (None, Some(vbucket.finish_flush(done))),
                    None => (vbucket.begin_flush(FlushBudget::ALL), None),
                },
            );
        }
    }
}

pub(crate) fn run(run: &Run) {
    extract_items_to_expel(run);
    cursors_to_drop(run);
    closed_unreferenced(run);
    lowest_cursor(run);
    queue_while_removing(run);
    flush_visits(run);
}
