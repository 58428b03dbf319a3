//! What a direction has done, for people.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

/// Figures of a direction.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Changes that were sent.
    pub(super) sent: AtomicU64,
    /// Of these, what was not newer than what was there.
    pub(super) not_newer: AtomicU64,
    /// Changes that came from the other side and were not offered back.
    pub(super) echoes: AtomicU64,
    /// Writes that were tried again.
    pub(super) retried: AtomicU64,
    /// vBuckets that lost changes.
    pub(super) rollbacks: AtomicU64,
}

impl Counts {
    /// Adds one.
    pub(super) fn add(counter: &AtomicU64) {
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

impl fmt::Display for Counts {
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
