//! Measurements: latencies and counts, and sums over the slices of a run.

use std::collections::BTreeMap;
use std::time::Duration;

use hdrhistogram::Histogram;
use wire::Status;

use crate::numbers::{median, to_f64};

/// Upper bound of the histogram, in nanoseconds. Longer latencies count as this one.
const LATENCY_NS_MAX: u64 = 120_000_000_000;

/// Latencies in nanoseconds with three significant digits.
#[derive(Clone, Debug)]
pub(crate) struct Latencies {
    histogram: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, LATENCY_NS_MAX, 3);
        Self {
            histogram: histogram.expect("bounds and digits are constants that fit"),
        }
    }
}

impl Latencies {
    /// Records a latency; one of more than two minutes counts as two minutes.
    pub(crate) fn record(&mut self, latency_ns: u64) {
        self.histogram.saturating_record(latency_ns.max(1));
    }

    /// Adds the counts of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.histogram
            .add(&other.histogram)
            .expect("both have the same bounds");
    }

    /// Returns these counts minus those of `other`, which must be a part of them.
    pub(crate) fn without(&self, other: &Self) -> Self {
        let mut left = self.clone();
        left.histogram
            .subtract(&other.histogram)
            .expect("a part has the same bounds, and nothing that the whole has not");
        left
    }

    /// Returns the latency in microseconds that `quantile` (0 to 1) of the operations did not exceed.
    pub(crate) fn quantile_us(&self, quantile: f64) -> f64 {
        to_f64(self.histogram.value_at_quantile(quantile)) / 1_000.0
    }

    /// Returns the longest latency in microseconds.
    pub(crate) fn max_us(&self) -> f64 {
        to_f64(self.histogram.max()) / 1_000.0
    }

    /// Returns the mean latency in microseconds.
    pub(crate) fn mean_us(&self) -> f64 {
        self.histogram.mean() / 1_000.0
    }

    /// Returns the number of recorded latencies.
    pub(crate) fn count(&self) -> u64 {
        self.histogram.len()
    }
}

/// Wrong values found by verification.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Violations {
    /// Number of values that belong to another key.
    pub(crate) wrong_key: u64,
    /// Number of values with a wrong checksum.
    pub(crate) corrupt: u64,
    /// Number of values older than one that this connection read or wrote before.
    pub(crate) stale: u64,
}

impl Violations {
    /// Returns the number of all wrong values.
    pub(crate) fn total(&self) -> u64 {
        self.wrong_key + self.corrupt + self.stale
    }
}

/// All counts of one worker or of many.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    /// Operations answered before the end of the slice.
    pub(crate) ops: u64,
    /// Answered reads among all answers, including those after the end.
    pub(crate) gets: u64,
    /// Answered writes among all answers.
    pub(crate) sets: u64,
    /// Reads that found nothing.
    pub(crate) misses: u64,
    /// Answers by status, without success and "not found".
    pub(crate) errors: BTreeMap<u16, u64>,
    /// Requests that a node refused since another node has their vBucket, and that were sent again.
    pub(crate) retries: u64,
    /// Operations of an open loop that were due but not sent in time.
    pub(crate) unsent: u64,
    /// Wrong values found by verification.
    pub(crate) violations: Violations,
    /// Latency of every answer.
    pub(crate) latencies: Latencies,
    /// Latency of every answer to a write.
    pub(crate) set_latencies: Latencies,
}

impl Counts {
    /// Counts an answer that is neither success nor "not found".
    pub(crate) fn error(&mut self, status: Status) {
        *self.errors.entry(status.0).or_default() += 1;
    }

    /// Returns the number of errors.
    pub(crate) fn errors_total(&self) -> u64 {
        self.errors.values().sum()
    }

    /// Adds the counts of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        self.ops += other.ops;
        self.gets += other.gets;
        self.sets += other.sets;
        self.misses += other.misses;
        self.retries += other.retries;
        self.unsent += other.unsent;
        for (&status, &count) in &other.errors {
            *self.errors.entry(status).or_default() += count;
        }
        self.violations.wrong_key += other.violations.wrong_key;
        self.violations.corrupt += other.violations.corrupt;
        self.violations.stale += other.violations.stale;
        self.latencies.merge(&other.latencies);
        self.set_latencies.merge(&other.set_latencies);
    }
}

