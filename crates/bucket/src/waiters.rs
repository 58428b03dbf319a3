//! Those who wait for changes to become durable.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use model::{Seqno, VbId};
use parking_lot::Mutex;
use storage::KvStore;

use crate::Bucket;
use crate::signals::Wake;

/// One who waits.
struct Waiter {
    vb: VbId,
    seqno: Seqno,
    wake: Arc<dyn Wake>,
}

/// All of them. Looking whether there is any costs one load.
#[derive(Default)]
pub(crate) struct Waiters {
    list: Mutex<Vec<Waiter>>,
    count: AtomicUsize,
}

impl Waiters {
    fn push(&self, waiter: Waiter) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.list.lock().push(waiter);
    }

    /// Takes out those who wait for `vb` at or below `reached`, and rings them, unlocked.
    pub(crate) fn wake(&self, vb: VbId, reached: Seqno) {
        if self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        let ready = self.take(|waiter| waiter.vb == vb && waiter.seqno <= reached);
        for waiter in ready {
            waiter.wake.wake();
        }
    }

    fn take(&self, mut taken: impl FnMut(&Waiter) -> bool) -> Vec<Waiter> {
        let gone: Vec<Waiter> = self
            .list
            .lock()
            .extract_if(.., |waiter| taken(waiter))
            .collect();
        self.count.fetch_sub(gone.len(), Ordering::SeqCst);
        gone
    }
}

impl<S: KvStore> Bucket<S> {
    /// Rings `wake` once everything up to `seqno` is durable, or the vBucket is gone; asks the
    /// flusher to hurry.
    pub fn await_persisted(&self, vb: VbId, seqno: Seqno, wake: Arc<dyn Wake>) {
        self.waiters.push(Waiter { vb, seqno, wake });
        self.hurry();
        // It may have become durable, or gone, before the waiter was seen.
        let persisted = self.with_vbucket(vb, |vbucket| vbucket.persisted_seqno());
        self.waiters.wake(vb, persisted.unwrap_or(Seqno(u64::MAX)));
    }

    /// Forgets everything that `wake` waits for, because it gave up.
    pub fn forget_waiter(&self, wake: &Arc<dyn Wake>) {
        let gone = self.waiters.take(|waiter| Arc::ptr_eq(&waiter.wake, wake));
        drop(gone);
    }

    /// How many wait for something to become durable.
    pub fn persistence_waiters(&self) -> usize {
        self.waiters.count.load(Ordering::SeqCst)
    }
}
