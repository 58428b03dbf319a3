//! Tests of buffers that are allocated before the lock.

use super::*;

/// Returns the capacities of the spare buffers, then of the log.
fn capacities(spare: &SpareBuffers, log: &CheckpointLog) -> [usize; 4] {
    let [there, held] = [(&spare.sealed, &spare.closed), (&log.sealed, &log.closed)];
    [
        there.0.capacity(),
        there.1.capacity(),
        held.0.capacity(),
        held.1.capacity(),
    ]
}

#[test]
fn a_flush_allocates_neither_segments_nor_runs_under_the_lock() {
    let mut log = CheckpointLog::new(&LogStart::default(), usize::MAX);
    let mut spare = SpareBuffers::default();
    spare.refill();
    let filled = capacities(&spare, &log);
    assert!(filled[0] > 0 && filled[1] > 0);

    let (taken, flight) = log.take_dirty(FlushBudget::ALL, &mut spare);
    assert_eq!(capacities(&spare, &log), filled, "nothing to take");
    drop((taken, log.finish(&flight, ChangeSum::default())));

    log.append(&change("A", 1), LogEntry::over(None));
    let (taken, flight) = log.take_dirty(FlushBudget::ALL, &mut spare);
    let [segments, runs, ..] = filled;
    assert_eq!(capacities(&spare, &log), [0, 0, segments, runs], "moved in");

    spare.refill();
    log.append(&change("B", 2), LogEntry::over(None));
    let count = taken.count();
    drop((taken, log.finish(&flight, count)));
    assert_eq!(log.sealed.capacity(), 0, "an idle log keeps none");
    let (taken, _) = log.take_dirty(FlushBudget::ALL, &mut spare);
    assert_eq!(capacities(&spare, &log), [0, 0, segments, runs]);

    spare.refill();
    log.append(&change("C", 3), LogEntry::over(None));
    let before = capacities(&spare, &log);
    let (more, _) = log.take_dirty(FlushBudget::ALL, &mut spare);
    assert_eq!(capacities(&spare, &log), before, "it had its own");
    assert_eq!((taken.count().items, more.count().items), (1, 2));
}
