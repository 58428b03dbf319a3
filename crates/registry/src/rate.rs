//! The rate of a counter between two reads.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Smallest interval between two reads that gives a new rate, ns.
const APART_NS: u64 = 1_000_000_000;

/// The rate of a counter that only rises, between its last two reads.
#[derive(Debug, Default)]
pub struct Rate(Mutex<Sample>);

#[derive(Debug, Default)]
struct Sample {
    at_ns: u64,
    count: u64,
    per_second: f64,
}

impl Rate {
    /// Reads the counter and returns its rise per second since the previous read, or since monotonic time began. Reads
    /// within a second of each other get the same answer. A counter that fell has restarted, and counts as not risen.
    pub fn look(&self, count: u64, now_ns: u64) -> f64 {
        let mut sample = self.0.lock();
        let passed_ns = now_ns.saturating_sub(sample.at_ns);
        if passed_ns >= APART_NS {
            let risen = count.saturating_sub(sample.count);
            #[expect(clippy::cast_precision_loss, reason = "a figure for display")]
            let per_second = risen as f64 * 1e9 / passed_ns as f64;
            *sample = Sample {
                at_ns: now_ns,
                count,
                per_second,
            };
        }
        sample.per_second
    }
}

/// The rates of many counters that only rise, by name; see [`Rate`].
#[derive(Debug, Default)]
pub struct Rates(Mutex<Samples>);

#[derive(Debug, Default)]
struct Samples {
    at_ns: u64,
    counts: BTreeMap<String, f64>,
    per_second: BTreeMap<String, f64>,
}

impl Rates {
    /// Reads all counters as [`Rate::look`] reads one, and replaces each by its rate. A counter that the previous read
    /// did not have rose from zero.
    pub fn look(&self, counters: &mut BTreeMap<String, f64>, now_ns: u64) {
        let mut samples = self.0.lock();
        let passed_ns = now_ns.saturating_sub(samples.at_ns);
        if passed_ns >= APART_NS {
            #[expect(clippy::cast_precision_loss, reason = "a figure for display")]
            let seconds = passed_ns as f64 / 1e9;
            let rate = |(name, count): (&String, &f64)| {
                let before = samples.counts.get(name).copied().unwrap_or(0.0);
                (name.clone(), (count - before).max(0.0) / seconds)
            };
            samples.per_second = counters.iter().map(rate).collect();
            samples.counts.clone_from(counters);
            samples.at_ns = now_ns;
        }
        for (name, value) in counters {
            *value = samples.per_second.get(name).copied().unwrap_or(0.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_the_rise_between_two_reads() {
        const SECOND: u64 = 1_000_000_000;
        let rate = Rate::default();
        let look = |count, at_ns| rate.look(count, at_ns).to_string();
        assert_eq!(look(10, SECOND / 2), "0", "too early to tell");
        assert_eq!(look(10, 5 * SECOND), "2");
        assert_eq!(look(9_000, 5 * SECOND + 1), "2", "the same for a second");
        assert_eq!(look(40, 20 * SECOND), "2");
        assert_eq!(look(5, 30 * SECOND), "0", "it began anew");
        assert_eq!(look(15, 31 * SECOND), "10");
    }

    #[test]
    fn rates_of_many_counters_have_their_names() {
        const SECOND: u64 = 1_000_000_000;
        let rates = Rates::default();
        let look = |counts: &[(&str, f64)], at_ns| {
            let named = counts
                .iter()
                .map(|(name, count)| ((*name).to_owned(), *count));
            let mut counters: BTreeMap<String, f64> = named.collect();
            rates.look(&mut counters, at_ns);
            counters.into_values().collect::<Vec<_>>()
        };
        assert_eq!(look(&[("a", 1.0)], SECOND / 2), [0.0], "too early to tell");
        assert_eq!(look(&[("a", 10.0), ("b", 20.0)], 2 * SECOND), [5.0, 10.0]);
        assert_eq!(
            look(&[("a", 99.0), ("b", 99.0)], 2 * SECOND + 1),
            [5.0, 10.0]
        );
        assert_eq!(look(&[("b", 22.0), ("c", 4.0)], 4 * SECOND), [1.0, 2.0]);
        assert_eq!(look(&[("b", 3.0)], 5 * SECOND), [0.0], "it began anew");
    }
}
