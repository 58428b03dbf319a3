//! The forms of answers.

use std::fmt::Display;

use axum::body::{Body, to_bytes};
use axum::http::header::{
    CACHE_CONTROL, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue,
    WWW_AUTHENTICATE,
};
use axum::http::{Method, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use registry::cluster_map::localize;
use serde_json::json;

use super::form::FieldErrors;
use super::host::requested_host;

/// The answer to a request, or its refusal.
pub(super) type HandlerResult = Result<Response, Response>;

/// Longest text of a refusal that is passed on, bytes.
const TEXT_BYTES_MAX: usize = 4096;

/// Returns an answer whose body is JSON text already.
pub(super) fn json_text(status: StatusCode, body: impl Into<Body>) -> Response {
    let headers = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-cache, no-store"),
    ];
    (status, headers, body.into()).into_response()
}

/// Returns JSON text in which the host name is the one that the client used.
pub(super) fn localized(text: &impl Display, headers: &HeaderMap) -> Response {
    let host = requested_host(headers);
    json_text(StatusCode::OK, localize(&text.to_string(), host.as_deref()))
}

/// Returns an answer with a JSON value.
pub(super) fn json(status: StatusCode, value: &impl Display) -> Response {
    json_text(status, value.to_string())
}

/// Returns the answer to a request that was done.
pub(super) fn ok(value: &impl Display) -> Response {
    json(StatusCode::OK, value)
}

/// Returns the answer of a probe, for humans and scripts: one line of text.
pub(super) fn line(status: StatusCode, text: &str) -> Response {
    (status, format!("{text}\n")).into_response()
}

/// Returns a refusal about one field.
pub(super) fn field_refusal(status: StatusCode, field: &str, text: &str) -> Response {
    json(status, &json!({ "errors": { field: text } }))
}

/// Returns a refusal because of a wrong field.
pub(super) fn wrong_field(field: &str, text: &str) -> Response {
    field_refusal(StatusCode::BAD_REQUEST, field, text)
}

/// Returns a refusal that concerns no single field.
pub(super) fn refusal(status: StatusCode, text: &str) -> Response {
    field_refusal(status, "_", text)
}

/// Refusal because of wrong fields.
pub(super) struct WrongFields(FieldErrors);

impl From<WrongFields> for Response {
    fn from(wrong: WrongFields) -> Self {
        json(StatusCode::BAD_REQUEST, &json!({ "errors": wrong.0 }))
    }
}

/// Refuses a request if it has wrong fields.
pub(super) fn check_fields(wrong: &FieldErrors) -> Result<(), WrongFields> {
    if wrong.is_empty() {
        return Ok(());
    }
    Err(WrongFields(wrong.clone()))
}

/// Returns a refusal because of missing permissions, in the reference server's words.
pub(super) fn forbidden(permissions: &[&str]) -> Response {
    let message = "Forbidden. User needs the following permissions";
    let value = json!({ "message": message, "permissions": permissions });
    json(StatusCode::FORBIDDEN, &value)
}

/// Returns the answer for a missing resource. SDKs look for this text.
pub(super) fn not_found() -> Response {
    json(
        StatusCode::NOT_FOUND,
        &json!("Requested resource not found."),
    )
}

pub(super) fn unauthorized() -> Response {
    let mut response = refusal(
        StatusCode::UNAUTHORIZED,
        "User name and password are needed.",
    );
    let challenge = HeaderValue::from_static("Basic realm=\"Settee\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, challenge);
    response
}

/// Makes the connection end with the answer: the request is refused before all of it was read.
pub(super) fn closing(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(CONNECTION, close);
    response
}

/// Returns the answer to a known management call that Settee does not serve.
pub(super) fn not_built(method: &Method, uri: &Uri) -> Response {
    let text = format!("{method} {} is not supported by Settee yet.", uri.path());
    refusal(StatusCode::NOT_IMPLEMENTED, &text)
}

/// Converts refusals of the HTTP library, for example of a path that is not text, into JSON.
pub(super) async fn refusals_in_json(response: Response) -> Response {
    let status = response.status();
    let refused = status.is_client_error() || status.is_server_error();
    let kind = response.headers().get(CONTENT_TYPE);
    if !refused || kind.is_some_and(|kind| kind == "application/json") {
        return response;
    }
    let (mut head, body) = response.into_parts();
    let text = to_bytes(body, TEXT_BYTES_MAX).await.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let said = match text.trim() {
        "" => status.canonical_reason().unwrap_or_default(),
        said => said,
    };
    let (answer, body) = refusal(status, said).into_parts();
    head.headers.remove(CONTENT_LENGTH);
    head.headers.extend(answer.headers);
    Response::from_parts(head, body)
}
