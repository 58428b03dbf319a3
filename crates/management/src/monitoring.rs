//! Figures of a node and its buckets for monitoring, and settings with a fixed value.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::HeaderMap;
use axum::middleware::Next;
use axum::response::Response;
use axum::routing::get;
use registry::cluster_map::percent_encode;
use serde_json::{Value, json};

use super::answers::{self, HandlerResult};
use super::figures;
use super::streaming::STREAMS_MAX;
use super::tools::only;
use crate::state::HttpState;

/// Returns the routes below `/pools/default/buckets/B`.
pub(super) fn routes(bucket: &str) -> Router<HttpState> {
    Router::new()
        .route(&format!("{bucket}/stats"), get(bucket_stats))
        .route(&format!("{bucket}/stats/{{name}}"), get(one_sample))
        .route(&format!("{bucket}/nodes"), get(nodes))
        .route(&format!("{bucket}/nodes/{{node}}/stats"), get(node_stats))
}

/// Returns the routes for the settings of the node.
pub(super) fn settings() -> Router<HttpState> {
    Router::new()
        .route("/pools/default/rebalanceProgress", get(rebalance))
        .route("/settings/autoFailover", get(failover).post(set_failover))
}

/// Counts a request.
pub(super) async fn count(
    State(state): State<HttpState>,
    request: Request,
    next: Next,
) -> Response {
    state.requests.fetch_add(1, Ordering::Relaxed);
    next.run(request).await
}

async fn bucket_stats(State(state): State<HttpState>, Path(bucket): Path<String>) -> HandlerResult {
    let value = samples(&state, &bucket).ok_or_else(answers::not_found)?;
    Ok(answers::ok(&value))
}

/// Returns a sample of each figure of a bucket, if the bucket exists.
fn samples(state: &HttpState, bucket: &str) -> Option<Value> {
    let view = &state.view;
    let (summary, of_bucket) = (view.bucket(bucket)?, view.samples(bucket)?);
    let (node, now_ms) = (view.node(), view.unix_ms());
    let of_http = of_http(state);
    Some(figures::samples(
        &node, &summary, of_bucket, of_http, now_ms,
    ))
}

/// Returns the samples of one figure, by node.
async fn one_sample(
    State(state): State<HttpState>,
    Path((bucket, name)): Path<(String, String)>,
    headers: HeaderMap,
) -> HandlerResult {
    let mut all = samples(&state, &bucket).ok_or_else(answers::not_found)?;
    let op = &mut all["op"];
    let mut samples = op["samples"].take();
    let values = samples.get_mut(&name).map(Value::take);
    let node = format!("$HOST:{}", state.view.node().ports.http);
    let value = json!({
        "samplesCount": op["samplesCount"],
        "isPersistent": op["isPersistent"],
        "lastTStamp": op["lastTStamp"],
        "interval": op["interval"],
        "timestamp": samples["timestamp"],
        "nodeStats": { node: values.ok_or_else(answers::not_found)? },
    });
    Ok(answers::localized(&value, &headers))
}

/// Returns the figures of HTTP itself.
#[expect(clippy::cast_precision_loss, reason = "samples are fractions")]
fn of_http(state: &HttpState) -> BTreeMap<String, f64> {
    let requests = state.requests.load(Ordering::Relaxed);
    let since_start_ns = u64::try_from(state.start.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let rate = state.request_rate.look(requests, since_start_ns);
    let open = STREAMS_MAX.saturating_sub(state.streams.available_permits());
    BTreeMap::from([
        ("rest_requests".to_owned(), rate),
        ("hibernated_requests".to_owned(), open as f64),
    ])
}

/// Returns the node, under the host name that the client used.
async fn nodes(
    State(state): State<HttpState>,
    Path(bucket): Path<String>,
    headers: HeaderMap,
) -> HandlerResult {
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

/// Returns the samples of this node, whatever its name in the path.
async fn node_stats(
    state: State<HttpState>,
    Path((bucket, _node)): Path<(String, String)>,
) -> HandlerResult {
    bucket_stats(state, Path(bucket)).await
}

/// Returns that there is no rebalance: a node alone moves nothing.
async fn rebalance() -> Response {
    answers::ok(&json!({ "status": "none" }))
}

async fn failover() -> Response {
    answers::ok(&json!({ "enabled": false, "timeout": 120, "count": 0, "maxCount": 1 }))
}

async fn set_failover(body: Bytes) -> Response {
    let off = [("enabled", "false")];
    let reason = "A replica becomes active when it is told to: settee promote";
    only(&body, &off, reason)
}
