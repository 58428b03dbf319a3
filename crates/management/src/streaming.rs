//! Streams of configurations: a new one is sent whenever it changes.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use futures_util::stream;
use identity::AuthenticatedUser;
use registry::cluster_map::localize;
use tokio::sync::{OwnedSemaphorePermit, watch};

use super::answers;
use super::host::requested_host;
use crate::closing::stopped;
use crate::state::HttpState;
use crate::view::NodeView;

/// Largest number of open streams. They live as long as their clients want, so they must not take every connection.
pub(super) const STREAMS_MAX: usize = 256;

/// Text after each configuration.
const SEPARATOR: &str = "\n\n\n\n";

/// One open stream.
struct StreamState {
    view: Arc<dyn NodeView>,
    /// Name of the bucket; `None` for the configuration without a bucket.
    bucket: Option<String>,
    user: Arc<str>,
    host: Option<String>,
    changes: watch::Receiver<u64>,
    closing: watch::Receiver<bool>,
    sent: Option<Arc<str>>,
    _slot: OwnedSemaphorePermit,
}

/// Answers with the current configuration, and with each later one until the client leaves, the bucket is gone, its
/// user loses the right to see it, or the node stops.
pub(super) fn open(
    state: &HttpState,
    bucket: Option<String>,
    user: &AuthenticatedUser,
    headers: &HeaderMap,
) -> Response {
    // Watch the changes before reading the first configuration: none is missed.
    let Some(changes) = state.view.config_changes(bucket.as_deref()) else {
        return answers::not_found();
    };
    let Ok(slot) = Arc::clone(&state.streams).try_acquire_owned() else {
        let reason = "Too many streams are open.";
        return answers::refusal(StatusCode::SERVICE_UNAVAILABLE, reason);
    };
    let feed = StreamState {
        view: Arc::clone(&state.view),
        bucket,
        user: Arc::clone(&user.name),
        host: requested_host(headers),
        changes,
        closing: state.closing.clone(),
        sent: None,
        _slot: slot,
    };
    if feed.current().is_none() {
        return answers::not_found();
    }
    let body = Body::from_stream(stream::unfold(feed, StreamState::next));
    answers::json_text(StatusCode::OK, body)
}

impl StreamState {
    fn current(&self) -> Option<Arc<str>> {
        let user = self.view.identity().look_up(&self.user)?;
        let bucket = self.bucket.as_ref();
        if bucket.is_some_and(|name| user.access.within_bucket(name).is_empty()) {
            return None;
        }
        match bucket {
            Some(name) => self.view.bucket_config(name),
            None => Some(self.view.global_config()),
        }
    }

    async fn next(mut self) -> Option<(Result<Bytes, Infallible>, Self)> {
        loop {
            if self.sent.is_some() && !self.wait().await {
                return None;
            }
            self.changes.borrow_and_update();
            let config = self.current()?;
            if self.sent.as_ref() != Some(&config) {
                let text = localize(&config, self.host.as_deref()) + SEPARATOR;
                self.sent = Some(config);
                return Some((Ok(Bytes::from(text)), self));
            }
        }
    }

    /// Waits for a change; returns `false` when there will be none.
    async fn wait(&mut self) -> bool {
        tokio::select! {
            biased;
            () = stopped(&mut self.closing) => false,
            changed = self.changes.changed() => changed.is_ok(),
        }
    }
}
