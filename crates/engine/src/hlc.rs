//! The hybrid logical clock that generates CAS values.

use model::{Cas, Now};

/// Mask of the CAS bits that count changes within one tick of the wall clock (65.5 us).
const LOGICAL_BITS: u64 = 0xffff;

/// Generates strictly increasing CAS values, which follow the wall clock while it goes forward.
#[derive(Debug)]
pub(crate) struct Hlc {
    max: Cas,
}

impl Hlc {
    /// Creates a clock that continues above `max`.
    pub(crate) fn new(max: Cas) -> Self {
        Self { max }
    }

    /// Returns the next value: the wall clock if it is ahead of all previous values, else the
    /// highest value plus one.
    pub(crate) fn next(&mut self, now: Now) -> Cas {
        self.max = self.peek(now);
        self.max
    }

    /// Returns the next value of [`Hlc::next`] without using it.
    pub(crate) fn peek(&self, now: Now) -> Cas {
        let physical = Cas(now.unix_ns & !LOGICAL_BITS);
        if physical > self.max {
            physical
        } else {
            Cas(self.max.0 + 1)
        }
    }

    /// Records a foreign value, so that later values are above it.
    pub(crate) fn observe(&mut self, cas: Cas) {
        self.max = self.max.max(cas);
    }

    /// Highest value that was generated or recorded.
    pub(crate) fn max(&self) -> Cas {
        self.max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(unix_ns: u64) -> Now {
        Now {
            unix_ns,
            mono_ns: 0,
        }
    }

    #[test]
    fn hlc_follows_the_wall_clock_without_its_low_bits() {
        let mut hlc = Hlc::new(Cas(0));
        assert_eq!(hlc.next(at(0x7_1234)), Cas(0x7_0000));
        assert_eq!(hlc.next(at(0x9_ffff)), Cas(0x9_0000));
    }

    #[test]
    fn hlc_counts_up_while_the_wall_clock_stalls() {
        let mut hlc = Hlc::new(Cas(0));
        assert_eq!(hlc.next(at(0x7_0000)), Cas(0x7_0000));
        assert_eq!(hlc.next(at(0x7_ffff)), Cas(0x7_0001));
        assert_eq!(hlc.next(at(0x1_0000)), Cas(0x7_0002));
    }

    #[test]
    fn hlc_continues_above_observed_values() {
        let mut hlc = Hlc::new(Cas(0x5_0000));
        hlc.observe(Cas(0x8_0003));
        hlc.observe(Cas(0x2_0000));
        assert_eq!(hlc.next(at(0x6_0000)), Cas(0x8_0004));
    }
}
