//! The lease of a node.
//!
//! A node reads the map before it takes a lease. It takes the lease by a transaction that fails if the node
//! was marked as failed meanwhile. A marked node clears the mark before the read: a promotion that requires
//! the mark is then either visible in the read, or refused. So a node that was failed over cannot use a lease
//! before it knows of the failover.

use crate::coord::LeaseId;
use crate::settings::Settings;

/// State of a node's lease. Times are send times of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeLease {
    /// No lease, and no request in flight.
    None,
    /// A lease was requested.
    Asked,
    /// Granted; the map is being read.
    Granted {
        /// The lease.
        lease: LeaseId,
        /// Send time of the request.
        sent_ms: u64,
    },
    /// The map was read, and must be applied before the transaction goes out.
    Read {
        /// The lease.
        lease: LeaseId,
        /// Send time of the request.
        sent_ms: u64,
        /// Revisions of the node's two keys in the read; 0 for a key that does not exist.
        seen: (u64, u64),
    },
    /// The transaction is in flight.
    Joining {
        /// The lease.
        lease: LeaseId,
        /// Send time of the request.
        sent_ms: u64,
    },
    /// The lease is held.
    Held {
        /// The lease.
        lease: LeaseId,
        /// End of the lease by this node's clock, minus the margin.
        until_ms: u64,
        /// Time of the last renewal, or of the last attempt.
        renewed_ms: u64,
    },
}

impl NodeLease {
    /// Makes a held lease from a request that was sent at `sent_ms`.
    pub(super) fn held(settings: &Settings, lease: LeaseId, sent_ms: u64) -> Self {
        Self::Held {
            lease,
            until_ms: sent_ms + settings.lease_ms - settings.margin_ms,
            renewed_ms: sent_ms,
        }
    }

    /// Returns the end of the lease by this node's clock; 0 without a lease.
    pub fn until_ms(&self) -> u64 {
        match self {
            Self::Held { until_ms, .. } => *until_ms,
            _ => 0,
        }
    }
}
