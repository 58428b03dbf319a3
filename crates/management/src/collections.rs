//! The scopes and collections of a bucket, for management clients.

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::response::Response;
use axum::routing::{delete, get, post};
use axum::{Extension, Router};
use collections::{CollectionSettings, Manifest, ManifestError};
use identity::AuthenticatedUser;
use registry::collections::{CollectionsError, management_ttl, to_management_json, wanted_of_json};
use serde::Deserialize;
use serde_json::json;

use super::answers::{self, HandlerResult, field_refusal};
use super::form::{field, flag};
use crate::state::HttpState;

/// Returns the routes below `/pools/default/buckets/B`.
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

async fn list(
    State(state): State<HttpState>,
    Extension(user): Extension<AuthenticatedUser>,
    Path(bucket): Path<String>,
) -> HandlerResult {
    let manifest = state.view.manifest(&bucket);
    let manifest = manifest.ok_or_else(answers::not_found)?;
    let sees = |scope: &str, collection: Option<&str>| user.access.sees(&bucket, scope, collection);
    let form = to_management_json(&manifest).with_visible(&sees);
    Ok(answers::ok(&form))
}

/// Makes a change outside of the thread that serves connections, because it waits for the disk.
async fn change(
    state: HttpState,
    uri: &Uri,
    bucket: String,
    edit: impl Fn(&Manifest) -> Result<Manifest, ManifestError> + Send + 'static,
) -> HandlerResult {
    let view = Arc::clone(&state.view);
    let changed = state
        .manifest_turn
        .run(move || view.change_manifest(&bucket, &edit));
    let changed = changed.await?.ok_or_else(answers::not_found)?;
    let manifest = changed.map_err(|error| refused(&error, uri))?;
    let uid = format!("{:x}", manifest.uid().0);
    Ok(answers::ok(&json!({ "uid": uid })))
}

/// Returns a refusal. A request about a bucket that follows another node's is redirected to that node, with the same
/// path, query and body.
fn refused(error: &CollectionsError, uri: &Uri) -> Response {
    let (status, about) = match error {
        CollectionsError::Refused(
            ManifestError::UnknownScope(_) | ManifestError::UnknownCollection(..),
        ) => (StatusCode::NOT_FOUND, "_"),
        CollectionsError::Refused(ManifestError::Invalid(_)) => (StatusCode::BAD_REQUEST, "name"),
        CollectionsError::Refused(_) => (StatusCode::BAD_REQUEST, "_"),
        CollectionsError::Follows(_) => (StatusCode::TEMPORARY_REDIRECT, "_"),
        CollectionsError::NotNow(_) => (StatusCode::SERVICE_UNAVAILABLE, "_"),
    };
    let mut response = field_refusal(status, about, &error.to_string());
    if let CollectionsError::Follows(there) = error
        && let Ok(location) = HeaderValue::try_from(format!("{there}{uri}"))
    {
        response.headers_mut().insert(header::LOCATION, location);
    }
    response
}

fn no_name() -> Response {
    answers::wrong_field("name", "The value must be supplied")
}

async fn create_scope(
    State(state): State<HttpState>,
    Path(bucket): Path<String>,
    uri: Uri,
    body: Bytes,
) -> HandlerResult {
    let name = field(&body, "name").ok_or_else(no_name)?;
    change(state, &uri, bucket, move |now| now.with_scope(&name)).await
}

/// Query parameters of a whole manifest.
#[derive(Deserialize)]
struct Validity {
    /// UID of the manifest on which the new one is based, hexadecimal.
    valid_on_uid: Option<String>,
}

