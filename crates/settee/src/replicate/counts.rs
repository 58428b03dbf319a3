//! Counters of a direction, for the report at the end.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counters of a direction.
#[derive(Debug, Default)]
pub(super) struct DirectionCounts {
    /// Changes that were sent.
    pub(super) sent: AtomicU64,
    /// Sent changes that were not newer than the document of the target.
    pub(super) not_newer: AtomicU64,
    /// Changes that came from the target and were not sent back.
    pub(super) echoes: AtomicU64,
    /// Retried writes.
    pub(super) retried: AtomicU64,
    /// Rollbacks of vBuckets that lost changes.
    pub(super) rollbacks: AtomicU64,
}

impl DirectionCounts {
    /// Adds one to a counter.
    pub(super) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for DirectionCounts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        write!(
            f,
            "{} changes sent, {} of them not newer, {} not offered back, {} tried again, {} rollbacks",
            of(&self.sent),
            of(&self.not_newer),
            of(&self.echoes),
            of(&self.retried),
            of(&self.rollbacks)
        )
    }
}
