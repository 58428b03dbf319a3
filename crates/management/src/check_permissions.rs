//! `POST /pools/default/checkPermissions`: which of some permissions the calling user has.

use axum::Extension;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use identity::AuthenticatedUser;
use serde_json::{Map, Value, json};

use super::answers::{self, HandlerResult};
use crate::form::words;
use crate::permission::Permission;
use crate::state::HttpState;

/// Bucket name that means any bucket.
const ANY_BUCKET: &str = ".";

/// Checks permissions. The body lists them, separated by commas.
pub(super) async fn check(
    State(state): State<HttpState>,
    Extension(user): Extension<AuthenticatedUser>,
    body: String,
) -> HandlerResult {
    let mut given = Map::new();
    let mut malformed = Vec::new();
    for text in words(&body) {
        let Some(permission) = Permission::parse(text) else {
            malformed.push(text);
            continue;
        };
        let is_given = if permission.bucket() == Some(ANY_BUCKET) {
            let names = state.view.bucket_names();
            let mut each = names.iter().map(|name| permission.of_bucket(name));
            each.any(|permission| permission.is_given(&user.access))
        } else {
            permission.is_given(&user.access)
        };
        given.insert(text.to_owned(), is_given.into());
    }
    if !malformed.is_empty() {
        return Err(refused(&malformed));
    }
    Ok(answers::ok(&Value::Object(given)))
}

fn refused(malformed: &[&str]) -> Response {
    let text = format!("Malformed permissions: [{}].", malformed.join(","));
    answers::json(StatusCode::BAD_REQUEST, &json!(text))
}
