//! State of all HTTP handlers.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use registry::Rate;
use tokio::sync::{Semaphore, watch};

use super::turn::ChangeQueue;
use super::view::NodeView;

/// State of all HTTP handlers.
#[derive(Clone)]
pub(super) struct HttpState {
    pub(super) view: Arc<dyn NodeView>,
    /// Turns true when the node stops: streams end.
    pub(super) closing: watch::Receiver<bool>,
    pub(super) streams: Arc<Semaphore>,
    pub(super) changes: Arc<Semaphore>,
    /// Queue of changes of buckets, one at a time.
    pub(super) bucket_turn: ChangeQueue,
    /// Queue of changes of collections.
    pub(super) manifest_turn: ChangeQueue,
    /// Queue of changes of the audit configuration.
    pub(super) audit_turn: ChangeQueue,
    /// Queue of changes of users.
    pub(super) users_turn: ChangeQueue,
    /// Number of requests so far, and their rate per second.
    pub(super) requests: Arc<AtomicU64>,
    pub(super) request_rate: Arc<Rate>,
    pub(super) start: Instant,
}

impl HttpState {
    /// Creates the state. `closing` turns true when the node stops; the numbers limit the open streams of
    /// configurations and of changes.
    pub(super) fn new(
        view: Arc<dyn NodeView>,
        closing: watch::Receiver<bool>,
        streams_max: usize,
        changes_max: usize,
    ) -> Self {
        let turn = || ChangeQueue::new(closing.clone());
        Self {
            view,
            streams: Arc::new(Semaphore::new(streams_max)),
            changes: Arc::new(Semaphore::new(changes_max)),
            bucket_turn: turn(),
            manifest_turn: turn(),
            audit_turn: turn(),
            users_turn: turn(),
            requests: Arc::default(),
            request_rate: Arc::default(),
            start: Instant::now(),
            closing,
        }
    }
}
