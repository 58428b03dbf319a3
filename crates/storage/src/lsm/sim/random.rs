//! Reproducible pseudo-random numbers.

/// A small generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// Returns a number below `below`.
    pub(crate) fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below.max(1)
    }

    /// True in one of `in_how_many` cases.
    pub(crate) fn one_in(&mut self, in_how_many: u64) -> bool {
        self.next(in_how_many) == 0
    }

    /// Returns a random element.
    pub(crate) fn pick<'t, T>(&mut self, of: &'t [T]) -> &'t T {
        &of[self.next(of.len() as u64) as usize]
    }

    /// Returns another, independent generator.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.next(u64::MAX))
    }
}
