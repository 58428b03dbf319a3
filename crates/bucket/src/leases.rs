//! Until when vBuckets of a node in a cluster may serve.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::OpError;
use model::VbId;

/// The time on the monotonic clock, nanoseconds, until which each vBucket may serve clients.
#[derive(Debug)]
pub struct Leases {
    until_ns: Box<[AtomicU64]>,
}

impl Leases {
    /// None may.
    pub(crate) fn new(vbuckets: u16) -> Self {
        let until_ns = (0..vbuckets).map(|_| AtomicU64::new(0)).collect();
        Self { until_ns }
    }

    /// Sets until when a vBucket may serve; 0 ends it at once, but for operations under way.
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
    /// `TemporaryFailure`: another node may be active for it, and its map is not here yet.
    pub(crate) fn check(&self, vb: VbId, now_ns: u64) -> Result<(), OpError> {
        if now_ns < self.get(vb) {
            Ok(())
        } else {
            Err(OpError::TemporaryFailure)
        }
    }
}
