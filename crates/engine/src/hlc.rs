//! The hybrid logical clock that generates CAS values.

use model::{Cas, Now};

/// Mask of the CAS bits that count changes within one tick of the wall clock (65.5 us).
const LOGICAL_BITS: u64 = 0xffff;

/// Mask of the bits at which counting begins in a tick. Values above it are left for changes of the same tick.
const START_BITS: u16 = 0x7fff;

/// Generates strictly increasing CAS values, which follow the wall clock while it goes forward.
///
/// Packed, so that the count's first value fits between other fields of a vBucket.
#[derive(Debug)]
#[repr(Rust, packed(2))]
pub(crate) struct Hlc {
    max: Cas,
    start: u16,
}

impl Hlc {
    /// Creates a clock that continues above `max`. Clocks of copies that are written apart have a different `seed`:
    /// versions that they make of a document within one tick differ by the CAS, so that one of them wins.
    pub(crate) fn new(max: Cas, seed: u64) -> Self {
        let start = seed as u16 & START_BITS;
        Self { max, start }
    }

    /// Returns the next value: the wall clock if it is ahead of all previous values, else the
    /// highest value plus one.
    pub(crate) fn next(&mut self, now: Now) -> Cas {
        self.max = self.peek(now);
        self.max
    }

    /// Returns the next value of [`Hlc::next`] without using it.
    pub(crate) fn peek(&self, now: Now) -> Cas {
        let physical = Cas(now.unix_ns & !LOGICAL_BITS | u64::from(self.start));
        let max = self.max();
        if physical > max {
            physical
        } else {
            Cas(max.0 + 1)
        }
    }

    /// Records a foreign value, so that later values are above it.
    pub(crate) fn observe(&mut self, cas: Cas) {
        self.max = self.max().max(cas);
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
        let mut hlc = Hlc::new(Cas(0), 0);
        assert_eq!(hlc.next(at(0x7_1234)), Cas(0x7_0000));
        assert_eq!(hlc.next(at(0x9_ffff)), Cas(0x9_0000));
    }

    #[test]
    fn hlc_counts_up_while_the_wall_clock_stalls() {
        let mut hlc = Hlc::new(Cas(0), 0);
        assert_eq!(hlc.next(at(0x7_0000)), Cas(0x7_0000));
        assert_eq!(hlc.next(at(0x7_ffff)), Cas(0x7_0001));
        assert_eq!(hlc.next(at(0x1_0000)), Cas(0x7_0002));
    }

    #[test]
    fn hlcs_of_different_seeds_generate_different_values_in_one_tick() {
        let [mut one, mut other] = [0x1_0005, 0xf_8009].map(|seed| Hlc::new(Cas(0), seed));
        assert_eq!(one.next(at(0x7_1234)), Cas(0x7_0005));
        assert_eq!(other.next(at(0x7_0000)), Cas(0x7_0009));
        assert_eq!(one.next(at(0x7_0000)), Cas(0x7_0006));
        assert_eq!(one.next(at(0x8_0000)), Cas(0x8_0005));
    }

    #[test]
    fn hlc_continues_above_observed_values() {
        let mut hlc = Hlc::new(Cas(0x5_0000), 0);
        hlc.observe(Cas(0x8_0003));
        hlc.observe(Cas(0x2_0000));
        assert_eq!(hlc.next(at(0x6_0000)), Cas(0x8_0004));
    }
}
