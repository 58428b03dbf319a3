//! Batching of reads by a stream that keeps up with its writer.

/// Number of changes that are read at once without waiting for more.
const CHANGES: u32 = 1024;
/// Longest wait for more changes.
const WAIT_NS: u32 = 100_000;
/// Interval between two checks of the number of changes.
const STEP_NS: u32 = 10_000;
/// Minimum number of new changes per interval for which the stream waits.
const CHANGES_PER_STEP: u32 = 8;

/// Lets a stream that keeps up with a busy writer read many changes at once.
///
/// Reading moves cache lines from the writer's processor to the reader's and back: some twenty,
/// whether there are two changes or two hundred. Checking how many there are moves one. So a stream
/// that has just read leaves the next changes while many arrive. Changes after a pause are read at
/// once, and a few changes at the next check.
///
/// Size: 16 bytes. Times are kept as their low 32 bits, which repeat every 4.3 s: after a pause of
/// just that length the stream reads some microseconds later.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadBatching {
    /// Time of the last read, and earliest time of the next check; low bits of the monotonic clock.
    taken_ns: u32,
    look_ns: u32,
    /// Values of [`Bucket::newest`](crate::Bucket::newest) at the last read and at the last check.
    taken: u32,
    seen: u32,
}

impl ReadBatching {
    /// Whether to read changes; `newest` returns [`Bucket::newest`](crate::Bucket::newest). If not,
    /// the caller must ask again soon: nothing wakes the stream for changes that it leaves.
    pub fn is_due(&mut self, newest: impl FnOnce() -> u32, now_ns: u64) -> bool {
        let now_ns = now_ns as u32;
        if (1..=STEP_NS).contains(&self.look_ns.wrapping_sub(now_ns)) {
            return false;
        }
        self.look_ns = now_ns.wrapping_add(STEP_NS);
        let newest = newest();
        let many_come = newest.wrapping_sub(self.seen) >= CHANGES_PER_STEP;
        self.seen = newest;
        let few = newest.wrapping_sub(self.taken) < CHANGES;
        if few && many_come && now_ns.wrapping_sub(self.taken_ns) < WAIT_NS {
            return false;
        }
        self.taken = newest;
        self.taken_ns = now_ns;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START_NS: u64 = 1_000_000;
    const STEP_NS: u64 = super::STEP_NS as u64;
    const WAIT_NS: u64 = super::WAIT_NS as u64;

    #[test]
    fn changes_after_a_pause_are_read_at_once() {
        let mut batching = ReadBatching::default();
        assert!(batching.is_due(|| 1, 1));
        assert!(batching.is_due(|| 100, START_NS));
        assert!(batching.is_due(|| 200, START_NS + WAIT_NS));
    }

    #[test]
    fn many_changes_wait_until_enough_or_old() {
        let mut batching = ReadBatching::default();
        assert!(batching.is_due(|| u32::MAX - 1, START_NS));
        let step = |number| START_NS + number * STEP_NS;
        assert!(
            !batching.is_due(|| 20, step(1)),
            "numbers begin again at zero"
        );
        assert!(!batching.is_due(|| 40, step(2)));
        assert!(batching.is_due(|| CHANGES, step(3)), "enough");
        let old = 3 + WAIT_NS / STEP_NS;
        for number in 4..old {
            assert!(!batching.is_due(|| CHANGES + 10 * number as u32, step(number)));
        }
        assert!(
            batching.is_due(|| CHANGES + 10 * old as u32, step(old)),
            "old"
        );
    }

    #[test]
    fn pause_of_any_length_is_recognized() {
        for rest in [
            1 << 31,
            (1 << 32) - 2 * WAIT_NS,
            (1 << 32) + WAIT_NS,
            1 << 40,
        ] {
            let mut batching = ReadBatching::default();
            let start = (1 << 32) - START_NS;
            assert!(batching.is_due(|| 1, start));
            assert!(!batching.is_due(|| 9, start + STEP_NS));
            assert!(
                batching.is_due(|| 99, start + STEP_NS + WAIT_NS + rest),
                "{rest}"
            );
        }
    }

    #[test]
    fn few_changes_are_read_at_the_next_check() {
        let mut batching = ReadBatching::default();
        assert!(batching.is_due(|| 1, START_NS));
        let too_soon = || panic!("this is no look");
        assert!(!batching.is_due(too_soon, START_NS + STEP_NS - 1));
        assert!(batching.is_due(|| 2, START_NS + STEP_NS));
    }
}
