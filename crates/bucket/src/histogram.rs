//! Histogram with eight buckets for each power of two: values are exact to one eighth.

use std::sync::atomic::{AtomicU64, Ordering};

const SUB_BITS: u32 = 3;
const SUBS: usize = 1 << SUB_BITS;
/// Buckets up to 2^41: 36 minutes in nanoseconds. The last bucket takes all larger values.
const BUCKETS: usize = 41 * SUBS;

/// Counts of values. Any thread may add and read. Recording costs one relaxed addition.
#[derive(Debug)]
pub struct Histogram([AtomicU64; BUCKETS]);

/// A bucket that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HistogramBucket {
    /// The lowest value, inclusive.
    pub low: u64,
    /// The highest value, inclusive.
    pub high: u64,
    /// Values recorded.
    pub count: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self([const { AtomicU64::new(0) }; BUCKETS])
    }
}

fn bucket_of(value: u64) -> usize {
    if value < SUBS as u64 {
        return value as usize;
    }
    let top = value.ilog2();
    let sub = (value >> (top - SUB_BITS)) as usize & (SUBS - 1);
    ((top as usize) * SUBS + sub).min(BUCKETS - 1)
}

/// Returns the lowest value of a bucket. Each small value has its own bucket.
fn low(bucket: usize) -> u64 {
    let (top, sub) = ((bucket / SUBS) as u32, (bucket % SUBS) as u64);
    if bucket < SUBS {
        return sub;
    }
    (SUBS as u64 + sub) << top.saturating_sub(SUB_BITS)
}

impl Histogram {
    /// The highest value that is distinguished from larger ones.
    pub const MAX: u64 = (1 << 41) - 1;

    /// Counts a value.
    pub fn record(&self, value: u64) {
        self.0[bucket_of(value)].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the counts of `other`.
    pub fn add(&self, other: &Self) {
        for (sum, count) in self.0.iter().zip(other.counts()) {
            sum.fetch_add(count, Ordering::Relaxed);
        }
    }

    /// Resets all counts.
    pub fn reset(&self) {
        for count in &self.0 {
            count.store(0, Ordering::Relaxed);
        }
    }

    fn counts(&self) -> impl Iterator<Item = u64> + '_ {
        self.0.iter().map(|count| count.load(Ordering::Relaxed))
    }

    /// Returns the number of values.
    pub fn total(&self) -> u64 {
        self.counts().sum()
    }

    /// Returns the buckets with values, ascending.
    pub fn buckets(&self) -> impl Iterator<Item = HistogramBucket> + '_ {
        let all = self.counts().enumerate().filter(|(_, count)| *count > 0);
        all.map(|(bucket, count)| HistogramBucket {
            low: low(bucket),
            high: low(bucket + 1) - 1,
            count,
        })
    }

    /// Returns the buckets joined between powers of two.
    pub fn powers_of_two(&self) -> impl Iterator<Item = HistogramBucket> + '_ {
        let mut buckets = self.buckets().peekable();
        std::iter::from_fn(move || {
            let mut joined = buckets.next()?;
            let power = joined.low.checked_ilog2();
            joined.low = power.map_or(0, |power| 1 << power);
            while let Some(next) = buckets.next_if(|next| next.low.checked_ilog2() == power) {
                joined.count += next.count;
            }
            joined.high = (joined.low * 2).max(1) - 1;
            Some(joined)
        })
    }

    /// Returns an upper bound of `per_mille` of all values: 999 for p99.9, 1,000 for the highest.
    /// It is at most an eighth too high; 0 without values.
    pub fn quantile(&self, per_mille: u64) -> u64 {
        let rank = (self.total() * per_mille).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = self.buckets().find(|bucket| {
            seen += bucket.count;
            seen >= rank
        });
        found.map_or(0, |bucket| bucket.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_its_bucket() {
        for value in (0..5000).chain([1 << 20, (1 << 30) + 12345, 1 << 39, Histogram::MAX]) {
            let histogram = Histogram::default();
            histogram.record(value);
            let buckets: Vec<_> = histogram.buckets().collect();
            assert_eq!(buckets.len(), 1);
            assert!(
                (buckets[0].low..=buckets[0].high).contains(&value),
                "{value}"
            );
            assert!(buckets[0].high - buckets[0].low <= value / 8, "{value}");
        }
    }

    #[test]
    fn buckets_are_joined_between_powers_of_two() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, 1000, 1023, 1024, u64::MAX] {
            histogram.record(value);
        }
        let joined: Vec<_> = histogram
            .powers_of_two()
            .map(|bucket| (bucket.low, bucket.high, bucket.count))
            .collect();
        assert_eq!(joined[..3], [(0, 0, 1), (1, 1, 1), (2, 3, 2)]);
        assert_eq!(joined[3..5], [(512, 1023, 2), (1024, 2047, 1)]);
        assert_eq!(joined[5], (1 << 40, Histogram::MAX, 1));
    }

    #[test]
    fn quantiles_are_at_most_an_eighth_too_high() {
        let histogram = Histogram::default();
        assert_eq!(histogram.quantile(999), 0);
        for value in 1..=1000 {
            histogram.record(value * 100);
        }
        for (per_mille, exact) in [(500, 50_000), (999, 99_900), (1000, 100_000)] {
            let seen = histogram.quantile(per_mille);
            assert!(
                (exact..=exact * 9 / 8).contains(&seen),
                "{per_mille}: {seen}"
            );
        }
        let sum = Histogram::default();
        sum.add(&histogram);
        sum.add(&histogram);
        assert_eq!((sum.total(), histogram.total()), (2000, 1000));
        sum.reset();
        assert_eq!(sum.total(), 0);
    }
}
