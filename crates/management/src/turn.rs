//! Queues of changes that block for the disk. A change does not run if its client leaves before its turn, or if the
//! node stops.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use tokio::sync::{Semaphore, watch};

use super::answers;
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

    /// Runs `work` on a thread that may block, after the earlier changes are done.
    ///
    /// # Errors
    /// It was not run because the node stops; with the refusal.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Response> {
        let mut closing = self.closing.clone();
        let one = tokio::select! {
            biased;
            () = stopped(&mut closing) => return Err(stopping()),
            one = Arc::clone(&self.one).acquire_owned() => one.map_err(|_| stopping())?,
        };
        // The work runs to its end even if the client leaves, and the next change waits for that.
        let done = tokio::task::spawn_blocking(move || {
            let done = work();
            drop(one);
            done
        });
        done.await.map_err(|_| stopping())
    }
}

fn stopping() -> Response {
    answers::refusal(StatusCode::SERVICE_UNAVAILABLE, "The node is stopping.")
}
