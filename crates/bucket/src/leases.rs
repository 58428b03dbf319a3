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

    /// Sets until when a vBucket may serve; 0 ends it at once, but for operations under way: it is sealed, and soon follows
    /// the copy that takes over.
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
    /// `NotMyVbucket` while it is sealed: a request that waited would hold up all others of its connection. Else
    /// `TemporaryFailure`: another node may be active for it, and its map is not here yet.
    pub(crate) fn check(&self, vb: VbId, now_ns: u64) -> Result<(), OpError> {
        match self.get(vb) {
            0 => Err(OpError::NotMyVbucket),
            until_ns if now_ns < until_ns => Ok(()),
            _ => Err(OpError::TemporaryFailure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_vbucket_is_elsewhere_and_one_without_a_lease_may_be() {
        let (leases, vb) = (Leases::new(2), VbId(1));
        assert_eq!(leases.check(vb, 5), Err(OpError::TemporaryFailure));
        leases.set(vb, 10);
        assert_eq!(leases.check(vb, 9), Ok(()));
        assert_eq!(leases.check(vb, 10), Err(OpError::TemporaryFailure));
        leases.set(vb, 0);
        assert_eq!(leases.check(vb, 5), Err(OpError::NotMyVbucket));
    }
}
