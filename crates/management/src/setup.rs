//! The calls by which scripts set a new cluster up.
//!
//! A node is set up by how it is started; over HTTP it gets a name and a quota for all buckets. Else a
//! call that asks for what already holds is answered as if it had been done, so that scripts go on;
//! any other is refused with how to get what it asks for.

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use registry::cluster_map::localize;
use serde_json::{Map, Value, json};

use super::buckets::QUOTA_MIB_MAX;
use super::form::{field, fields, refuse_unknown};
use super::host::requested_host;
use super::{answers, documents};
use crate::state::HttpState;
use crate::view::{BucketsError, ClusterChange, NodeView};

/// What is wrong with the fields of a form, by field.
type SetupErrors = Map<String, Value>;

const NAME_BYTES_MAX: usize = 256;
const CLUSTER_FIELDS: [&str; 2] = ["clusterName", "memoryQuota"];
/// Clients name the node by the host that they used, so any `hostname` is right.
const INIT_FIELDS: [&str; 8] = [
    "clusterName",
    "hostname",
    "memoryQuota",
    "password",
    "port",
    "sendStats",
    "services",
    "username",
];

const NAMED_AT_START: &str =
    "The administrator is named by --username and --password when the node is started.";

/// The calls that set up and the reads that go with them.
pub(super) fn routes() -> Router<HttpState> {
    Router::new()
        .route("/node/controller/rename", post(rename))
        .route("/node/controller/setupServices", post(services))
        .route(
            "/node/controller/setupAlternateAddresses/external",
            any(alternate_addresses),
        )
        .route("/settings/web", get(web).post(credentials))
        .route("/settings/stats", get(reports).post(set_reports))
        .route("/clusterInit", post(init))
        .route("/pools/default/tasks", get(tasks))
        .route("/nodes/self", get(node))
}

/// `GET /pools` without credentials: that there is a node, and of which level. Scripts and
/// containers ask it to see whether the node has started.
pub(super) fn hello(view: &dyn NodeView) -> Response {
    let node = view.node();
    let value = json!({
        "isAdminCreds": false,
        "isROAdminCreds": false,
        "isEnterprise": false,
        "pools": [],
        "implementationVersion": node.compatible_version,
    });
    answers::json(StatusCode::OK, &value)
}

/// `POST /pools/default`: the name and the quota of a cluster.
pub(super) async fn cluster(State(state): State<HttpState>, body: Bytes) -> Response {
    let mut wrong = SetupErrors::new();
    let change = read_cluster(&body, &mut wrong);
    refuse_unknown(&body, &CLUSTER_FIELDS, &mut wrong);
    change_cluster(&state, change, &mut wrong).await;
    done(&wrong, StatusCode::OK.into_response())
}

/// Makes the change if nothing is wrong, away from the thread that serves connections.
async fn change_cluster(state: &HttpState, change: ClusterChange, wrong: &mut SetupErrors) {
    if !wrong.is_empty() || change == ClusterChange::default() {
        return;
    }
    let view = Arc::clone(&state.view);
    let changed = tokio::task::spawn_blocking(move || view.change_cluster(change)).await;
    let (about, text) = match changed {
        Ok(Ok(())) => return,
        Ok(Err(error @ BucketsError::QuotaTooSmall(_))) => ("memoryQuota", error.to_string()),
        Ok(Err(error)) => ("_", error.to_string()),
        Err(_) => ("_", "the change was cut short".to_owned()),
    };
    wrong.insert(about.into(), text.into());
}

/// Clients name the node by the host that they used, so any name is right.
async fn rename(body: Bytes) -> Response {
    match field(&body, "hostname") {
        Some(_) => StatusCode::OK.into_response(),
        None => answers::json(
            StatusCode::BAD_REQUEST,
            &json!(["The hostname is missing."]),
        ),
    }
}

async fn services(body: Bytes) -> Response {
    let mut wrong = SetupErrors::new();
    check_services(&body, &mut wrong);
    let texts: Vec<_> = wrong.values().cloned().collect();
    if texts.is_empty() {
        return StatusCode::OK.into_response();
    }
    answers::json(StatusCode::BAD_REQUEST, &Value::Array(texts))
}

async fn alternate_addresses() -> Response {
    let text = "Other addresses of a node are not supported by Settee yet: publish its ports \
                under their own numbers.";
    answers::refusal(StatusCode::NOT_IMPLEMENTED, text)
}

async fn web(State(state): State<HttpState>) -> Response {
    let port = state.view.node().ports.http;
    answers::json(StatusCode::OK, &json!({ "port": port }))
}

