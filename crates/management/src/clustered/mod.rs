//! Management at a node of a cluster: answers that differ from those of a node alone.
//!
//! A request arrives here after its user was checked. If it does not concern the cluster, it goes on to the handlers of
//! a node alone. The agreed state is read from the node's view of etcd; orders go to the controller.

mod forms;
mod nodes;
mod orders;
mod request;

use axum::body::{Body, to_bytes};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::Response;
use identity::AuthenticatedUser;
use registry::{BUCKET_WAIT, ClusterStatus, makes_bucket};
use serde_json::{Value, json};
use tokio::time;

use crate::answers::{self, HandlerResult};
use crate::closing::stopped;
use crate::documents;
use crate::state::HttpState;
use crate::visible::visible;
use request::ClusterRequest;

/// Longest form of an order, bytes.
const FORM_BYTES_MAX: usize = 64 << 10;

/// Answers requests about the cluster, if the node is in one.
pub(super) async fn answer(
    State(state): State<HttpState>,
    request: Request,
    next: Next,
) -> HandlerResult {
    let path = request.extensions().get::<MatchedPath>().cloned();
    let (Some(member), Some(path)) = (state.view.cluster(), path) else {
        return Ok(next.run(request).await);
    };
    let asked = ClusterRequest {
        status: ClusterStatus::of(&*member),
        state,
        member,
    };
    let path = path.as_str();
    if request.method() == Method::GET {
        return asked.get(path, request, next).await;
    }
    if request.method() != Method::POST || !orders::is_one(path) {
        return Ok(next.run(request).await);
    }
    let body = to_bytes(request.into_body(), FORM_BYTES_MAX).await;
    let body =
        body.map_err(|_| answers::refusal(StatusCode::BAD_REQUEST, "The form is too long"))?;
    asked.order(path, &body).await
}

/// Answers a GET for a bucket that the cluster has and this node does not once the node has made it, as SELECT_BUCKET
/// does. If the node cannot make it the answer does not wait.
pub(super) async fn await_bucket(
    State(state): State<HttpState>,
    params: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let mut params = params.iter().flatten();
    let bucket = params.find(|(name, _)| *name == "bucket");
    let bucket = bucket.filter(|_| request.method() == Method::GET);
    let (Some(member), Some((_, bucket))) = (state.view.cluster(), bucket) else {
        return next.run(request).await;
    };
    let (parts, body) = request.into_parts();
    let again = Request::from_parts(parts.clone(), Body::empty());
    let answer = next.clone().run(Request::from_parts(parts, body)).await;
    if answer.status() != StatusCode::NOT_FOUND || !makes_bucket(&*member, bucket) {
        return answer;
    }
    let Some(mut changes) = state.view.config_changes(None) else {
        return answer;
    };
    let is_made = || state.view.bucket_config(bucket).is_some();
    let made = async { while !is_made() && changes.changed().await.is_ok() {} };
    let mut closing = state.closing.clone();
    tokio::select! {
        () = stopped(&mut closing) => {}
        _ = time::timeout(BUCKET_WAIT, made) => {}
    }
    next.run(again).await
}

impl ClusterRequest {
    async fn get(self, path: &str, request: Request, next: Next) -> HandlerResult {
        let headers = request.headers().clone();
        let user = request.extensions().get::<AuthenticatedUser>().cloned();
        let value = match path {
            "/pools/default" | "/pools/default/" => self.pool(user.as_ref()),
            "/pools/nodes" | "/pools/nodes/" => json!({
                "name": "default",
                "clusterName": self.status.cluster,
                "nodes": self.entries(user.as_ref()),
            }),
            "/nodes/self" => self.this_node(user.as_ref()),
            "/pools/default/serverGroups" => self.server_groups(),
            "/pools/default/terseClusterInfo" => json!({
                "clusterUUID": self.state.view.node().cluster_uuid,
                "orchestrator": self.orchestrator(),
                "isBalanced": self.status.is_balanced(),
                "clusterCompatVersion":
                    documents::cluster_compatibility(&self.state.view.node().compatible_version),
            }),
            "/pools/default/nodeStatuses" => self.node_statuses(),
            "/pools/default/tasks" => json!([self.rebalance_task()]),
            "/pools/default/rebalanceProgress" => self.rebalance_progress(),
            "/settings/autoFailover" => self.auto_failover(),
            "/pools/default/buckets"
            | "/pools/default/buckets/"
            | "/pools/default/buckets/{bucket}" => {
                let answer = next.run(request).await;
                return self.with_nodes(answer, &headers).await;
            }
            _ => return Ok(next.run(request).await),
        };
        Ok(answers::localized(&value, &headers))
    }

    fn pool(&self, user: Option<&AuthenticatedUser>) -> Value {
        let node = self.state.view.node();
        let buckets = user.map(|user| visible(&self.state, &user.access));
        let ready = self.state.view.ready().is_ok();
        let mut value = documents::pool(&node, ready, &buckets.unwrap_or_default());
        value["nodes"] = self.entries(user);
        value["clusterName"] = self.status.cluster.as_str().into();
        value["balanced"] = self.status.is_balanced().into();
        value["rebalanceStatus"] = self.rebalance_status().into();
        value
    }

    /// Replaces the one node in a node's own answer about buckets by all nodes.
    async fn with_nodes(self, answer: Response, headers: &HeaderMap) -> HandlerResult {
        if !answer.status().is_success() {
            return Ok(answer);
        }
        let (_, body) = answer.into_parts();
        let text = to_bytes(body, usize::MAX).await.unwrap_or_default();
        let mut value: Value = serde_json::from_slice(&text).unwrap_or_default();
        let set = |bucket: &mut Value| {
            let name = bucket["name"].as_str().unwrap_or_default();
            let nodes = self.nodes_of(name);
            bucket["nodes"] = nodes;
        };
        match &mut value {
            Value::Array(all) => all.iter_mut().for_each(set),
            one => set(one),
        }
        Ok(answers::localized(&value, headers))
    }
}
