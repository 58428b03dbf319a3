//! Who may ask, and how much.

use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::header::{AUTHORIZATION, CONTENT_LENGTH, HeaderMap};
use axum::middleware::Next;
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::answers;
use super::routes::HttpState;
use crate::identity::AuthenticatedUser;

/// Largest request body taken.
pub(super) const BODY_BYTES_MAX: usize = 64 * 1024;

/// Lets a request pass if its Basic credentials are right; the user travels with it.
pub(super) async fn require_credentials(
    State(state): State<HttpState>,
    mut request: Request,
    next: Next,
) -> Response {
    match authenticate(&state, request.headers()) {
        Some(user) => {
            request.extensions_mut().insert(user);
            next.run(request).await
        }
        None => answers::unauthorized(),
    }
}

/// Whose credentials a request brings, if they are right.
pub(super) fn authenticate(state: &HttpState, headers: &HeaderMap) -> Option<AuthenticatedUser> {
    let (scheme, encoded) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let decoded = STANDARD.decode(encoded.trim()).ok()?;
    let colon = decoded.iter().position(|byte| *byte == b':')?;
    let name = std::str::from_utf8(&decoded[..colon]).ok()?;
    state.view.authenticate(name, &decoded[colon + 1..])
}

/// Refuses a body over the limit before any of it is read.
pub(super) async fn limit_body(request: Request, next: Next) -> Response {
    let announced = request
        .headers()
        .get(CONTENT_LENGTH)
        .and_then(|value| value.to_str().ok())
        .and_then(|value| value.parse::<u64>().ok());
    if announced.is_some_and(|bytes| bytes > BODY_BYTES_MAX as u64) {
        return answers::line(
            StatusCode::PAYLOAD_TOO_LARGE,
            "A request body may have 65536 bytes.",
        );
    }
    next.run(request).await
}
