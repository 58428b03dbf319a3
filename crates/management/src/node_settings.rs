//! Changes of the settings of the node, which several calls make.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;

use super::answers;
use crate::state::HttpState;
use crate::view::{BucketsError, ClusterChange, NodeView};

/// Changes settings of the node.
///
/// # Errors
/// The refusal to answer; nothing is changed then.
pub(super) async fn change(state: &HttpState, change: ClusterChange) -> Result<(), Response> {
    run(state, move |view| view.change_cluster(change)).await
}

/// Makes a change outside of the thread that serves connections, because it waits for the disk.
///
/// # Errors
/// As [`change`].
pub(super) async fn run(
    state: &HttpState,
    change: impl FnOnce(&dyn NodeView) -> Result<(), BucketsError> + Send + 'static,
) -> Result<(), Response> {
    let view = Arc::clone(&state.view);
    let changed = state.bucket_turn.run(move || change(&*view)).await?;
    changed.map_err(|error| {
        let field = match error {
            BucketsError::QuotaTooSmall(_) => "memoryQuota",
            BucketsError::NoClientAuthority(_) => "state",
            _ => "_",
        };
        let (status, reason) = (error.status(), error.to_string());
        if status == StatusCode::INTERNAL_SERVER_ERROR {
            tracing::error!(reason, "settings of the node could not be changed");
        }
        answers::field_refusal(status, field, &reason)
    })
}
