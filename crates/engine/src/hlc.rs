//! The hybrid logical clock that gives CAS values.

use model::{Cas, Now};

/// Bits of a CAS that count changes within one tick of the wall clock (65.5 us).
const LOGICAL_BITS: u64 = 0xffff;

/// Gives CAS values that grow strictly, and follow the wall clock while that goes forward.
#[derive(Debug)]
pub(crate) struct Hlc {
    max: Cas,
}

impl Hlc {
    /// A clock that goes on above `max`.
    pub(crate) fn new(max: Cas) -> Self {
        Self { max }
    }

    /// The next value: the wall clock if that is ahead of every value so far, else one more.
    pub(crate) fn next(&mut self, now: Now) -> Cas {
        self.max = self.peek(now);
        self.max
    }

    /// What [`Hlc::next`] will give.
    pub(crate) fn peek(&self, now: Now) -> Cas {
        let physical = Cas(now.unix_ns & !LOGICAL_BITS);
        if physical > self.max {
            physical
        } else {
            Cas(self.max.0 + 1)
        }
    }

    /// Takes note of a value given elsewhere, so that later ones are above it.
    pub(crate) fn observe(&mut self, cas: Cas) {
        self.max = self.max.max(cas);
    }

    /// The highest value given or seen.
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
    fn follows_the_wall_clock_without_its_low_bits() {
        let mut hlc = Hlc::new(Cas(0));
        assert_eq!(hlc.next(at(0x7_1234)), Cas(0x7_0000));
        assert_eq!(hlc.next(at(0x9_ffff)), Cas(0x9_0000));
    }

    #[test]
    fn ticks_while_the_wall_clock_stands_still_or_goes_back() {
        let mut hlc = Hlc::new(Cas(0));
        assert_eq!(hlc.next(at(0x7_0000)), Cas(0x7_0000));
        assert_eq!(hlc.next(at(0x7_ffff)), Cas(0x7_0001));
        assert_eq!(hlc.next(at(0x1_0000)), Cas(0x7_0002));
    }

    #[test]
    fn goes_on_above_what_it_was_shown() {
        let mut hlc = Hlc::new(Cas(0x5_0000));
        hlc.observe(Cas(0x8_0003));
        hlc.observe(Cas(0x2_0000));
        assert_eq!(hlc.next(at(0x6_0000)), Cas(0x8_0004));
    }
}
