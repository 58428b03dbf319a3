//! The lease of a node.
//!
//! A node reads the map before it takes a lease, and takes it by a transaction that fails if the node was marked as failed
//! in between. A node that is marked clears the mark before it reads: a promotion that requires the mark is then either
//! in what was read, or refused. So the lease of a node that was failed over is worth nothing before the node knows of that.

use crate::coord::LeaseId;
use crate::settings::Settings;

/// How far a node is with its lease. Times are those at which requests went out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lease {
    /// None, and nothing is under way.
    None,
    /// Asked for.
    Asked,
    /// Granted; the map is being read.
    Granted {
        /// The lease.
        lease: LeaseId,
        /// When it was asked for.
        sent_ms: u64,
    },
    /// The map is read, and to be applied before the transaction goes out.
    Read {
        /// The lease.
        lease: LeaseId,
        /// When it was asked for.
        sent_ms: u64,
        /// The revisions of the node's two keys that were read; 0 for one that is not there.
        seen: (u64, u64),
    },
    /// The transaction is under way.
    Joining {
        /// The lease.
        lease: LeaseId,
        /// When it was asked for.
        sent_ms: u64,
    },
    /// Held.
    Held {
        /// The lease.
        lease: LeaseId,
        /// It lasts until then by this node's clock, the margin taken off.
        until_ms: u64,
        /// When it was renewed last, or when that was tried.
        renewed_ms: u64,
    },
}

impl Lease {
    /// Held, by a request that was sent at `sent_ms`.
    pub(super) fn held(settings: &Settings, lease: LeaseId, sent_ms: u64) -> Self {
        Self::Held {
            lease,
            until_ms: sent_ms + settings.lease_ms - settings.margin_ms,
            renewed_ms: sent_ms,
        }
    }

    /// Until when it lasts by this node's clock; 0 for none.
    pub fn until_ms(&self) -> u64 {
        match self {
            Self::Held { until_ms, .. } => *until_ms,
            _ => 0,
        }
    }
}
