//! The certificate that clients must trust, and its reload.

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use serde_json::json;

use super::answers;
use crate::state::HttpState;

/// Returns the routes for administrators.
pub(super) fn routes() -> Router<HttpState> {
    Router::new().route("/node/controller/reloadCertificate", post(reload))
}

/// Returns the certificate. This needs no login: every handshake shows it.
pub(super) async fn show(State(state): State<HttpState>) -> Response {
    match state.view.authority() {
        Some(pem) => ([(CONTENT_TYPE, "text/plain")], pem.to_string()).into_response(),
        None => answers::not_found(),
    }
}

async fn reload(State(state): State<HttpState>) -> Response {
    match state.view.reload_certificate() {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err(reason) => answers::json(StatusCode::BAD_REQUEST, &json!(reason)),
    }
}
