//! A small seeded random number generator: the same seed produces the same load.

use client::ClientError;

use crate::numbers::to_f64;

/// SplitMix64: 64 bits of state; one addition and three mixing steps per number.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: u64,
}

impl Random {
    /// Creates a generator whose sequence depends on `seed` and `stream`. Each connection has its own stream.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self { state: seed };
        random.state ^= random
            .next_u64()
            .wrapping_add(stream.wrapping_mul(0xd134_2543_de82_ef95));
        random
    }

    /// Returns the next 64 random bits.
    pub(crate) fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number below `bound`, which must be at least 1; the bias is below `bound / 2^64`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a fraction in `[0, 1)` with 53 random bits.
    pub(crate) fn fraction(&mut self) -> f64 {
        to_f64(self.next_u64() >> 11) / to_f64(1 << 53)
    }
}

/// Returns a number that differs from run to run.
pub(crate) fn random_run() -> Result<u32, ClientError> {
    Ok(client::random_u64()? as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_differ_and_repeat() {
        let numbers = |seed, stream| {
            let mut random = Random::new(seed, stream);
            [random.next_u64(), random.next_u64(), random.next_u64()]
        };
        assert_eq!(numbers(1, 2), numbers(1, 2));
        assert_ne!(numbers(1, 2), numbers(1, 3));
        assert_ne!(numbers(1, 2), numbers(2, 2));
    }

    #[test]
    fn numbers_stay_below_their_bound_and_reach_it() {
        let mut random = Random::new(7, 0);
        let mut seen = [0_u32; 5];
        for _ in 0..10_000 {
            seen[usize::try_from(random.below(5)).unwrap()] += 1;
            let fraction = random.fraction();
            assert!((0.0..1.0).contains(&fraction));
        }
        assert!(
            seen.iter().all(|&count| (1_800..2_200).contains(&count)),
            "{seen:?}"
        );
    }
}
