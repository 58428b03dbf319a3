//! Distributions of keys over operations: uniform, or a few keys often.

use std::str::FromStr;

use crate::numbers::to_f64;
use crate::random::Random;

/// Exponent of `zipf` without a number: that of the YCSB workloads.
const THETA_DEFAULT: f64 = 0.99;

/// A distribution, as named on the command line.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Distribution {
    /// Every key is equally likely.
    Uniform,
    /// The key of rank `k` is `1/k^theta` as likely as the first.
    Zipf {
        /// The exponent, above 0 and at most 10.
        theta: f64,
    },
}

impl FromStr for Distribution {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, theta) = text
            .split_once(':')
            .map_or((text, None), |(n, t)| (n, Some(t)));
        match (name, theta) {
            ("uniform", None) => Ok(Self::Uniform),
            ("zipf", None) => Ok(Self::Zipf {
                theta: THETA_DEFAULT,
            }),
            ("zipf", Some(theta)) => match theta.parse::<f64>() {
                Ok(theta) if theta > 0.0 && theta <= 10.0 => Ok(Self::Zipf { theta }),
                _ => Err("theta must be a number above 0 and at most 10".to_owned()),
            },
            _ => Err("use uniform, zipf or zipf:THETA".to_owned()),
        }
    }
}

impl std::fmt::Display for Distribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf { theta } => write!(f, "zipf:{theta}"),
        }
    }
}

/// Draws key numbers `0..keys`.
#[derive(Clone, Debug)]
pub(crate) enum KeySampler {
    /// Every key is equally likely.
    Uniform {
        /// Number of keys.
        keys: u64,
    },
    /// Zipf's law.
    Zipf(Zipf),
}

impl KeySampler {
    /// A sampler over `keys` (at least 1) keys.
    pub(crate) fn new(distribution: Distribution, keys: u64) -> Self {
        match distribution {
            Distribution::Uniform => Self::Uniform { keys },
            Distribution::Zipf { theta } => Self::Zipf(Zipf::new(keys, theta)),
        }
    }

    /// Returns the next key number; 0 is the most frequent one under Zipf's law.
    pub(crate) fn draw(&self, random: &mut Random) -> u64 {
        match self {
            Self::Uniform { keys } => random.below(*keys),
            Self::Zipf(zipf) => zipf.draw(random) - 1,
        }
    }
}

/// Zipf's law by rejection-inversion: no table, no setup cost, any exponent.
///
/// Source: Hoermann and Derflinger, "Rejection-inversion to generate variates from monotone
/// discrete distributions", 1996. The area under `h(x) = x^-theta` is inverted and the rare
/// excess over the bar of a rank is rejected.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    ranks: u64,
    theta: f64,
    area_first: f64,
    area_last: f64,
    always_accept_below: f64,
}

impl Zipf {
    fn new(ranks: u64, theta: f64) -> Self {
        let mut zipf = Self {
            ranks,
            theta,
            area_first: 0.0,
            area_last: 0.0,
            always_accept_below: 0.0,
        };
        zipf.area_first = zipf.area(1.5) - 1.0;
        zipf.area_last = zipf.area(to_f64(ranks) + 0.5);
        zipf.always_accept_below = 2.0 - zipf.inverse_area(zipf.area(2.5) - zipf.height(2.0));
        zipf
    }

    fn height(&self, x: f64) -> f64 {
        (-self.theta * x.ln()).exp()
    }

    /// Integral of `height` from 1 to `x`; `expm1` keeps it exact when theta is near 1.
    fn area(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.theta) * log;
        log * if power.abs() > 1e-8 {
            power.exp_m1() / power
        } else {
            1.0 + power / 2.0
        }
    }

    fn inverse_area(&self, area: f64) -> f64 {
        let scaled = (area * (1.0 - self.theta)).max(-1.0);
        let log = if scaled.abs() > 1e-8 {
            scaled.ln_1p() / scaled
        } else {
            1.0 - scaled / 2.0
        };
        (log * area).exp()
    }

    /// Returns a rank in `1..=ranks`.
    #[expect(
        clippy::cast_sign_loss,
        reason = "a rank lies between 1 and the number of keys"
    )]
    fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let area = self.area_last + random.fraction() * (self.area_first - self.area_last);
            let x = self.inverse_area(area);
            let rank = ((x + 0.5) as u64).clamp(1, self.ranks);
            let at = to_f64(rank);
            if at - x <= self.always_accept_below || area >= self.area(at + 0.5) - self.height(at) {
                return rank;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distribution_names_are_parsed() {
        assert_eq!("uniform".parse(), Ok(Distribution::Uniform));
        assert_eq!("zipf".parse(), Ok(Distribution::Zipf { theta: 0.99 }));
        assert_eq!("zipf:1.2".parse(), Ok(Distribution::Zipf { theta: 1.2 }));
        for wrong in [
            "",
            "zipf:",
            "zipf:0",
            "zipf:-1",
            "zipf:NaN",
            "zipf:11",
            "uniform:1",
        ] {
            assert!(wrong.parse::<Distribution>().is_err(), "{wrong}");
        }
    }

    /// Frequencies of the first ranks follow the law within four standard deviations.
    #[test]
    fn zipf_follows_its_law() {
        const DRAWS: u32 = 200_000;
        for (theta, keys) in [(0.5, 100_u32), (0.99, 1_000), (1.0, 1_000), (2.0, 50)] {
            let sampler = KeySampler::new(Distribution::Zipf { theta }, u64::from(keys));
            let mut random = Random::new(42, 0);
            let mut seen = vec![0_u32; keys as usize];
            for _ in 0..DRAWS {
                seen[sampler.draw(&mut random) as usize] += 1;
            }
            let total: f64 = (1..=keys).map(|rank| f64::from(rank).powf(-theta)).sum();
            for rank in 1..=10_u32 {
                let share = f64::from(rank).powf(-theta) / total;
                let expected = share * f64::from(DRAWS);
                let tolerance = 4.0 * (expected * (1.0 - share)).sqrt();
                let got = f64::from(seen[rank as usize - 1]);
                assert!(
                    (got - expected).abs() < tolerance,
                    "{theta} {rank}: {got} {expected}"
                );
            }
            assert!(
                seen[keys as usize / 2..].iter().any(|&count| count > 0),
                "no tail"
            );
        }
    }

    #[test]
    fn one_key_is_always_the_same() {
        for distribution in [Distribution::Uniform, Distribution::Zipf { theta: 0.99 }] {
            let sampler = KeySampler::new(distribution, 1);
            let mut random = Random::new(3, 0);
            assert!((0..1_000).all(|_| sampler.draw(&mut random) == 0));
        }
    }
}
