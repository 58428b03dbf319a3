//! Waits for changes to become durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::{Seqno, VbId, VbUuid};
use parking_lot::Mutex;
use storage::KvStore;

use crate::Bucket;
use crate::signals::Wake;

/// A wait for one seqno.
struct PersistenceWait {
    vb: VbId,
    seqno: Seqno,
    wake: Arc<dyn Wake>,
}

/// All waits of a bucket. If there are none, a check costs one load.
#[derive(Default)]
pub(crate) struct PersistenceWaits {
    list: Mutex<Vec<PersistenceWait>>,
    count: AtomicUsize,
}

impl PersistenceWaits {
    fn push(&self, wait: PersistenceWait) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.list.lock().push(wait);
    }

    /// Removes the waits for `vb` at or below `reached`, and wakes their owners without the lock.
    pub(crate) fn wake(&self, vb: VbId, reached: Seqno) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let ready = self.take(|wait| wait.vb == vb && wait.seqno <= reached);
        for wait in ready {
            wait.wake.wake();
        }
    }

    fn take(&self, mut taken: impl FnMut(&PersistenceWait) -> bool) -> Vec<PersistenceWait> {
        let gone: Vec<PersistenceWait> = self
            .list
            .lock()
            .extract_if(.., |wait| taken(wait))
            .collect();
        self.count.fetch_sub(gone.len(), Ordering::SeqCst);
        gone
    }
}

impl<S: KvStore> Bucket<S> {
    /// Wakes `wake` once everything up to `seqno` is durable, or the vBucket is gone, emptied or rolled back. Asks the
    /// flusher to hurry. Returns the vBucket's history once the wait was added: the end of any other one does not end
    /// the wait.
    pub fn await_persisted(&self, vb: VbId, seqno: Seqno, wake: Arc<dyn Wake>) -> Option<VbUuid> {
        let wait = PersistenceWait { vb, seqno, wake };
        self.persistence_waits.push(wait);
        self.hurry();
        // The change may have become durable, or the vBucket gone, before the wait was added.
        let seen = self.with_vbucket(vb, |vbucket| {
            let history = vbucket.failover_log().newest().uuid;
            (history, vbucket.persisted_seqno())
        });
        let (history, persisted) = seen.unzip();
        self.persistence_waits
            .wake(vb, persisted.unwrap_or(Seqno(u64::MAX)));
        history
    }

    /// Whether `wake` has a wait that has not ended.
    pub fn awaits_persistence(&self, wake: &Arc<dyn Wake>) -> bool {
        let waits = self.persistence_waits.list.lock();
        waits.iter().any(|wait| Arc::ptr_eq(&wait.wake, wake))
    }

    /// Removes every wait of `wake`.
    pub fn forget_waiter(&self, wake: &Arc<dyn Wake>) {
        let gone = self
            .persistence_waits
            .take(|wait| Arc::ptr_eq(&wait.wake, wake));
        drop(gone);
    }

    /// Returns the number of waits.
    pub fn persistence_waiters(&self) -> usize {
        self.persistence_waits.count.load(Ordering::SeqCst)
    }
}
