//! Changes that block for the disk, one after the other. A request whose client leaves before its turn is not
//! carried out, and none is once the node stops.

use std::sync::Arc;

use tokio::sync::{Semaphore, watch};

use crate::closing::stopped;

/// A queue of changes.
#[derive(Clone)]
pub(super) struct Turn {
    one: Arc<Semaphore>,
    closing: watch::Receiver<bool>,
}

impl Turn {
    /// An empty one, until `closing` turns true.
    pub(super) fn new(closing: watch::Receiver<bool>) -> Self {
        let one = Arc::new(Semaphore::new(1));
        Self { one, closing }
    }

    /// Runs `work` on a thread that may block, once those before it are done. `None`: it was not run, since the
    /// node stops.
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
        // It goes on to its end even if the client leaves now, and the next one waits for that.
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(one);
            done
        });
        done.await.ok()
    }
}
