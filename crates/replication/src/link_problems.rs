//! Reasons why nodes are not followed, collected for the log: a node that dies ends the connections of all buckets.

use std::collections::BTreeMap;

use parking_lot::Mutex;

/// Time for which reasons are collected before they are logged, ms.
const COLLECT_MS: u64 = 1_000;

/// Reasons why nodes are not followed that are not logged yet.
#[derive(Default)]
pub struct LinkProblems(Mutex<Collected>);

#[derive(Default)]
struct Collected {
    /// The newest reason by node and bucket: a connection that is closed is soon refused.
    reasons: BTreeMap<(String, String), String>,
    since_ms: Option<u64>,
}

impl LinkProblems {
    /// Records the reason why a bucket does not follow a node.
    pub(crate) fn note(&self, bucket: &str, node: &str, reason: &str) {
        let key = (node.to_owned(), bucket.to_owned());
        self.0.lock().reasons.insert(key, reason.to_owned());
    }

    /// Logs the reasons of the last second, in one line for each node and reason. Call it often.
    pub fn log(&self, now_ms: u64) {
        for ((node, reason), buckets) in self.take(now_ms) {
            let (count, bucket) = (buckets.len(), buckets.first());
            if count > 1 {
                tracing::warn!(
                    node,
                    reason,
                    buckets = count,
                    bucket,
                    "a node is not followed"
                );
            } else {
                tracing::warn!(node, reason, bucket, "a node is not followed");
            }
        }
    }

    /// Returns the buckets by node and reason, once the time is over.
    fn take(&self, now_ms: u64) -> BTreeMap<(String, String), Vec<String>> {
        let mut buckets: BTreeMap<_, Vec<_>> = BTreeMap::new();
        let mut collected = self.0.lock();
        if collected.reasons.is_empty() {
            return buckets;
        }
        let since_ms = *collected.since_ms.get_or_insert(now_ms);
        if now_ms < since_ms + COLLECT_MS {
            return buckets;
        }
        for ((node, bucket), reason) in std::mem::take(&mut *collected).reasons {
            buckets.entry((node, reason)).or_default().push(bucket);
        }
        buckets
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_has_all_buckets_that_lost_a_node_for_one_reason() {
        let problems = LinkProblems::default();
        problems.note("a", "n1", "closed");
        problems.note("a", "n1", "reset");
        assert!(problems.take(5).is_empty(), "others may follow");
        problems.note("b", "n1", "reset");
        problems.note("b", "n2", "refused");
        assert!(problems.take(4 + COLLECT_MS).is_empty());
        let taken = problems.take(5 + COLLECT_MS);
        let lines: Vec<_> = taken
            .iter()
            .map(|((node, _), all)| (&**node, all.len()))
            .collect();
        assert_eq!(lines, [("n1", 2), ("n2", 1)]);
        assert!(problems.take(5 + 2 * COLLECT_MS).is_empty());
    }
}
