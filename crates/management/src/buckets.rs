//! Calls that create, change, flush and drop buckets.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::json;

use super::answers::{self, Handled};
use super::bucket_form::{read_new, read_update};
use super::form::FieldErrors;
use crate::state::HttpState;
use crate::view::{BucketChange, BucketsError};

/// `POST /pools/default/buckets`
pub(super) async fn create(State(state): State<HttpState>, body: Bytes) -> Handled {
    let settings = read_new(&body).map_err(|wrong| refused(&wrong))?;
    change(state, BucketChange::Make(settings)).await?;
    Ok(StatusCode::ACCEPTED.into_response())
}

/// `POST /pools/default/buckets/B`
pub(super) async fn update(
    State(state): State<HttpState>,
    Path(name): Path<String>,
    body: Bytes,
) -> Handled {
    let now = state.view.bucket_settings(&name);
    let now = now.ok_or_else(answers::not_found)?;
    let settings = read_update(&body, now).map_err(|wrong| refused(&wrong))?;
    change(state, BucketChange::Adjust(settings)).await
}

/// `DELETE /pools/default/buckets/B`
pub(super) async fn remove(State(state): State<HttpState>, Path(name): Path<String>) -> Handled {
    change(state, BucketChange::Drop(name)).await
}

/// `POST /pools/default/buckets/B/controller/doFlush`
pub(super) async fn flush(State(state): State<HttpState>, Path(name): Path<String>) -> Handled {
    change(state, BucketChange::Flush(name)).await
}

/// Makes a change outside of the thread that serves connections, because it waits for the disk.
pub(super) async fn change(state: HttpState, change: BucketChange) -> Handled {
    let view = Arc::clone(&state.view);
    let done = state.bucket_turn.run(move || view.change_buckets(change));
    let Err(error) = done.await.unwrap_or(Err(BucketsError::Stopping)) else {
        return Ok(StatusCode::OK.into_response());
    };
    let text = error.to_string();
    let bad = StatusCode::BAD_REQUEST;
    let (status, value) = match error {
        BucketsError::Unknown => return Err(answers::not_found()),
        BucketsError::Exists | BucketsError::Occupied(_) => {
            (bad, json!({ "errors": { "name": text } }))
        }
        BucketsError::QuotaTooLarge(_) => (
            bad,
            json!({ "errors": { "ramQuota": text }, "summaries": {} }),
        ),
        BucketsError::QuotaTooSmall(_) => (bad, json!({ "errors": { "memoryQuota": text } })),
        BucketsError::TooMany(_)
        | BucketsError::FlushDisabled
        | BucketsError::Follows
        | BucketsError::Busy
        | BucketsError::Refused(_)
        | BucketsError::NoClientAuthority(_) => (bad, json!({ "_": text })),
        BucketsError::Stopping | BucketsError::Unavailable(_) => {
            (StatusCode::SERVICE_UNAVAILABLE, json!({ "_": text }))
        }
        BucketsError::Failed(_) => (StatusCode::INTERNAL_SERVER_ERROR, json!({ "_": text })),
    };
    Err(answers::json(status, &value))
}

fn refused(wrong: &FieldErrors) -> Response {
    let value = json!({ "errors": wrong, "summaries": {} });
    answers::json(StatusCode::BAD_REQUEST, &value)
}
