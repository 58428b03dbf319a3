//! Until when vBuckets of a node in a cluster may serve.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::OpError;
use model::VbId;

/// A time that is over whatever the clock says.
const NEVER_NS: u64 = 1;

/// The time on the monotonic clock, nanoseconds, until which each vBucket may serve clients.
#[derive(Debug)]
pub struct Leases {
    until_ns: Box<[AtomicU64]>,
}

impl Leases {
    /// None may.
    pub(crate) fn new(vbuckets: u16) -> Self {
        let until_ns = (0..vbuckets).map(|_| AtomicU64::new(NEVER_NS)).collect();
        Self { until_ns }
    }

    /// Sets until when a vBucket may serve; 0 ends it at once, but for operations under way, and lets others wait: it is
    /// sealed, and soon follows the copy that takes over.
    pub fn set(&self, vb: VbId, until_ns: u64) {
        if let Some(lease) = self.until_ns.get(usize::from(vb.0)) {
            lease.store(until_ns, Ordering::SeqCst);
        }
    }

    /// Until when a vBucket may serve.
    pub fn get(&self, vb: VbId) -> u64 {
        let lease = self.until_ns.get(usize::from(vb.0));
        lease.map_or(0, |lease| lease.load(Ordering::SeqCst))
    }

    /// Whether a vBucket may serve.
    ///
    /// # Errors
    /// `WouldBlockPending` while it is sealed; else `TemporaryFailure`: another node may be active for it, and its map
    /// is not here yet.
    pub(crate) fn check(&self, vb: VbId, now_ns: u64) -> Result<(), OpError> {
        match self.get(vb) {
            0 => Err(OpError::WouldBlockPending),
            until_ns if now_ns < until_ns => Ok(()),
            _ => Err(OpError::TemporaryFailure),
        }
    }
}
