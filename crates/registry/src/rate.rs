//! The rate of a counter, between two reads of it.

use parking_lot::Mutex;

/// Two looks at a counter have to be so far apart to tell a rate.
const APART_NS: u64 = 1_000_000_000;

/// The rate of a counter that only rises, between the last two looks at it.
#[derive(Debug, Default)]
pub struct Rate(Mutex<Sample>);

#[derive(Debug, Default)]
struct Sample {
    at_ns: u64,
    count: u64,
    per_second: f64,
}

impl Rate {
    /// Looks at the counter, and gives what it rises by in a second: since the look before, or
    /// since monotonic time began. Looks within a second of each other get the same answer. A counter
    /// that fell, since it began anew, has not risen.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_what_came_between_two_looks() {
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
}