/// One slice of a run against one server.
#[derive(Clone, Debug)]
pub(crate) struct Slice {
    /// Counts of all workers.
    pub(crate) counts: Counts,
    /// Time from the start to the end of counting.
    pub(crate) elapsed: Duration,
    /// CPU time of the server's process in the slice, if it could be read.
    pub(crate) server_cpu: Option<Duration>,
}

impl Slice {
    /// Returns the operations per second.
    pub(crate) fn ops_per_second(&self) -> f64 {
        to_f64(self.counts.ops) / self.elapsed.as_secs_f64().max(1e-9)
    }

    /// Returns the CPU time of the server per answer, in microseconds.
    pub(crate) fn cpu_us_per_op(&self) -> Option<f64> {
        let answers = to_f64(self.counts.latencies.count().max(1));
        self.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / answers)
    }
}

/// Sums over the slices of one server.
#[derive(Clone, Debug, Default)]
pub(crate) struct Summary {
    /// Counts of all slices.
    pub(crate) counts: Counts,
    /// Operations per second of each slice.
    pub(crate) rates: Vec<f64>,
    /// 99th percentile of each slice, in microseconds.
    p99s_us: Vec<f64>,
    /// CPU time of the server per answer in each slice, in microseconds, if it could be read.
    cpu_us: Vec<f64>,
}

impl Summary {
    /// Adds a slice.
    pub(crate) fn add(&mut self, slice: &Slice) {
        self.counts.merge(&slice.counts);
        self.rates.push(slice.ops_per_second());
        self.p99s_us.push(slice.counts.latencies.quantile_us(0.99));
        self.cpu_us.extend(slice.cpu_us_per_op());
    }

    /// Returns the median of the operations per second.
    pub(crate) fn rate(&self) -> f64 {
        median(self.rates.iter().copied())
    }

    /// Returns the median of the 99th percentiles.
    pub(crate) fn p99_us(&self) -> f64 {
        median(self.p99s_us.iter().copied())
    }

    /// Returns the median of the server's CPU time per answer.
    pub(crate) fn cpu_us(&self) -> Option<f64> {
        (!self.cpu_us.is_empty()).then(|| median(self.cpu_us.iter().copied()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(latencies_ns: impl IntoIterator<Item = u64>) -> Counts {
        let mut counts = Counts::default();
        for latency in latencies_ns {
            counts.latencies.record(latency);
            counts.ops += 1;
        }
        counts
    }

    #[test]
    fn merging_equals_counting_together() {
        let mut merged = counts((1..=500).map(|n| n * 1_000));
        let mut other = counts((501..=1_000).map(|n| n * 1_000));
        other.error(Status(0x86));
        other.violations.stale = 1;
        merged.merge(&other);
        merged.merge(&other);
        let together = counts(
            (1..=500)
                .chain(501..=1_000)
                .chain(501..=1_000)
                .map(|n| n * 1_000),
        );
        for quantile in [0.0, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0] {
            let difference =
                merged.latencies.quantile_us(quantile) - together.latencies.quantile_us(quantile);
            assert!(difference.abs() < f64::EPSILON, "{quantile}");
        }
        assert_eq!(merged.ops, 1_500);
        assert_eq!(merged.latencies.count(), 1_500);
        assert_eq!((merged.errors_total(), merged.violations.total()), (2, 2));
    }

    #[test]
    fn quantiles_are_microseconds_with_three_digits() {
        let latencies = counts((1..=1_000).map(|n| n * 1_000)).latencies;
        for (quantile, us) in [(0.5, 500.0), (0.99, 990.0), (0.999, 999.0)] {
            let got = latencies.quantile_us(quantile);
            assert!((got - us).abs() / us < 0.002, "{quantile}: {got}");
        }
        assert!((latencies.max_us() - 1_000.0).abs() < 2.0);
        assert!((latencies.mean_us() - 500.5).abs() < 2.0);
    }

    #[test]
    fn extreme_latencies_are_kept_in_bounds() {
        let latencies = counts([0, u64::MAX]).latencies;
        assert_eq!(latencies.count(), 2);
        assert!(latencies.max_us() >= 119e6);
    }

    #[test]
    fn rates_of_a_slice() {
        let slice = Slice {
            counts: counts([1_000; 200]),
            elapsed: Duration::from_millis(100),
            server_cpu: Some(Duration::from_millis(1)),
        };
        assert!((slice.ops_per_second() - 2_000.0).abs() < 1e-6);
        assert!((slice.cpu_us_per_op().unwrap() - 5.0).abs() < 1e-6);
    }
}
