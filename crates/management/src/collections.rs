//! The scopes and collections of a bucket, as management clients see and change them.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::{delete, get, post};
use engine::collections::{CollectionSettings, Manifest, ManifestError};
use registry::collections::{CollectionsError, management_ttl, to_management_json, wanted_of_json};
use serde::Deserialize;
use serde_json::json;

use super::answers;
use super::form::field;
use crate::state::HttpState;

/// The routes below `/pools/default/buckets/B`.
pub(super) fn routes(bucket: &str) -> Router<HttpState> {
    let scopes = format!("{bucket}/scopes");
    let collections = format!("{scopes}/{{scope}}/collections");
    Router::new()
        .route(&scopes, get(list).post(create_scope).put(replace))
        .route(
            &format!("{scopes}/@ensureManifest/{{uid}}"),
            post(ensure_manifest),
        )
        .route(&format!("{scopes}/{{scope}}"), delete(drop_scope))
        .route(&collections, post(create_collection))
        .route(
            &format!("{collections}/{{collection}}"),
            delete(drop_collection).patch(change_collection),
        )
}

async fn list(State(state): State<HttpState>, Path(bucket): Path<String>) -> Response {
    match state.view.manifest(&bucket) {
        Some(manifest) => answers::json(StatusCode::OK, &to_management_json(&manifest)),
        None => answers::not_found(),
    }
}

type Edit = Box<dyn Fn(&Manifest) -> Result<Manifest, ManifestError> + Send>;

/// Makes a change away from the thread that serves connections: it waits for the disk.
async fn change(state: HttpState, uri: &Uri, bucket: String, edit: Edit) -> Response {
    let view = Arc::clone(&state.view);
    let changed = state
        .manifest_turn
        .run(move || view.change_manifest(&bucket, &*edit));
    match changed.await {
        Some(None) => answers::not_found(),
        Some(Some(Ok(manifest))) => {
            let uid = format!("{:x}", manifest.uid().0);
            answers::json(StatusCode::OK, &json!({ "uid": uid }))
        }
        Some(Some(Err(error))) => refused(&error, uri),
        None => error(StatusCode::SERVICE_UNAVAILABLE, "_", "The node is stopping"),
    }
}

