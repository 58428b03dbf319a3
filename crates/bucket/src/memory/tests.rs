use super::*;

fn bytes(bytes: i64) -> MemoryDelta {
    MemoryDelta {
        bytes,
        checkpoint_bytes: 0,
    }
}

fn checkpoints(bytes: i64) -> MemoryDelta {
    MemoryDelta {
        bytes,
        checkpoint_bytes: bytes,
    }
}

#[test]
fn the_marks_are_those_of_the_reference() {
    let memory = Memory::new(100_000);
    assert_eq!(memory.low_mark(), 75_000);
    assert_eq!(memory.high_mark(), 85_000);
    assert_eq!(memory.mutation_limit(), 93_000);
    assert_eq!(memory.backfill_limit(), 96_000);
    assert_eq!(memory.checkpoint_quota(), 20_000);
    assert_eq!(memory.checkpoint_upper_mark(), 18_000);
    assert_eq!(memory.checkpoint_lower_mark(), 12_000);
}

#[test]
fn what_connections_hold_counts_as_used_and_crowds_a_full_bucket() {
    let memory = Memory::new(100_000);
    memory.change_transit(0, 50_000);
    assert_eq!((memory.used(), memory.booked()), (50_000, 0));
    assert!(memory.admit(43_000).is_ok() && memory.admit(43_001).is_err());
    assert!(!memory.is_transit_crowded(), "there is room");
    assert!(memory.add(bytes(35_001)), "the reliever makes room for it");
    memory.add(bytes(15_000));
    assert!(memory.is_transit_crowded());
    memory.change_transit(50_000, 1_500);
    memory.set_overhead(60_000);
    assert!(
        !memory.is_transit_crowded(),
        "a little is granted in any case"
    );
    memory.change_transit(1_500, 0);
    assert_eq!(memory.transit(), 0);
}

/// The rows of the pressure matrix: memory in use, checkpoints in use, and what becomes of a
/// write of one byte, a deletion, a fetch, and the reliever.
#[test]
fn the_pressure_matrix() {
    use Limit::{Backfill, Checkpoints, Mutation, Quota};
    use OpError::{OutOfMemory, TemporaryFailure};
    type Answer = Option<(OpError, Limit)>;
    let rows: [(i64, i64, Answer, Answer, Answer, bool); 9] = [
        (0, 0, None, None, None, false),
        (75_000, 0, None, None, None, false),
        (85_000, 0, None, None, None, false),
        (85_001, 0, None, None, None, true),
        (
            93_000,
            0,
            Some((TemporaryFailure, Mutation)),
            None,
            None,
            true,
        ),
        (
            96_000,
            0,
            Some((TemporaryFailure, Mutation)),
            None,
            Some((TemporaryFailure, Backfill)),
            true,
        ),
        (
            100_000,
            0,
            Some((OutOfMemory, Quota)),
            None,
            Some((OutOfMemory, Quota)),
            true,
        ),
        (0, 18_001, None, None, None, true),
        (
            0,
            20_000,
            Some((TemporaryFailure, Checkpoints)),
            Some((TemporaryFailure, Checkpoints)),
            None,
            true,
        ),
    ];
    for (used, queued, write, removal, fetch, pressed) in rows {
        let row = format!("{used} in use, {queued} of it checkpoints");
        let memory = Memory::new(100_000);
        let pressed_at_once = [memory.add(bytes(used)), memory.add(checkpoints(queued))];
        let answer = |result: Result<(), MemoryRefusal>| {
            result.err().map(|refusal| (refusal.error, refusal.limit))
        };
        assert_eq!(answer(memory.admit(1)), write, "write at {row}");
        assert_eq!(answer(memory.admit_removal()), removal, "delete at {row}");
        assert_eq!(answer(memory.admit_fetch()), fetch, "fetch at {row}");
        assert_eq!(memory.is_pressed(), pressed, "pressure at {row}");
        assert_eq!(pressed_at_once.contains(&true), pressed, "booking {row}");
    }
}

#[test]
fn what_can_never_fit_is_not_asked_for_again() {
    let memory = Memory::new(100_000);
    let refusal = memory.admit(93_001).unwrap_err();
    assert_eq!(
        (refusal.error, refusal.limit),
        (OpError::OutOfMemory, Limit::OneMutation)
    );
    assert_eq!(
        refusal.to_string(),
        "the write takes more than the limit for all of them: 93001 of 93000 bytes \
         (ep_mutation_mem_ratio)"
    );
    memory.add(bytes(100_000));
    assert_eq!(memory.admit(93_001), Err(refusal), "also at the quota");
    memory.add(bytes(-100_000));
    assert!(memory.admit(usize::MAX).is_err());
    assert_eq!(memory.admit(93_000), Ok(()));
}

#[test]
fn a_refusal_names_its_limit() {
    let memory = Memory::new(100_000);
    memory.add(bytes(93_000));
    assert_eq!(
        memory.admit(1).unwrap_err().to_string(),
        "memory is above the limit for writes: 93000 of 93000 bytes (ep_mutation_mem_ratio)"
    );
}

#[test]
fn who_writes_rests_the_longer_the_less_room_is_left() {
    let memory = Memory::new(100_000);
    let rests: Vec<u128> = [85_000, 4_000, 2_000, 2_000, 5_000]
        .into_iter()
        .map(|more| {
            memory.add(bytes(more));
            memory.write_rest().as_micros()
        })
        .collect();
    // At the high mark, half of the way from there to the limit for writes, three quarters, all, and beyond.
    assert_eq!(rests, [0, 37, 126, 300, 300]);
}

#[test]
fn overhead_counts_as_used() {
    let memory = Memory::new(100_000);
    memory.add(bytes(80_000));
    assert!(!memory.is_pressed());
    memory.set_overhead(6_000);
    assert!(memory.is_pressed());
    assert_eq!((memory.used(), memory.booked()), (86_000, 80_000));
    assert!(memory.add(bytes(1)));
    memory.set_overhead(0);
    assert!(!memory.add(bytes(-80_001)));
    assert_eq!(memory.used(), 0);
}

#[test]
fn the_ladder_rung_by_rung() {
    // Excess of memory and of checkpoints; expellable, pinned, evictable, queued.
    let rows: [([u64; 6], Relief); 9] = [
        ([0, 0, 0, 0, 0, 0], Relief::Rest),
        ([0, 0, 1, 1, 1, 1], Relief::Rest),
        ([1, 1, 1, 1, 1, 1], Relief::Expel),
        ([1, 1, 0, 1, 1, 1], Relief::DropCursor),
        // Documents go before a reader that keeps little is sent to the disk.
        ([1, 0, 0, 1, 1, 1], Relief::Evict),
        ([1, 0, 0, 1, 0, 1], Relief::DropCursor),
        // Evicting documents does not make checkpoints smaller.
        ([0, 1, 0, 0, 1, 1], Relief::AwaitFlush),
        ([1, 0, 0, 0, 0, 1], Relief::AwaitFlush),
        ([1, 0, 0, 0, 0, 0], Relief::Stuck),
    ];
    for (figures, expected) in rows {
        let [
            excess,
            checkpoint_excess,
            expellable,
            pinned,
            evictable,
            queued,
        ] = figures;
        let pressure = Pressure {
            excess,
            checkpoint_excess,
            expellable,
            pinned,
            evictable,
            queued,
        };
        assert_eq!(next_relief(&pressure), expected, "{pressure:?}");
    }
}
