//! Hold times of vBucket locks by workers, streams and statistics.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::histogram::Histogram;

/// Reason for holding a vBucket's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Hold {
    /// A stream takes changes.
    Pull = 0,
    /// The flusher takes changes, or marks them as durable.
    Flush = 1,
    /// Changes or checkpoints are expelled, or a cursor is dropped.
    Expel = 2,
    /// Documents are evicted.
    Evict = 3,
    /// Expired documents become tombstones.
    Expire = 4,
    /// Documents are restored from the store.
    Restore = 5,
    /// Statistics read figures.
    Stat = 6,
    /// Collections are created or dropped; documents of dropped ones are erased.
    Collections = 7,
}

/// All reasons.
pub const HOLDS: [Hold; 8] = [
    Hold::Pull,
    Hold::Flush,
    Hold::Expel,
    Hold::Evict,
    Hold::Expire,
    Hold::Restore,
    Hold::Stat,
    Hold::Collections,
];

/// Sampling: one hold of so many is also measured in processor time, which costs two system calls.
const CPU_SAMPLED: u64 = 64;

/// Two histograms of nanoseconds for each reason: the hold time, and the processor time of the
/// holding thread. If the first is much longer, the system ran other threads meanwhile.
#[derive(Debug, Default)]
pub struct Holds {
    held: Box<[Histogram; HOLDS.len()]>,
    cpu: Box<[Histogram; HOLDS.len()]>,
    begun: AtomicU64,
}

impl Holds {
    pub(crate) fn record(&self, hold: Hold, ns: u64) {
        self.held[hold as usize].record(ns);
    }

    /// Whether the hold that begins is to be measured in processor time.
    pub(crate) fn samples_cpu(&self) -> bool {
        let begun = self.begun.fetch_add(1, Ordering::Relaxed);
        begun.is_multiple_of(CPU_SAMPLED)
    }

    pub(crate) fn record_cpu(&self, hold: Hold, ns: u64) {
        self.cpu[hold as usize].record(ns);
    }

    /// Returns the number of holds for this reason.
    pub fn count(&self, hold: Hold) -> u64 {
        self.held[hold as usize].total()
    }

    /// Returns an upper bound of `per_mille` of all hold times, in nanoseconds; see [`Histogram::quantile`].
    pub fn quantile_ns(&self, hold: Hold, per_mille: u64) -> u64 {
        self.held[hold as usize].quantile(per_mille)
    }

    /// As `quantile_ns`, for the processor time of holders, from one hold in 64.
    pub fn cpu_quantile_ns(&self, hold: Hold, per_mille: u64) -> u64 {
        self.cpu[hold as usize].quantile(per_mille)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_are_counted_by_reason_and_sampled() {
        let holds = Holds::default();
        holds.record(Hold::Stat, u64::MAX);
        assert_eq!(holds.count(Hold::Stat), 1);
        assert_eq!(holds.count(Hold::Pull), 0);
        assert!(holds.quantile_ns(Hold::Stat, 1000) >= 1 << 36);
        assert_eq!(holds.cpu_quantile_ns(Hold::Stat, 999), 0, "kept apart");
        let sampled = (0..6400).filter(|_| holds.samples_cpu()).count();
        assert_eq!(sampled, 100);
        holds.record_cpu(Hold::Evict, 1_000);
        assert!((1_000..=1_125).contains(&holds.cpu_quantile_ns(Hold::Evict, 999)));
    }
}
