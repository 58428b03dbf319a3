//! Calls that create, change, flush and drop buckets.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::IntoResponse;
use serde_json::json;

use super::answers::{self, HandlerResult};
use super::bucket_form::{read_new, read_update};
use crate::state::HttpState;
use crate::view::{BucketChange, BucketsError, NodeView};

/// `POST /pools/default/buckets`
pub(super) async fn create(State(state): State<HttpState>, body: Bytes) -> HandlerResult {
    let make = move |view: &dyn NodeView| {
        let settings = read_new(&body).map_err(BucketsError::Invalid)?;
        view.change_buckets(BucketChange::Make(settings))
    };
    run(state, make).await?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// `POST /pools/default/buckets/B`
pub(super) async fn update(
    State(state): State<HttpState>,
    Path(name): Path<String>,
    body: Bytes,
) -> HandlerResult {
    run(state, move |view| {
        view.change_settings(&name, &|now| {
            read_update(&body, now).map_err(BucketsError::Invalid)
        })
    })
    .await
}

/// `DELETE /pools/default/buckets/B`
pub(super) async fn remove(
    State(state): State<HttpState>,
    Path(name): Path<String>,
) -> HandlerResult {
    change(state, BucketChange::Drop(name)).await
}

/// `POST /pools/default/buckets/B/controller/doFlush`
pub(super) async fn flush(
    State(state): State<HttpState>,
    Path(name): Path<String>,
) -> HandlerResult {
    change(state, BucketChange::Flush(name)).await
}

pub(super) async fn change(state: HttpState, change: BucketChange) -> HandlerResult {
    run(state, move |view| view.change_buckets(change)).await
}

/// Makes a change outside of the thread that serves connections, because it waits for the disk.
async fn run(
    state: HttpState,
    change: impl FnOnce(&dyn NodeView) -> Result<(), BucketsError> + Send + 'static,
) -> HandlerResult {
    let view = Arc::clone(&state.view);
    let done = state.bucket_turn.run(move || change(&*view));
    let Err(error) = done.await? else {
        return Ok(StatusCode::OK.into_response());
    };
    let (status, text) = (error.status(), error.to_string());
    if status == StatusCode::INTERNAL_SERVER_ERROR {
        tracing::error!(reason = text, "a bucket could not be changed");
    }
    let value = match error {
        BucketsError::Unknown => return Err(answers::not_found()),
        BucketsError::Invalid(wrong) => json!({ "errors": wrong, "summaries": {} }),
        BucketsError::Exists | BucketsError::Occupied(_) => json!({ "errors": { "name": text } }),
        BucketsError::QuotaTooLarge(_) => {
            json!({ "errors": { "ramQuota": text }, "summaries": {} })
        }
        BucketsError::QuotaTooSmall(_) => json!({ "errors": { "memoryQuota": text } }),
        _ => json!({ "_": text }),
    };
    Err(answers::json(status, &value))
}
