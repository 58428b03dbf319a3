//! Sizes of values: all equal, or spread over size classes.

use std::fmt;

use crate::numbers::to_f64;
use crate::random::Random;

/// Sizes from `least` to `most` bytes, with uniform logarithms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    /// Smallest size in bytes.
    pub(crate) least: usize,
    /// Largest size in bytes, never below the smallest.
    pub(crate) most: usize,
}

impl Sizes {
    /// Creates sizes that are all equal to `bytes`.
    #[cfg(test)]
    pub(crate) fn of(bytes: usize) -> Self {
        Self {
            least: bytes,
            most: bytes,
        }
    }

    /// Returns the next size.
    #[expect(
        clippy::cast_sign_loss,
        reason = "a size lies between the two others, which have no sign"
    )]
    pub(crate) fn draw(self, random: &mut Random) -> usize {
        if self.least == self.most {
            return self.least;
        }
        let (low, high) = self.edges();
        let size = low * (high / low).powf(random.fraction());
        (size as usize).clamp(self.least, self.most)
    }

    /// Returns the expected mean size.
    pub(crate) fn mean(self) -> f64 {
        let (low, high) = self.edges();
        if self.least == self.most {
            return low;
        }
        (high - low) / (high / low).ln()
    }

    fn edges(self) -> (f64, f64) {
        let edge = |bytes: usize| to_f64(bytes.max(1) as u64);
        (edge(self.least), edge(self.most))
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.least == self.most {
            write!(f, "{}", self.least)
        } else {
            write!(f, "{} to {}", self.least, self.most)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_stay_in_bounds_and_have_their_mean() {
        let sizes = Sizes {
            least: 64,
            most: 4_096,
        };
        let mut random = Random::new(1, 1);
        let drawn: Vec<usize> = (0..100_000).map(|_| sizes.draw(&mut random)).collect();
        assert!(drawn.iter().all(|size| (64..=4_096).contains(size)));
        let mean = to_f64(drawn.iter().sum::<usize>() as u64) / 100_000.0;
        assert!((mean / sizes.mean() - 1.0).abs() < 0.02, "{mean}");
        let below_512 = drawn.iter().filter(|&&size| size < 512).count();
        assert!((49_000..51_000).contains(&below_512), "half of the classes");
        assert_eq!(Sizes::of(7).draw(&mut random), 7);
    }
}
