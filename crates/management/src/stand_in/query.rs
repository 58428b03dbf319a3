//! Answers in the form of the query service.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::header::{CONTENT_TYPE, HeaderMap};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use identity::AuthenticatedUser;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::statement::Statement;
use crate::answers;
use crate::form::field;
use crate::state::HttpState;

const NO_QUERIES: &str = "Settee has no queries; this stands in for the service where containers wait for it, and knows \
                          only how they look for a bucket and make its primary index";

/// UUIDs of buckets for which a primary index was requested since the start. There is no real index.
#[derive(Clone, Default)]
pub(super) struct Indexes(Arc<Mutex<BTreeSet<String>>>);

/// A refusal: status, error code of the service, and the reason.
type Refused = (StatusCode, u32, String);

/// `GET /query/service?statement=...`
pub(super) async fn by_url(
    state: State<HttpState>,
    user: Extension<AuthenticatedUser>,
    indexes: Extension<Indexes>,
    uri: Uri,
) -> Response {
    let form = uri.query().unwrap_or_default().as_bytes();
    answer(&state, &user, &indexes, |name| field(form, name))
}

/// `POST /query/service` with a form, or with JSON.
pub(super) async fn by_body(
    state: State<HttpState>,
    user: Extension<AuthenticatedUser>,
    indexes: Extension<Indexes>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let kind = headers.get(CONTENT_TYPE);
    let kind = kind.and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if !kind.starts_with("application/json") {
        return answer(&state, &user, &indexes, |name| field(&body, name));
    }
    let value: Value = serde_json::from_slice(&body).unwrap_or_default();
    answer(&state, &user, &indexes, |name| {
        value[name].as_str().map(str::to_owned)
    })
}

fn answer(
    state: &HttpState,
    user: &AuthenticatedUser,
    indexes: &Indexes,
    parameter: impl Fn(&str) -> Option<String>,
) -> Response {
    let outcome = match parameter("statement") {
        Some(text) => run(state, user, indexes, &text),
        None => Err((
            StatusCode::BAD_REQUEST,
            1050,
            "No statement or prepared value".to_owned(),
        )),
    };
    let (status, errors, results) = match outcome {
        Ok(results) => (StatusCode::OK, None, results),
        Err((status, code, text)) => {
            let errors = json!([{ "code": code, "msg": text }]);
            (status, Some(errors), Vec::new())
        }
    };
    let metrics = json!({
        "elapsedTime": "0s",
        "executionTime": "0s",
        "resultCount": results.len(),
        "resultSize": 0,
        "errorCount": usize::from(errors.is_some()),
    });
    let mut said = json!({
        "requestID": format!("00000000-0000-4000-8000-{:012x}", state.view.unix_ms()),
        "signature": "json",
        "results": results,
        "status": if errors.is_none() { "success" } else { "fatal" },
        "metrics": metrics,
    });
    if let Some(errors) = errors {
        said["errors"] = errors;
    }
    if let Some(id) = parameter("client_context_id") {
        said["clientContextID"] = id.into();
    }
    answers::json(status, &said)
}

fn run(
    state: &HttpState,
    user: &AuthenticatedUser,
    indexes: &Indexes,
    text: &str,
) -> Result<Vec<Value>, Refused> {
    let unknown = || (StatusCode::NOT_IMPLEMENTED, 1020, NO_QUERIES.to_owned());
    let statement = Statement::parse(text).ok_or_else(unknown)?;
    let (Statement::KeyspacePresent { bucket, .. }
    | Statement::PrimaryOnline { bucket, .. }
    | Statement::CreatePrimary { bucket }) = &statement;
    let seen = Some(bucket).filter(|name| !user.access.within_bucket(name).is_empty());
    let uuid = seen.and_then(|name| Some(state.view.bucket(name)?.uuid));
    match statement {
        Statement::KeyspacePresent { column, .. } => Ok(vec![json!({ column: uuid.is_some() })]),
        Statement::PrimaryOnline { column, .. } => {
            let made = uuid.is_some_and(|uuid| indexes.0.lock().contains(&uuid));
            Ok(vec![json!({ column: made })])
        }
        Statement::CreatePrimary { bucket } => {
            let missing = || {
                let text = format!("Keyspace not found in CB datastore: default:{bucket}");
                (StatusCode::NOT_FOUND, 12_003, text)
            };
            let uuid = uuid.ok_or_else(missing)?;
            if !user.access.is_admin() {
                let text = "User does not have credentials to make indexes.".to_owned();
                return Err((StatusCode::UNAUTHORIZED, 13_014, text));
            }
            if !indexes.0.lock().insert(uuid) {
                let text = "The index #primary already exists.".to_owned();
                return Err((StatusCode::CONFLICT, 4300, text));
            }
            Ok(Vec::new())
        }
    }
}