/// `PUT .../scopes`: replaces all scopes and collections at once.
async fn replace(
    State(state): State<HttpState>,
    Path(bucket): Path<String>,
    Query(validity): Query<Validity>,
    uri: Uri,
    body: Bytes,
) -> HandlerResult {
    let valid_on = validity.valid_on_uid.map(|uid| hex(&uid)).transpose();
    let valid_on = valid_on.map_err(|text| answers::wrong_field("valid_on_uid", text))?;
    let wanted = wanted_of_json(&body);
    let wanted = wanted.map_err(|(about, text)| answers::wrong_field(&about, text))?;
    let new = new_collection(&state, &bucket);
    let edit = move |now: &Manifest| {
        if valid_on.is_some_and(|uid| uid != now.uid().0) {
            return Err(ManifestError::NoSuccessor(
                "valid_on_uid is not the uid of the current manifest",
            ));
        }
        now.with_scopes(&wanted, new)
    };
    change(state, &uri, bucket, edit).await
}

fn hex(uid: &str) -> Result<u64, &'static str> {
    u64::from_str_radix(uid, 16).map_err(|_| "The uid is not hexadecimal")
}

/// Returns the default settings of a new collection.
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
) -> HandlerResult {
    change(state, &uri, bucket, move |now| now.without_scope(&scope)).await
}

async fn create_collection(
    State(state): State<HttpState>,
    Path((bucket, scope)): Path<(String, String)>,
    uri: Uri,
    body: Bytes,
) -> HandlerResult {
    let name = field(&body, "name").ok_or_else(no_name)?;
    let mut settings = new_collection(&state, &bucket);
    read_settings(&body, &mut settings).map_err(wrong_setting)?;
    let edit = move |now: &Manifest| now.with_collection(&scope, &name, settings);
    change(state, &uri, bucket, edit).await
}

async fn drop_collection(
    State(state): State<HttpState>,
    Path((bucket, scope, name)): Path<(String, String, String)>,
    uri: Uri,
) -> HandlerResult {
    let edit = move |now: &Manifest| now.without_collection(&scope, &name);
    change(state, &uri, bucket, edit).await
}

async fn change_collection(
    State(state): State<HttpState>,
    Path((bucket, scope, name)): Path<(String, String, String)>,
    uri: Uri,
    body: Bytes,
) -> HandlerResult {
    read_settings(&body, &mut CollectionSettings::default()).map_err(wrong_setting)?;
    let edit = move |now: &Manifest| {
        now.with_settings(&scope, &name, |settings| {
            let checked = read_settings(&body, settings);
            debug_assert!(checked.is_ok(), "it was read before");
        })
    };
    change(state, &uri, bucket, edit).await
}

/// Answers at once: a manifest is announced only when every vBucket has it.
async fn ensure_manifest(
    State(state): State<HttpState>,
    Path((bucket, uid)): Path<(String, String)>,
) -> HandlerResult {
    let manifest = state.view.manifest(&bucket);
    let manifest = manifest.ok_or_else(answers::not_found)?;
    let uid = hex(&uid).map_err(|text| answers::wrong_field("_", text))?;
    if uid <= manifest.uid().0 {
        return Ok(answers::ok(&json!({})));
    }
    let text = "There is no such manifest yet";
    Err(answers::refusal(StatusCode::GATEWAY_TIMEOUT, text))
}

/// A field of the settings of a collection, and its error.
type WrongSetting = (&'static str, &'static str);

fn wrong_setting((about, text): WrongSetting) -> Response {
    answers::wrong_field(about, text)
}

/// Reads `maxTTL` and `history`; missing fields do not change.
fn read_settings(body: &[u8], settings: &mut CollectionSettings) -> Result<(), WrongSetting> {
    if let Some(text) = field(body, "maxTTL") {
        let ttl = management_ttl(text.parse().unwrap_or(i64::MAX));
        settings.max_ttl_s = ttl.map_err(|what| ("maxTTL", what))?;
    }
    if let Some(text) = field(body, "history") {
        settings.history = flag(&text).map_err(|what| ("history", what))?;
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
            b"history=yes",
        ] {
            assert!(read(body).is_err(), "{body:?}");
        }
    }
}
