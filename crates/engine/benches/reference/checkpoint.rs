//! `CheckpointBench`.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use benchkit::{Figures, REPETITIONS, Rows, per, timed};
use engine::{CheckpointKind, CursorId, FlushBudget, SnapshotMarker, VBucket, VbConfig};
use model::{Cas, Document, FailoverEntry, Meta, Seqno, VbId, VbState, VbUuid};

use crate::common::{flush, key, set};

/// Number of changes or checkpoints: those of the reference, and one more to show the growth.
const COUNTS: [u64; 6] = [1, 10, 100, 1_000, 10_000, 100_000];

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

/// Registers a cursor at the beginning, which pins all changes.
fn pin(vbucket: &mut VBucket) -> CursorId {
    vbucket.register_cursor("pin", Seqno(0)).cursor
}

/// Returns `items` + 1 durable changes in one checkpoint, pinned by one cursor.
fn to_expel(kind: CheckpointKind, closed: bool, items: u64) -> (VBucket, CursorId) {
    // As in the reference, except for the largest number, which would take a gigabyte.
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
        ..SnapshotMarker::default()
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

/// Removes all changes that every reader has passed. Here the last reader's removal does this, so
/// that call is measured.
fn extract_items_to_expel(rows: &mut Rows<'_>) {
    for (kind, type_name) in [
        (CheckpointKind::Disk, "Disk"),
        (CheckpointKind::Memory, "Memory"),
    ] {
        for (closed, state_name) in [(false, "Open"), (true, "Closed")] {
            for items in [1, 10, 100, 1_000, 10_000, 1_000_000] {
                rows.add_timed(
                    format!("CheckpointBench/ExtractItemsToExpel/{type_name}/{state_name}/{items}"),
                    move || to_expel(kind, closed, items),
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

/// Returns `count` durable, closed checkpoints of one change each, pinned by one cursor.
fn many_checkpoints(count: u64) -> (VBucket, CursorId) {
    let mut vbucket = vbucket(VbState::Active, 1);
    let cursor = pin(&mut vbucket);
    (0..=count).for_each(|index| set(&mut vbucket, &key(index), b""));
    flush(&mut vbucket);
    assert_eq!(vbucket.checkpoint_stats().checkpoints, count + 1);
    (vbucket, cursor)
}

/// Finds the cursor that pins most. In the reference no cursor is behind; here one is.
fn cursors_to_drop(rows: &mut Rows<'_>) {
    for count in COUNTS {
        rows.add_timed(
            format!("CheckpointBench/GetCursorsToDrop/{count}"),
            move || many_checkpoints(count),
            |(vbucket, cursor)| {
                let slowest = vbucket.checkpoint_pressure().slowest;
                assert_eq!(slowest.map(|slowest| slowest.cursor), Some(*cursor));
            },
        );
    }
}

/// Removes closed checkpoints that no reader needs: measures the call that drops their last reader.
fn closed_unreferenced(rows: &mut Rows<'_>) {
    for count in COUNTS {
        rows.add_timed(
            format!("CheckpointBench/ExtractClosedUnrefCheckpoints/{count}"),
            move || many_checkpoints(count),
            |(vbucket, cursor)| vbucket.drop_cursor(*cursor),
        );
    }
}

/// Checks whether the lowest cursor allows to remove changes.
fn lowest_cursor(items: u64) -> Figures {
    const LOOKS: u64 = 10_000;
    let mut vbucket = vbucket(VbState::Active, 1_000_000_000);
    let cursor = pin(&mut vbucket);
    (0..items).for_each(|index| set(&mut vbucket, &key(index), b""));
    flush(&mut vbucket);
    drop(vbucket.take_from(cursor, FlushBudget::ALL));
    let look = |_| {
        let all = || (0..LOOKS).for_each(|_| assert!(black_box(&mut vbucket).expel().is_empty()));
        timed(all).1 * per(1, LOOKS)
    };
    let samples: Vec<f64> = (0..REPETITIONS).map(look).collect();
    Figures::of_times(&samples)
}

/// Number of checkpoints that are removed during writes.
const REMOVED: u64 = 100_000;

/// Writes while another thread flushes, and so removes, checkpoints of one change, a thousand at a
/// time. Returns the time of a write, the number of writes, and the longest write.
fn queue_while_removing() -> (f64, u64, f64) {
    let mut vbucket = vbucket(VbState::Active, 1);
    (0..REMOVED).for_each(|index| set(&mut vbucket, &key(index), b""));
    let (shared, done) = (Mutex::new(vbucket), AtomicBool::new(false));
    let lock = || {
        shared
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    };
    let (mut queued, mut worst) = (0, Duration::ZERO);
    let ((), took_ns) = timed(|| {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let budget = FlushBudget {
                    items: 1_000,
                    bytes: usize::MAX,
                };
                for _ in 0..REMOVED / 1_000 {
                    let batch = lock().begin_flush(budget, &mut engine::SpareBuffers::default());
                    let garbage = batch.map(|batch| {
                        let done = batch.done(true);
                        lock().finish_flush(done)
                    });
                    drop(garbage);
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                let before = Instant::now();
                let key = key(REMOVED + queued);
                set(&mut lock(), &key, b"");
                worst = worst.max(before.elapsed());
                queued += 1;
            }
        });
    });
    (took_ns * per(1, queued), queued, worst.as_secs_f64() * 1e9)
}

fn queue_with_many_closed() -> Figures {
    let samples: Vec<_> = (0..REPETITIONS).map(|_| queue_while_removing()).collect();
    let times: Vec<f64> = samples.iter().map(|sample| sample.0).collect();
    let items = samples.iter().map(|sample| sample.1).sum();
    let longest = samples.iter().map(|sample| sample.2).fold(0.0, f64::max);
    Figures::of_times(&times)
        .and("items", per(items, REPETITIONS as u64))
        .and("longest_ns", longest)
}

/// Both lock holds of a flush, with growing numbers of changes.
fn flush_visits(rows: &mut Rows<'_>) {
    for items in [100, 10_000, 1_000_000] {
        for visit in ["begin", "finish"] {
            rows.add_timed(
                format!("CheckpointBench/Flush/{visit}/{items}"),
                move || {
                    let mut vbucket = vbucket(VbState::Active, 256 << 10);
                    (0..items).for_each(|index| set(&mut vbucket, &key(index), b"v"));
                    let done = (visit == "finish").then(|| {
                        let batch = vbucket
                            .begin_flush(FlushBudget::ALL, &mut engine::SpareBuffers::default());
                        batch.map(|batch| batch.done(true))
                    });
                    (vbucket, done.flatten())
                },
                |(vbucket, done)| match done.take() {
                    Some(done) => (None, Some(vbucket.finish_flush(done))),
                    None => (
                        vbucket.begin_flush(FlushBudget::ALL, &mut engine::SpareBuffers::default()),
                        None,
                    ),
                },
            );
        }
    }
}

pub(crate) fn add(rows: &mut Rows<'_>) {
    extract_items_to_expel(rows);
    cursors_to_drop(rows);
    closed_unreferenced(rows);
    for items in COUNTS {
        let name = format!("CheckpointBench/GetLowestCursor/{items}");
        rows.add(name, move || lowest_cursor(items));
    }
    let name = format!("CheckpointBench/QueueDirtyWithManyClosedUnrefCheckpoints/{REMOVED}");
    rows.add(name, queue_with_many_closed);
    flush_visits(rows);
}
