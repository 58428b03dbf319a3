//! Stand-ins for services that Settee does not have, for setup tools that wait for these services.
//!
//! They answer pings, and the statements with which such tools look for a bucket and create its primary index. All
//! other requests are refused in the form of the service, with the missing feature.

mod query;
mod statement;

use std::sync::Arc;

use axum::http::StatusCode;
use axum::middleware::{self, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get};
use axum::{Extension, Router};
use serde_json::json;
use tokio::sync::watch;

use super::{access, answers, origin};
use crate::state::HttpState;
use crate::view::NodeView;

const NO_SEARCH: &str =
    "Settee has no full-text search; this stands in for it where containers wait for the service.";

/// Builds the routes of both ports. They need credentials like all others.
pub(super) fn router(view: Arc<dyn NodeView>, closing: watch::Receiver<bool>) -> Router {
    let state = HttpState::new(view, closing, 0, 0);
    Router::new()
        .route("/admin/ping", get(ping))
        .route("/api/ping", get(ping))
        .route("/api/{*path}", any(search))
        .route("/query/service", get(query::by_url).post(query::by_body))
        .fallback(async || answers::not_found())
        .layer(from_fn_with_state(state.clone(), access::limit_body))
        .layer(from_fn_with_state(state.clone(), access::require_user))
        .layer(middleware::map_response(answers::refusals_in_json))
        .layer(middleware::from_fn(origin::refuse_foreign_pages))
        .layer(Extension(query::Indexes::default()))
        .with_state(state)
}

async fn ping() -> Response {
    StatusCode::OK.into_response()
}

async fn search() -> Response {
    let said = json!({ "error": NO_SEARCH, "status": "fail" });
    answers::json(StatusCode::NOT_IMPLEMENTED, &said)
}
