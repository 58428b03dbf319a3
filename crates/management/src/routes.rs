//! The routes of HTTP management.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::header::{AUTHORIZATION, CONTENT_TYPE};
use axum::http::{HeaderMap, Method, StatusCode, Uri};
use axum::middleware::{self, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use axum::{Extension, Router};
use identity::AuthenticatedUser;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::answers::HandlerResult;
use super::peer::Peer;
use super::state::HttpState;
use super::view::NodeView;
use super::visible::{visible, visible_buckets};
use super::{
    access, answers, audit_settings, audited, auto_compaction, buckets, certificate, change_stream,
    check_permissions, client_certificates, clustered, collections, documents, forwarding,
    monitoring, origin, provision, rbac, setup, streaming, tools,
};

/// Builds all routes. Without credentials only the probes answer, `/pools` in brief, and the certificate. Open streams
/// end when `closing` turns true or its sender is dropped.
pub fn router(view: Arc<dyn NodeView>, closing: watch::Receiver<bool>) -> Router {
    let (streams_max, changes_max) = (streaming::STREAMS_MAX, change_stream::CHANGES_MAX);
    let state = HttpState::new(view, closing, streams_max, changes_max);
    let guarded = Router::new()
        .route("/", get(root))
        .route("/metrics", get(metrics))
        .route("/changes/{bucket}", get(change_stream::open))
        .merge(pool_routes())
        .merge(bucket_routes())
        .merge(rbac::routes())
        .merge(audit_settings::routes())
        .merge(setup::routes())
        .merge(provision::routes())
        .merge(monitoring::settings())
        .merge(tools::routes())
        .merge(auto_compaction::routes())
        .merge(certificate::routes())
        .merge(client_certificates::routes())
        .fallback(async || answers::not_found())
        .method_not_allowed_fallback(not_built)
        .layer(from_fn_with_state(state.clone(), clustered::answer))
        .layer(from_fn_with_state(state.clone(), clustered::await_bucket))
        .layer(from_fn_with_state(state.clone(), audited::record))
        .layer(from_fn_with_state(state.clone(), access::limit_body))
        .layer(from_fn_with_state(
            state.clone(),
            access::require_credentials,
        ))
        .layer(from_fn_with_state(state.clone(), forwarding::to_active))
        .layer(middleware::map_response(answers::refusals_in_json))
        .layer(from_fn_with_state(state.clone(), monitoring::count));
    Router::new()
        .route("/livez", get(async || answers::line(StatusCode::OK, "ok")))
        .route("/readyz", get(readyz))
        .route("/pools/default/certificate", get(certificate::show))
        .route("/pools", get(pools))
        .route("/pools/", get(pools))
        .method_not_allowed_fallback(not_built)
        .merge(guarded)
        .layer(middleware::from_fn(origin::refuse_foreign_pages))
        .with_state(state)
}

/// Returns the routes for the node, the cluster and their maps.
fn pool_routes() -> Router<HttpState> {
    Router::new()
        .route("/pools/nodes", get(nodes))
        .route("/pools/nodes/", get(nodes))
        .route("/nodes/self", get(this_node))
        .route("/pools/default", get(pool).post(setup::cluster))
        // The old Java SDKs use a slash at the end.
        .route("/pools/default/", get(pool))
        .route("/pools/default/nodeServices", get(node_services))
        .route(
            "/pools/default/nodeServicesStreaming",
            get(node_services_streaming),
        )
        .route("/pools/default/b/{bucket}", get(bucket_config))
        .route("/pools/default/bs/{bucket}", get(bucket_config_streaming))
        .route(
            "/pools/default/bucketsStreaming/{bucket}",
            get(bucket_config_streaming),
        )
        .route(
            "/pools/default/checkPermissions",
            post(check_permissions::check),
        )
}

/// Returns the routes for buckets.
fn bucket_routes() -> Router<HttpState> {
    let one = "/pools/default/buckets/{bucket}";
    Router::new()
        .route(
            "/pools/default/buckets",
            get(all_buckets).post(buckets::create),
        )
        // The Java SDK uses a slash at the end.
        .route(
            "/pools/default/buckets/",
            get(all_buckets).post(buckets::create),
        )
        .route(
            one,
            get(bucket).post(buckets::update).delete(buckets::remove),
        )
        .route(&format!("{one}/controller/doFlush"), post(buckets::flush))
        .merge(monitoring::routes(one))
        .merge(tools::bucket_routes(one))
        .route(&format!("{one}/ddocs"), get(design_documents))
        .merge(collections::routes(one))
        .route(&format!("{one}/controller/{{*path}}"), any(not_built))
}

async fn not_built(method: Method, uri: Uri) -> Response {
    answers::not_built(&method, &uri)
}

async fn readyz(State(state): State<HttpState>) -> Response {
    match state.view.ready() {
        Ok(()) => answers::line(StatusCode::OK, "ok"),
        Err(reason) => answers::line(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}

async fn metrics(State(state): State<HttpState>) -> Response {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(CONTENT_TYPE, kind)], state.view.metrics()).into_response()
}

/// Answers pings of clients: they check that the service is there.
async fn root(State(state): State<HttpState>) -> Response {
    let version = state.view.node().settee_version;
    answers::ok(&json!({ "name": "settee", "version": version }))
}

/// Answers `/pools`: briefly without credentials; wrong credentials are refused.
async fn pools(State(state): State<HttpState>, peer: Peer, headers: HeaderMap) -> HandlerResult {
    if peer.user.is_none() && !headers.contains_key(AUTHORIZATION) {
        return Ok(setup::hello(&*state.view));
    }
    let user = access::authenticate(&state, &peer, &headers).await?;
    let is_admin = user.access.is_admin();
    Ok(answers::ok(&documents::pools(&state.view.node(), is_admin)))
}

async fn pool(
    State(state): State<HttpState>,
    Extension(user): Extension<AuthenticatedUser>,
    headers: HeaderMap,
) -> Response {
    let (node, buckets) = (state.view.node(), visible(&state, &user.access));
    let value = documents::pool(&node, state.view.ready().is_ok(), &buckets);
    answers::localized(&value, &headers)
}

async fn nodes(
    State(state): State<HttpState>,
    Extension(user): Extension<AuthenticatedUser>,
    headers: HeaderMap,
) -> Response {
    let (node, buckets) = (state.view.node(), visible(&state, &user.access));
    let value = documents::nodes(&node, state.view.ready().is_ok(), &buckets);
    answers::localized(&value, &headers)
}

async fn this_node(
    State(state): State<HttpState>,
    Extension(user): Extension<AuthenticatedUser>,
    headers: HeaderMap,
) -> Response {
    let (node, buckets) = (state.view.node(), visible(&state, &user.access));
    let value = documents::this_node(&node, state.view.ready().is_ok(), &buckets);
    answers::localized(&value, &headers)
}

async fn node_services(State(state): State<HttpState>, headers: HeaderMap) -> Response {
    answers::localized(&state.view.global_config(), &headers)
}

async fn node_services_streaming(
    State(state): State<HttpState>,
    Extension(user): Extension<AuthenticatedUser>,
    headers: HeaderMap,
) -> Response {
    streaming::open(&state, None, &user, &headers)
}

async fn bucket_config(
    State(state): State<HttpState>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> HandlerResult {
    let config = state.view.bucket_config(&name);
    let config = config.ok_or_else(answers::not_found)?;
    Ok(answers::localized(&config, &headers))
}

async fn bucket_config_streaming(
    State(state): State<HttpState>,
    Extension(user): Extension<AuthenticatedUser>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> Response {
    streaming::open(&state, Some(name), &user, &headers)
}

async fn all_buckets(
    State(state): State<HttpState>,
    Extension(user): Extension<AuthenticatedUser>,
    headers: HeaderMap,
) -> Response {
    let names = visible_buckets(&state, &user.access);
    let all = names
        .iter()
        .filter_map(|name| describe(&state, name))
        .collect();
    answers::localized(&Value::Array(all), &headers)
}

async fn bucket(
    State(state): State<HttpState>,
    Path(name): Path<String>,
    headers: HeaderMap,
) -> HandlerResult {
    let value = describe(&state, &name).ok_or_else(answers::not_found)?;
    Ok(answers::localized(&value, &headers))
}

/// Returns no design documents: there are no views.
async fn design_documents(
    State(state): State<HttpState>,
    Path(name): Path<String>,
) -> HandlerResult {
    state.view.manifest(&name).ok_or_else(answers::not_found)?;
    Ok(answers::ok(&json!({ "rows": [] })))
}

fn describe(state: &HttpState, name: &str) -> Option<Value> {
    let summary = state.view.bucket(name)?;
    let config = state.view.bucket_config(name);
    Some(documents::bucket(
        name,
        &summary,
        &state.view.node(),
        config.as_deref(),
    ))
}
