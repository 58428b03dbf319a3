//! Detection of a bucket that takes no changes of other nodes, since its memory stays full.

use std::sync::atomic::{AtomicU64, Ordering};

/// Time without memory after which the bucket counts as starved, ns. Until then it may be freeing some.
const STARVED_NS: u64 = 10_000_000_000;

/// Longest time between two refusals of one shortage, ns. Streams ask again every 100 ms.
const GAP_NS: u64 = 1_000_000_000;

/// First and last refusal of a shortage, ns; the first is 0 without a shortage.
#[derive(Debug, Default)]
pub(crate) struct Starvation {
    first: AtomicU64,
    last: AtomicU64,
}

impl Starvation {
    /// Notes whether changes of other nodes found memory.
    pub(crate) fn note(&self, found: bool, now_ns: u64) {
        let last = self.last.load(Ordering::Relaxed);
        if found {
            if self.first.load(Ordering::Relaxed) != 0 {
                self.first.store(0, Ordering::Relaxed);
            }
            return;
        }
        if self.first.load(Ordering::Relaxed) == 0 || now_ns.saturating_sub(last) > GAP_NS {
            self.first.store(now_ns.max(1), Ordering::Relaxed);
        }
        self.last.store(now_ns, Ordering::Relaxed);
    }

    /// Whether changes of other nodes wait for memory, and have for a while.
    pub(crate) fn is_starved(&self, now_ns: u64) -> bool {
        let first = self.first.load(Ordering::Relaxed);
        let waits = now_ns.saturating_sub(self.last.load(Ordering::Relaxed)) <= GAP_NS;
        first > 0 && waits && now_ns.saturating_sub(first) >= STARVED_NS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_starved_after_refusals_without_a_gap() {
        const SECOND: u64 = 1_000_000_000;
        let starvation = Starvation::default();
        let refuse = |seconds: std::ops::Range<u64>| {
            seconds.for_each(|second| starvation.note(false, second * SECOND));
        };
        assert!(!starvation.is_starved(20 * SECOND));
        refuse(20..30);
        assert!(!starvation.is_starved(29 * SECOND));
        refuse(30..31);
        assert!(starvation.is_starved(31 * SECOND));
        assert!(
            !starvation.is_starved(33 * SECOND),
            "its streams have ended"
        );
        refuse(33..40);
        assert!(
            !starvation.is_starved(40 * SECOND),
            "it is another shortage"
        );
        refuse(40..44);
        assert!(starvation.is_starved(44 * SECOND));
        starvation.note(true, 44 * SECOND);
        assert!(!starvation.is_starved(44 * SECOND));
    }
}
