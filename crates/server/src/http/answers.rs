//! The few shapes an answer has.

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONNECTION, CONTENT_TYPE, HeaderValue, WWW_AUTHENTICATE};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// An answer whose body is JSON text already.
pub(super) fn json_text(status: StatusCode, body: impl Into<Body>) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-cache, no-store"),
    ];
    (status, headers, body.into()).into_response()
}

pub(super) fn json(status: StatusCode, value: &Value) -> Response {
    json_text(status, value.to_string())
}

/// An answer for humans and scripts: one line of text.
pub(super) fn line(status: StatusCode, text: &str) -> Response {
    (status, format!("{text}\n")).into_response()
}

/// The text is the one SDKs look for.
pub(super) fn not_found() -> Response {
    line(StatusCode::NOT_FOUND, "Requested resource not found.")
}

pub(super) fn unauthorized() -> Response {
    let mut response = line(
        StatusCode::UNAUTHORIZED,
        "User name and password are needed.",
    );
    let challenge = HeaderValue::from_static("Basic realm=\"Settee\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

/// For a request that is refused before all of it was read: the connection ends with the answer.
pub(super) fn closing(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

/// A management call that is known but not served.
pub(super) fn not_built(method: &Method, uri: &Uri) -> Response {
    let text = format!("{method} {} is not supported by Settee yet.", uri.path());
    json(
        StatusCode::NOT_IMPLEMENTED,
        &json!({ "errors": { "_": text } }),
    )
}
