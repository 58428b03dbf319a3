//! Which connection follows for which vBucket: one at a time.

use std::sync::atomic::{AtomicU64, Ordering};

use model::VbId;

const NO_NODE: u64 = 0;

/// The connection that follows for each vBucket of a bucket, by its number.
///
/// A claim ends with its stream. It is revoked when the vBucket enters a state that does not
/// follow: whatever it becomes later, the old stream does not go on.
#[derive(Debug)]
pub struct Claims {
    owners: Box<[AtomicU64]>,
}

impl Claims {
    /// No connection follows.
    pub fn new(vbuckets: u16) -> Self {
        Self {
            owners: (0..vbuckets).map(|_| AtomicU64::new(NO_NODE)).collect(),
        }
    }

    fn owner(&self, vb: VbId) -> Option<&AtomicU64> {
        self.owners.get(usize::from(vb.0))
    }

    /// Whether `connection` follows from now on; false when another one does, or it did already.
    pub fn claim(&self, vb: VbId, connection: u64) -> bool {
        let (order, otherwise) = (Ordering::SeqCst, Ordering::SeqCst);
        self.owner(vb).is_some_and(|owner| {
            owner
                .compare_exchange(NO_NODE, connection, order, otherwise)
                .is_ok()
        })
    }

    /// Whether it still does.
    pub fn holds(&self, vb: VbId, connection: u64) -> bool {
        self.owner(vb)
            .is_some_and(|owner| owner.load(Ordering::SeqCst) == connection)
    }

    /// Its stream ended.
    pub fn release(&self, vb: VbId, connection: u64) {
        if let Some(owner) = self.owner(vb) {
            let (order, otherwise) = (Ordering::SeqCst, Ordering::SeqCst);
            let _other_owner = owner.compare_exchange(connection, NO_NODE, order, otherwise);
        }
    }

    /// All its streams ended.
    pub fn release_all(&self, connection: u64) {
        for index in 0..self.owners.len() {
            self.release(VbId(index as u16), connection);
        }
    }

    /// No connection follows for the vBucket any more.
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
    fn one_follows_at_a_time() {
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
