//! When a stream that keeps up takes the next changes.

/// So many changes are worth taking at once.
const CHANGES: u32 = 1024;
/// Longest time for which changes are left to become more.
const WAIT_NS: u32 = 100_000;
/// Time between two looks at how many there are.
const STEP_NS: u32 = 10_000;
/// Fewer changes in that time are not waited for.
const CHANGES_PER_STEP: u32 = 8;

/// Lets a stream that keeps up with a busy writer take many changes at once.
///
/// Taking them moves cache lines that the writer needs from its processor to the reader's and
/// back, some twenty of them whether there are two changes or two hundred; looking how many
/// there are moves one. So a stream that took some just now leaves the next ones while many
/// come. What comes after a rest is taken at once, and a few changes at the next look.
///
/// Shape: 16 bytes. Of times it keeps the low 32 bits, which come again every 4.3 s: a stream that
/// rested for just that long takes what comes then some microseconds later.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadBatching {
    /// When it took some last, and when it may look again; monotonic, the low bits.
    taken_ns: u32,
    look_ns: u32,
    /// What [`Bucket::newest`](crate::Bucket::newest) was then, and at the last look.
    taken: u32,
    seen: u32,
}

impl ReadBatching {
    /// Whether to take changes now; `newest` tells [`Bucket::newest`](crate::Bucket::newest).
    /// Else it is to be asked again soon: nothing wakes the stream for what it leaves.
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
    fn what_comes_after_a_rest_is_taken_at_once() {
        let mut batching = ReadBatching::default();
        assert!(batching.is_due(|| 1, 1));
        assert!(batching.is_due(|| 100, START_NS));
        assert!(batching.is_due(|| 200, START_NS + WAIT_NS));
    }

    #[test]
    fn while_many_come_they_are_left_until_they_are_enough_or_old() {
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
    fn a_rest_of_any_length_is_a_rest() {
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
    fn a_few_are_taken_at_the_next_look() {
        let mut batching = ReadBatching::default();
        assert!(batching.is_due(|| 1, START_NS));
        let too_soon = || panic!("this is no look");
        assert!(!batching.is_due(too_soon, START_NS + STEP_NS - 1));
        assert!(batching.is_due(|| 2, START_NS + STEP_NS));
    }
}
