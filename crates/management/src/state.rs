//! What every handler of HTTP sees.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Instant;

use registry::Rate;
use tokio::sync::{Semaphore, watch};

use super::turn::Turn;
use super::view::NodeView;

/// What every handler sees.
#[derive(Clone)]
pub(super) struct HttpState {
    pub(super) view: Arc<dyn NodeView>,
    /// Turns true when the node stops: streams end.
    pub(super) closing: watch::Receiver<bool>,
    pub(super) streams: Arc<Semaphore>,
    pub(super) changes: Arc<Semaphore>,
    /// Buckets are made, changed and dropped one at a time.
    pub(super) bucket_turn: Turn,
    /// Collections likewise.
    pub(super) manifest_turn: Turn,
    /// The configuration of the audit likewise.
    pub(super) audit_turn: Turn,
    /// Users likewise.
    pub(super) users_turn: Turn,
    /// Requests so far, and how many there are in a second.
    pub(super) requests: Arc<AtomicU64>,
    pub(super) request_rate: Arc<Rate>,
    pub(super) start: Instant,
}

impl HttpState {
    /// Until `closing` turns true, with so many streams of configurations and of changes at a time.
    pub(super) fn new(
        view: Arc<dyn NodeView>,
        closing: watch::Receiver<bool>,
        streams_max: usize,
        changes_max: usize,
    ) -> Self {
        let turn = || Turn::new(closing.clone());
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
