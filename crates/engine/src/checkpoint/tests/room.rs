//! Room that is made before the lock.

use super::*;

/// Capacities of the room, then of the log.
fn rooms(room: &Room, log: &CheckpointLog) -> [usize; 4] {
    let [there, held] = [(&room.sealed, &room.closed), (&log.sealed, &log.closed)];
    [
        there.0.capacity(),
        there.1.capacity(),
        held.0.capacity(),
        held.1.capacity(),
    ]
}

#[test]
fn a_flush_allocates_neither_segments_nor_runs_under_the_lock() {
    let mut log = CheckpointLog::new(&Origin::default(), usize::MAX);
    let mut room = Room::default();
    room.furnish();
    let furnished = rooms(&room, &log);
    assert!(furnished[0] > 0 && furnished[1] > 0);

    let (taken, flight) = log.take_dirty(FlushBudget::ALL, &mut room);
    assert_eq!(rooms(&room, &log), furnished, "nothing to take");
    drop((taken, log.finish(&flight, (0, 0))));

    log.append(&change("A", 1), Entry::over(None));
    let (taken, flight) = log.take_dirty(FlushBudget::ALL, &mut room);
    let [segments, runs, ..] = furnished;
    assert_eq!(rooms(&room, &log), [0, 0, segments, runs], "moved in");

    room.furnish();
    log.append(&change("B", 2), Entry::over(None));
    let count = taken.count();
    drop((taken, log.finish(&flight, count)));
    assert_eq!(log.sealed.capacity(), 0, "an idle log keeps none");
    let (taken, _) = log.take_dirty(FlushBudget::ALL, &mut room);
    assert_eq!(rooms(&room, &log), [0, 0, segments, runs]);

    room.furnish();
    log.append(&change("C", 3), Entry::over(None));
    let before = rooms(&room, &log);
    let (more, _) = log.take_dirty(FlushBudget::ALL, &mut room);
    assert_eq!(rooms(&room, &log), before, "it had its own");
    assert_eq!((taken.count().0, more.count().0), (1, 2));
}