/// Redirects a request about a bucket that follows another node's to that node, with the same path,
/// query and body.
fn elsewhere(error: &CollectionsError, there: &str, uri: &Uri) -> Response {
    let location = HeaderValue::try_from(format!("{there}{uri}"));
    let mut response = self::error(StatusCode::TEMPORARY_REDIRECT, "_", &error.to_string());
    if let Ok(location) = location {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

fn refused(error: &CollectionsError, uri: &Uri) -> Response {
    let (status, about) = match error {
        CollectionsError::Refused(error) => match error {
            ManifestError::UnknownScope(_) | ManifestError::UnknownCollection(..) => {
                (StatusCode::NOT_FOUND, "_")
            }
            ManifestError::ScopeExists(_) | ManifestError::CollectionExists(..) => {
                (StatusCode::BAD_REQUEST, "_")
            }
            ManifestError::NoSuccessor(_) => (StatusCode::BAD_REQUEST, "_"),
            ManifestError::Invalid(_) => (StatusCode::BAD_REQUEST, "name"),
        },
        CollectionsError::Follows(there) => return elsewhere(error, there, uri),
        CollectionsError::NotNow(_) => (StatusCode::SERVICE_UNAVAILABLE, "_"),
    };
    self::error(status, about, &error.to_string())
}

fn error(status: StatusCode, about: &str, text: &str) -> Response {
    answers::json(status, &json!({ "errors": { about: text } }))
}

async fn create_scope(
    State(state): State<HttpState>,
    Path(bucket): Path<String>,
    uri: Uri,
    body: Bytes,
) -> Response {
    let Some(name) = field(&body, "name") else {
        return error(
            StatusCode::BAD_REQUEST,
            "name",
            "The value must be supplied",
        );
    };
    change(
        state,
        &uri,
        bucket,
        Box::new(move |now| now.with_scope(&name)),
    )
    .await
}

/// What the query of a whole manifest may say.
#[derive(Deserialize)]
struct Validity {
    /// The manifest that it is to follow, hexadecimal.
    valid_on_uid: Option<String>,
}

/// `PUT .../scopes`: the scopes and collections that there are to be, all at once.
async fn replace(
    State(state): State<HttpState>,
    Path(bucket): Path<String>,
    Query(validity): Query<Validity>,
    uri: Uri,
    body: Bytes,
) -> Response {
    let bad = StatusCode::BAD_REQUEST;
    let valid_on = validity
        .valid_on_uid
        .map(|uid| u64::from_str_radix(&uid, 16));
    let Ok(valid_on) = valid_on.transpose() else {
        return error(bad, "valid_on_uid", "The uid is not hexadecimal");
    };
    let wanted = match wanted_of_json(&body) {
        Ok(wanted) => wanted,
        Err((about, text)) => return error(bad, &about, text),
    };
    let new = new_collection(&state, &bucket);
    let edit = move |now: &Manifest| {
        if valid_on.is_some_and(|uid| uid != now.uid().0) {
            return Err(ManifestError::NoSuccessor(
                "valid_on_uid is not the uid of the current manifest",
            ));
        }
        now.with_scopes(&wanted, new)
    };
    change(state, &uri, bucket, Box::new(edit)).await
}

/// Settings of a collection of which nothing else is said.
fn new_collection(state: &HttpState, bucket: &str) -> CollectionSettings {
    let of_bucket = state.view.bucket_settings(bucket);
    CollectionSettings {
        history: of_bucket.is_some_and(|bucket| bucket.history.of_new_collections()),
        ..CollectionSettings::default()
    }
}

async fn drop_scope(
    State(state): State<HttpState>,
    Path((bucket, scope)): Path<(String, String)>,
    uri: Uri,
) -> Response {
    change(
        state,
        &uri,
        bucket,
        Box::new(move |now| now.without_scope(&scope)),
    )
    .await
}

async fn create_collection(
    State(state): State<HttpState>,
    Path((bucket, scope)): Path<(String, String)>,
    uri: Uri,
    body: Bytes,
) -> Response {
    let Some(name) = field(&body, "name") else {
        return error(
            StatusCode::BAD_REQUEST,
            "name",
            "The value must be supplied",
        );
    };
    let mut settings = new_collection(&state, &bucket);
    if let Err((about, text)) = read_settings(&body, &mut settings) {
        return error(StatusCode::BAD_REQUEST, about, text);
    }
    let edit = move |now: &Manifest| now.with_collection(&scope, &name, settings);
    change(state, &uri, bucket, Box::new(edit)).await
}

async fn drop_collection(
    State(state): State<HttpState>,
    Path((bucket, scope, name)): Path<(String, String, String)>,
    uri: Uri,
) -> Response {
    let edit = move |now: &Manifest| now.without_collection(&scope, &name);
    change(state, &uri, bucket, Box::new(edit)).await
}

async fn change_collection(
    State(state): State<HttpState>,
    Path((bucket, scope, name)): Path<(String, String, String)>,
    uri: Uri,
    body: Bytes,
) -> Response {
    if let Err((about, text)) = read_settings(&body, &mut CollectionSettings::default()) {
        return error(StatusCode::BAD_REQUEST, about, text);
    }
    let edit = move |now: &Manifest| {
        now.with_settings(&scope, &name, |settings| {
            let checked = read_settings(&body, settings);
            debug_assert!(checked.is_ok(), "it was read before");
        })
    };
    change(state, &uri, bucket, Box::new(edit)).await
}

/// Does not wait: a manifest is announced once every vBucket has it.
async fn ensure_manifest(
    State(state): State<HttpState>,
    Path((bucket, uid)): Path<(String, String)>,
) -> Response {
    let Some(manifest) = state.view.manifest(&bucket) else {
        return answers::not_found();
    };
    match u64::from_str_radix(&uid, 16) {
        Ok(uid) if uid <= manifest.uid().0 => answers::json(StatusCode::OK, &json!({})),
        Ok(_) => error(
            StatusCode::GATEWAY_TIMEOUT,
            "_",
            "There is no such manifest yet",
        ),
        Err(_) => error(StatusCode::BAD_REQUEST, "_", "The uid is not hexadecimal"),
    }
}

/// Reads `maxTTL` and `history`; what is not said stays.
fn read_settings(
    body: &[u8],
    settings: &mut CollectionSettings,
) -> Result<(), (&'static str, &'static str)> {
    if let Some(text) = field(body, "maxTTL") {
        let ttl = management_ttl(text.parse().unwrap_or(i64::MAX));
        settings.max_ttl_s = ttl.map_err(|what| ("maxTTL", what))?;
    }
    if let Some(text) = field(body, "history") {
        settings.history = match &*text {
            "true" => true,
            "false" => false,
            _ => {
                return Err((
                    "history",
                    "The value must be one of the following: [true, false]",
                ));
            }
        };
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_forms() {
        let read = |body: &[u8]| {
            let mut settings = CollectionSettings {
                max_ttl_s: Some(5),
                history: true,
            };
            read_settings(body, &mut settings).map(|()| settings)
        };
        let settings = |max_ttl_s, history| CollectionSettings { max_ttl_s, history };
        assert_eq!(read(b""), Ok(settings(Some(5), true)));
        assert_eq!(read(b"maxTTL=0&history=false"), Ok(settings(None, false)));
        assert_eq!(read(b"maxTTL=-1"), Ok(settings(Some(0), true)));
        assert_eq!(
            read(b"maxTTL=2147483647"),
            Ok(settings(Some(2_147_483_647), true))
        );
        for body in [
            &b"maxTTL=x"[..],
            b"maxTTL=-2",
            b"maxTTL=2147483648",
            b"history=1",
        ] {
            assert!(read(body).is_err(), "{body:?}");
        }
    }
}
