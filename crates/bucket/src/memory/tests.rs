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
fn marks_are_those_of_the_reference() {
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
fn transit_counts_as_used_and_congests_a_full_bucket() {
    let memory = Memory::new(100_000);
    memory.change_transit(0, 50_000);
    assert_eq!((memory.used(), memory.booked()), (50_000, 0));
    assert_eq!(memory.mutation_exceeded(43_000), None);
    assert_eq!(
        memory.mutation_exceeded(43_001),
        Some(Usage {
            used: 50_000,
            allowed: 93_000
        })
    );
    assert!(!memory.is_transit_congested(), "there is memory");
    assert!(
        memory.add(bytes(35_001)),
        "the reliever frees memory for it"
    );
    memory.add(bytes(15_000));
    assert!(memory.is_transit_congested());
    memory.change_transit(50_000, 1_500);
    memory.set_overhead(60_000);
    assert!(
        !memory.is_transit_congested(),
        "a little is granted in any case"
    );
    memory.change_transit(1_500, 0);
    assert_eq!(memory.transit(), 0);
}

#[test]
fn reliever_is_called_above_the_high_marks() {
    // Memory in use, checkpoints in use, and whether the reliever has to work.
    let rows = [
        (0, 0, false),
        (85_000, 0, false),
        (85_001, 0, true),
        (0, 18_000, false),
        (0, 18_001, true),
    ];
    for (used, queued, pressed) in rows {
        let memory = Memory::new(100_000);
        let pressed_at_once = [memory.add(bytes(used)), memory.add(checkpoints(queued))];
        assert_eq!(memory.is_pressed(), pressed, "{used} {queued}");
        assert_eq!(pressed_at_once.contains(&true), pressed, "{used} {queued}");
    }
}

#[test]
fn write_backoff_grows_with_memory_in_use() {
    let memory = Memory::new(100_000);
    let rests: Vec<u128> = [85_000, 4_000, 2_000, 2_000, 5_000]
        .into_iter()
        .map(|more| {
            memory.add(bytes(more));
            memory.write_backoff().as_micros()
        })
        .collect();
    // Backoffs at the high mark, at 1/2, 3/4 and all of the way from there to the limit for writes, and beyond.
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
fn documents_leave_for_the_excess_and_large_writes_are_not_refused_for_it() {
    let memory = Memory::new(100_000);
    memory.add(bytes(60_000));
    memory.set_excess(25_000);
    assert!(!memory.is_pressed());
    assert!(memory.add(bytes(1)) && memory.is_pressed());
    assert_eq!((memory.used(), memory.pressing()), (60_001, 85_001));
    assert_eq!(memory.large_mutation_exceeded(32_999), None);
    assert!(memory.large_mutation_exceeded(33_000).is_some());
    assert_eq!(memory.mutation_exceeded(7_999), None);
    assert!(memory.mutation_exceeded(8_000).is_some());
}

#[test]
fn ladder_takes_rungs_in_order() {
    // Excess of memory and of checkpoints; expellable, pinned, evictable, queued.
    let rows: [([u64; 6], Relief); 9] = [
        ([0, 0, 0, 0, 0, 0], Relief::Rest),
        ([0, 0, 1, 1, 1, 1], Relief::Rest),
        ([1, 1, 1, 1, 1, 1], Relief::Expel),
        ([1, 1, 0, 1, 1, 1], Relief::DropCursor),
        // Documents are evicted before a cursor that keeps little is dropped.
        ([1, 0, 0, 1, 1, 1], Relief::Evict),
        ([1, 0, 0, 1, 0, 1], Relief::DropCursor),
        // Eviction of documents does not make checkpoints smaller.
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
