//! What monitoring reads of a node and its buckets, and settings of which the node has one value only.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use registry::cluster_map::percent_encode;
use serde_json::json;

use super::answers::{self, Handled};
use super::bucket_form::COMPACTS_ITSELF;
use super::documents;
use super::form::{FieldErrors, fields};
use crate::state::HttpState;

const DAY_S: f64 = 86_400.0;

/// The routes below `/pools/default/buckets/B`.
pub(super) fn routes(bucket: &str) -> Router<HttpState> {
    Router::new()
        .route(&format!("{bucket}/stats"), get(bucket_stats))
        .route(&format!("{bucket}/nodes"), get(nodes))
        .route(&format!("{bucket}/nodes/{{node}}/stats"), get(node_stats))
}

/// Of the node as a whole.
pub(super) fn settings() -> Router<HttpState> {
    Router::new()
        .route("/pools/default/rebalanceProgress", get(rebalance))
        .route(
            "/settings/autoCompaction",
            get(compaction).post(set_compaction),
        )
        .route("/settings/autoFailover", get(failover).post(set_failover))
}

async fn bucket_stats(State(state): State<HttpState>, Path(bucket): Path<String>) -> Handled {
    let summary = state.view.bucket(&bucket).ok_or_else(answers::not_found)?;
    let gauges = state.view.gauges(&bucket);
    let samples = documents::samples(&summary, gauges, state.view.unix_ms());
    Ok(answers::ok(&samples))
}

/// The node by the name under which clients reach it.
async fn nodes(
    State(state): State<HttpState>,
    Path(bucket): Path<String>,
    headers: HeaderMap,
) -> Handled {
    state.view.bucket(&bucket).ok_or_else(answers::not_found)?;
    let (port, path) = (state.view.node().ports.http, percent_encode(&bucket));
    let uri = format!("/pools/default/buckets/{path}/nodes/$HOST%3A{port}");
    let servers = json!([{
        "hostname": format!("$HOST:{port}"),
        "uri": uri,
        "stats": { "uri": format!("{uri}/stats") },
    }]);
    let value = json!({ "servers": servers });
    Ok(answers::localized(&value, &headers))
}

/// Of this node, whatever it is called.
async fn node_stats(
    state: State<HttpState>,
    Path((bucket, _node)): Path<(String, String)>,
) -> Handled {
    bucket_stats(state, Path(bucket)).await
}

/// Nothing is ever moved between nodes.
async fn rebalance() -> Response {
    answers::ok(&json!({ "status": "none" }))
}

async fn compaction(State(state): State<HttpState>) -> Response {
    let unset = json!({ "percentage": "undefined", "size": "undefined" });
    #[expect(clippy::cast_precision_loss, reason = "days for display")]
    let purge_days = state.view.node().purge_age_s as f64 / DAY_S;
    answers::ok(&json!({
        "autoCompactionSettings": {
            "parallelDBAndViewCompaction": false,
            "databaseFragmentationThreshold": unset,
            "viewFragmentationThreshold": unset,
        },
        "purgeInterval": purge_days,
    }))
}

/// The node compacts as it needs to, so there is nothing to set.
async fn set_compaction(body: Bytes) -> Response {
    only(
        &body,
        &[("parallelDBAndViewCompaction", "false")],
        COMPACTS_ITSELF,
    )
}

async fn failover() -> Response {
    answers::ok(&json!({ "enabled": false, "timeout": 120, "count": 0, "maxCount": 1 }))
}

async fn set_failover(body: Bytes) -> Response {
    let off = [("enabled", "false")];
    let reason = "A replica becomes active when it is told to: settee promote";
    only(&body, &off, reason)
}

/// Takes fields with the value that the node has anyway.
fn only(body: &[u8], fixed: &[(&str, &str)], reason: &str) -> Response {
    let is_fixed = |name: &str, value: &str| fixed.contains(&(name, value));
    let others = fields(body).filter(|(name, value)| !is_fixed(name, value));
    let wrong: FieldErrors = others.map(|(name, _)| (name, reason.into())).collect();
    answers::wrong_fields(&wrong).unwrap_or_else(|| StatusCode::OK.into_response())
}
