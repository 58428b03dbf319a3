//! Claims: at most one connection at a time brings the changes of a vBucket.

use std::sync::atomic::{AtomicU64, Ordering};

use model::VbId;

const NO_NODE: u64 = 0;

/// The connection that brings the changes of each vBucket of a bucket, by its number.
///
/// A claim ends with its stream. It is revoked when the vBucket enters a state that does not follow another node. The
/// old stream does not continue, whatever state comes later.
#[derive(Debug)]
pub struct Claims {
    owners: Box<[AtomicU64]>,
}

impl Claims {
    /// Returns claims that no connection holds.
    pub fn new(vbuckets: u16) -> Self {
        Self {
            owners: (0..vbuckets).map(|_| AtomicU64::new(NO_NODE)).collect(),
        }
    }

    fn owner(&self, vb: VbId) -> Option<&AtomicU64> {
        self.owners.get(usize::from(vb.0))
    }

    /// Claims the vBucket for `connection`. Returns false if a connection, this one or another, holds the claim
    /// already.
    pub fn claim(&self, vb: VbId, connection: u64) -> bool {
        let (order, otherwise) = (Ordering::SeqCst, Ordering::SeqCst);
        self.owner(vb).is_some_and(|owner| {
            owner
                .compare_exchange(NO_NODE, connection, order, otherwise)
                .is_ok()
        })
    }

    /// Checks whether the connection still holds the claim.
    pub fn holds(&self, vb: VbId, connection: u64) -> bool {
        self.owner(vb)
            .is_some_and(|owner| owner.load(Ordering::SeqCst) == connection)
    }

    /// Releases the claim of a connection after its stream ended.
    pub fn release(&self, vb: VbId, connection: u64) {
        if let Some(owner) = self.owner(vb) {
            let (order, otherwise) = (Ordering::SeqCst, Ordering::SeqCst);
            let _other_owner = owner.compare_exchange(connection, NO_NODE, order, otherwise);
        }
    }

    /// Releases all claims of a connection after its streams ended.
    pub fn release_all(&self, connection: u64) {
        for index in 0..self.owners.len() {
            self.release(VbId(index as u16), connection);
        }
    }

    /// Revokes the claim on the vBucket, whichever connection holds it.
    pub fn revoke(&self, vb: VbId) {
        if let Some(owner) = self.owner(vb) {
            owner.store(NO_NODE, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_connection_at_a_time_claims_a_vbucket() {
        let claims = Claims::new(2);
        assert!(claims.claim(VbId(1), 7));
        assert!(!claims.claim(VbId(1), 8) && !claims.claim(VbId(1), 7));
        assert!(claims.claim(VbId(0), 8) && !claims.claim(VbId(2), 8));
        claims.release(VbId(1), 8);
        assert!(claims.holds(VbId(1), 7), "only the owner releases");
        claims.revoke(VbId(1));
        assert!(!claims.holds(VbId(1), 7));
        assert!(claims.claim(VbId(1), 8));
        claims.release(VbId(1), 7);
        claims.release_all(8);
        assert!(claims.claim(VbId(0), 9) && claims.claim(VbId(1), 9));
    }
}
