//! The bucket's memory account and its marks.

use std::sync::atomic::{AtomicI64, Ordering};

/// What the bucket's documents and queues take, against its quota. All figures in bytes.
#[derive(Debug)]
pub struct Memory {
    used: AtomicI64,
    quota: i64,
    low: i64,
    high: i64,
    hard: i64,
}

impl Memory {
    /// An account with the marks of the reference: eviction starts above 85 % of the quota and
    /// goes down to 75 %; above 93 % writes are refused.
    #[must_use]
    pub fn new(quota_bytes: u64) -> Self {
        let quota = i64::try_from(quota_bytes).unwrap_or(i64::MAX);
        let percent = |share: i64| quota / 100 * share;
        Self {
            used: AtomicI64::new(0),
            quota,
            low: percent(75),
            high: percent(85),
            hard: percent(93),
        }
    }

    /// Books a change; says whether the account is above the high mark.
    pub(crate) fn add(&self, delta: i64) -> bool {
        self.used.fetch_add(delta, Ordering::Relaxed) + delta > self.high
    }

    /// Whether a write of `bytes` more may go on.
    #[must_use]
    pub fn admits(&self, bytes: usize) -> bool {
        self.used
            .load(Ordering::Relaxed)
            .saturating_add_unsigned(bytes as u64)
            <= self.hard
    }

    /// Bytes in use.
    #[must_use]
    pub fn used(&self) -> u64 {
        u64::try_from(self.used.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// The quota.
    #[must_use]
    pub fn quota(&self) -> u64 {
        self.quota.unsigned_abs()
    }

    /// Where eviction stops.
    #[must_use]
    pub fn low_mark(&self) -> u64 {
        self.low.unsigned_abs()
    }

    /// Where eviction starts.
    #[must_use]
    pub fn high_mark(&self) -> u64 {
        self.high.unsigned_abs()
    }

    /// Above this a write answers TemporaryFailure.
    #[must_use]
    pub fn hard_mark(&self) -> u64 {
        self.hard.unsigned_abs()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_and_admission() {
        let memory = Memory::new(1000);
        assert_eq!(
            (memory.low_mark(), memory.high_mark(), memory.hard_mark()),
            (750, 850, 930)
        );
        assert!(!memory.add(850));
        assert!(memory.add(1));
        assert!(memory.admits(79));
        assert!(!memory.admits(80));
        assert!(!memory.admits(usize::MAX));
        assert!(!memory.add(-500));
        assert_eq!(memory.used(), 351);
    }
}