async fn credentials(State(state): State<HttpState>, head: HeaderMap, body: Bytes) -> Response {
    let mut wrong = SetupErrors::new();
    check_credentials(&body, &*state.view, &mut wrong);
    done(&wrong, base_uri(&state, &head))
}

/// Settee sends no reports.
async fn reports() -> Response {
    answers::json(StatusCode::OK, &json!({ "sendStats": false }))
}

async fn set_reports(body: Bytes) -> Response {
    let mut wrong = SetupErrors::new();
    check_reports(&body, &mut wrong);
    done(&wrong, StatusCode::OK.into_response())
}

/// All of it in one call.
async fn init(State(state): State<HttpState>, head: HeaderMap, body: Bytes) -> Response {
    let mut wrong = SetupErrors::new();
    check_credentials(&body, &*state.view, &mut wrong);
    if field(&body, "services").is_some() {
        check_services(&body, &mut wrong);
    }
    check_reports(&body, &mut wrong);
    let change = read_cluster(&body, &mut wrong);
    refuse_unknown(&body, &INIT_FIELDS, &mut wrong);
    change_cluster(&state, change, &mut wrong).await;
    done(&wrong, base_uri(&state, &head))
}

/// Nothing that goes on for long is started over HTTP.
async fn tasks() -> Response {
    let idle = json!([{ "type": "rebalance", "status": "notRunning", "statusIsStale": false }]);
    answers::json(StatusCode::OK, &idle)
}

async fn node(State(state): State<HttpState>, head: HeaderMap) -> Response {
    let view = &state.view;
    let value = documents::this_node(&view.node(), view.ready().is_ok());
    let host = requested_host(&head);
    let text = localize(&value.to_string(), host.as_deref());
    answers::json_text(StatusCode::OK, text)
}

fn base_uri(state: &HttpState, head: &HeaderMap) -> Response {
    let uri = format!("http://$HOST:{}/", state.view.node().ports.http);
    let text = json!({ "newBaseUri": uri }).to_string();
    let host = requested_host(head);
    answers::json_text(StatusCode::OK, localize(&text, host.as_deref()))
}

fn done(wrong: &SetupErrors, good: Response) -> Response {
    if wrong.is_empty() {
        return good;
    }
    answers::json(StatusCode::BAD_REQUEST, &json!({ "errors": wrong }))
}

fn check_services(body: &[u8], wrong: &mut SetupErrors) {
    let services = field(body, "services").unwrap_or_default();
    let mut other = services.split(',').filter(|name| name.trim() != "kv");
    if let Some(name) = other.next() {
        let text = format!("Unknown services: [{name:?}]. Settee serves kv.");
        wrong.insert("services".into(), text.into());
    }
}

fn read_cluster(body: &[u8], wrong: &mut SetupErrors) -> ClusterChange {
    let mut change = ClusterChange::default();
    for (field, value) in fields(body) {
        match &*field {
            "clusterName" if value.len() > NAME_BYTES_MAX => {
                let text = format!("A name may have {NAME_BYTES_MAX} bytes.");
                wrong.insert(field, text.into());
            }
            "clusterName" => change.name = Some(value),
            "memoryQuota" => match value.parse() {
                Ok(mib) if mib <= QUOTA_MIB_MAX => change.memory_quota_mib = Some(mib),
                _ => {
                    wrong.insert(field, "The value must be an integer, MiB".into());
                }
            },
            other if other.ends_with("MemoryQuota") => {
                wrong.insert(field, "Settee serves kv only.".into());
            }
            _ => {}
        }
    }
    change
}

fn check_credentials(body: &[u8], view: &dyn NodeView, wrong: &mut SetupErrors) {
    let (name, password) = (field(body, "username"), field(body, "password"));
    let known = name
        .zip(password)
        .and_then(|(name, password)| view.authenticate(&name, password.as_bytes()));
    if known.is_none() {
        wrong.insert("_".into(), NAMED_AT_START.into());
    }
    let here = view.node().ports.http.to_string();
    let port = field(body, "port");
    if port.is_some_and(|port| port != "SAME" && port != here) {
        let text = "The port is named by --http-port when the node is started.";
        wrong.insert("port".into(), text.into());
    }
}

fn check_reports(body: &[u8], wrong: &mut SetupErrors) {
    if field(body, "sendStats").is_some_and(|send| send == "true") {
        wrong.insert(
            "sendStats".into(),
            "Settee reports nothing to anybody.".into(),
        );
    }
}
