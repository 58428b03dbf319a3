//! Leases of vBuckets on a node in a cluster.

use std::sync::atomic::{AtomicU64, Ordering};

use engine::OpError;
use model::{Now, VbId};
use storage::KvStore;

use crate::Bucket;

/// Time until which each vBucket may serve clients, in nanoseconds of the monotonic clock.
#[derive(Debug)]
pub struct Leases {
    /// End of the node's lease.
    node_ns: AtomicU64,
    until_ns: Box<[AtomicU64]>,
}

impl Leases {
    /// End of the lease of a vBucket that must not serve even while the node has a lease.
    pub const EXPIRED_NS: u64 = 1;

    /// Creates leases that have all expired.
    pub(crate) fn new(vbuckets: u16) -> Self {
        let until_ns = (0..vbuckets).map(|_| AtomicU64::new(Self::EXPIRED_NS));
        Self {
            node_ns: AtomicU64::default(),
            until_ns: until_ns.collect(),
        }
    }

    /// Sets the end of the node's lease: each vBucket that is not sealed or expired may serve until then.
    pub fn set_node(&self, until_ns: u64) {
        self.node_ns.store(until_ns, Ordering::SeqCst);
    }

    /// Sets the end of a vBucket's own lease. 0 seals the vBucket: only operations under way finish,
    /// and it soon follows the copy that takes over.
    pub fn set(&self, vb: VbId, until_ns: u64) {
        if let Some(lease) = self.until_ns.get(usize::from(vb.0)) {
            lease.store(until_ns, Ordering::SeqCst);
        }
    }

    /// Returns the end of a vBucket's own lease.
    pub fn get(&self, vb: VbId) -> u64 {
        let lease = self.until_ns.get(usize::from(vb.0));
        lease.map_or(0, |lease| lease.load(Ordering::SeqCst))
    }

    /// Checks that a vBucket may serve.
    ///
    /// # Errors
    /// `NotMyVbucket` while it is sealed: a waiting request would block all others of its
    /// connection. `TemporaryFailure` after the lease expired: another node may be active for it,
    /// and the new map is not here yet.
    pub(crate) fn check(&self, vb: VbId, now_ns: u64) -> Result<(), OpError> {
        match self.get(vb) {
            0 => Err(OpError::NotMyVbucket),
            Self::EXPIRED_NS => Err(OpError::TemporaryFailure),
            until_ns if now_ns < until_ns.max(self.node_ns.load(Ordering::SeqCst)) => Ok(()),
            _ => Err(OpError::TemporaryFailure),
        }
    }
}

impl<S: KvStore> Bucket<S> {
    /// Seals an active vBucket until its state changes: the bucket makes no change of its own there any more, as for an
    /// expired document or a new collection. The copy that takes over would lack it.
    pub fn seal(&self, id: VbId) {
        if let Some(slot) = self.slot(id) {
            let _locked = slot.vbucket.lock();
            slot.sealed.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether a vBucket is sealed. It is stable while the vBucket is locked.
    pub(crate) fn is_sealed(&self, id: VbId) -> bool {
        self.slot(id)
            .is_some_and(|slot| slot.sealed.load(Ordering::Relaxed))
    }

    /// Returns whether the bucket may change documents of an active vBucket by itself: it is not sealed, and may serve.
    /// After the end of its lease another copy may have taken over, which would lack these changes.
    pub(crate) fn may_change(&self, id: VbId, now: Now) -> bool {
        !self.is_sealed(id) && self.check_lease(id, now.mono_ns).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_refuses_sealed_and_expired_vbuckets_differently() {
        let (leases, vb) = (Leases::new(2), VbId(1));
        assert_eq!(leases.check(vb, 5), Err(OpError::TemporaryFailure));
        leases.set(vb, 10);
        assert_eq!(leases.check(vb, 9), Ok(()));
        assert_eq!(leases.check(vb, 10), Err(OpError::TemporaryFailure));
        leases.set_node(20);
        assert_eq!(leases.check(vb, 19), Ok(()), "by the node's lease");
        assert_eq!(leases.check(vb, 20), Err(OpError::TemporaryFailure));
        leases.set(vb, 30);
        assert_eq!(leases.check(vb, 29), Ok(()), "by its own lease");
        leases.set(vb, Leases::EXPIRED_NS);
        assert_eq!(leases.check(vb, 5), Err(OpError::TemporaryFailure));
        leases.set(vb, 0);
        assert_eq!(leases.check(vb, 5), Err(OpError::NotMyVbucket));
    }
}
