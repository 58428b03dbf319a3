//! What a run begins with.

use crate::bugs::Bug;
use crate::state::{Budget, VBUCKETS, WRITES};

/// Which copies must have a write before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Majority,
    PersistToMajority,
}

/// What a run begins with, and what may happen in it.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub(crate) bug: Option<Bug>,
    /// Chains at the start; a vBucket without nodes takes no part.
    pub(crate) chains: [&'static [usize]; VBUCKETS],
    /// Chains that a move leads to; without nodes for none.
    pub(crate) to: [&'static [usize]; VBUCKETS],
    /// Level of each write.
    pub(crate) levels: [Level; WRITES],
    /// Leases and confirmations count. Without them any copy that is active serves, and a promotion waits for nothing:
    /// no durable write may depend on clocks.
    pub(crate) clocks: bool,
    pub(crate) budget: Budget,
}

impl Cluster {
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}
