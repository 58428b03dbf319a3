//! The start of a run.

use crate::bugs::Bug;
use crate::state::{Budget, VBUCKETS, WRITES};

/// Durability level: the copies that must have a write before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Majority,
    PersistToMajority,
}

/// Start of a run, and its budget of events.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) bug: Option<Bug>,
    /// Chains at the start; an empty one means that the vBucket does not exist.
    pub(crate) chains: [&'static [usize]; VBUCKETS],
    /// Target chains of moves; empty for no move.
    pub(crate) to: [&'static [usize]; VBUCKETS],
    /// Level of each write.
    pub(crate) levels: [Level; WRITES],
    /// Whether leases and confirmations count. Without them any active copy serves, and a promotion waits for
    /// nothing: no durable write may depend on clocks.
    pub(crate) clocks: bool,
    pub(crate) budget: Budget,
}

impl Cluster {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}
