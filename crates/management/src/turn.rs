//! Queues of changes that block for the disk. A change does not run if its client leaves before its turn, or if the
//! node stops.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use crate::closing::stopped;

/// A queue of changes.
#[derive(Clone)]
pub(super) struct ChangeQueue {
    one: Arc<Semaphore>,
    closing: watch::Receiver<bool>,
}

impl ChangeQueue {
    /// Creates an empty queue, which ends when `closing` turns true.
    pub(super) fn new(closing: watch::Receiver<bool>) -> Self {
        let one = Arc::new(Semaphore::new(1));
        Self { one, closing }
    }

    /// Runs `work` on a thread that may block, after the earlier changes are done. Returns `None` if it was not run
    /// because the node stops.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let mut closing = self.closing.clone();
        let one = tokio::select! {
            biased;
            () = stopped(&mut closing) => return None,
            one = Arc::clone(&self.one).acquire_owned() => one.ok()?,
        };
        // The work runs to its end even if the client leaves, and the next change waits for that.
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(one);
            done
        });
        done.await.ok()
    }
}
