//! The calls with which scripts set up a new cluster.
//!
//! A node is set up by its start options, or it waits for its administrator (`provision`). Over HTTP it gets a name and
//! a quota for all buckets. Other calls succeed if they ask for the current state, so that scripts continue; else they
//! are refused, with advice on how to get the state.

use std::collections::BTreeSet;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post, put};
use registry::cluster_map::AlternateAddress;
use registry::{StandIn, is_host};
use serde_json::json;

use super::answers::{self, HandlerResult};
use super::bucket_form::QUOTA_MIB_MAX;
use super::form::{FieldErrors, Form, field, fields, flag};
use super::{node_settings, provision};
use crate::state::HttpState;
use crate::view::{ClusterChange, NodeView};

const NAME_BYTES_MAX: usize = 256;
const CLUSTER_FIELDS: [&str; 4] = [
    "clusterName",
    "ftsMemoryQuota",
    "indexMemoryQuota",
    "memoryQuota",
];
const WEB_FIELDS: [&str; 3] = ["password", "port", "username"];
/// Fields of the call. Clients name the node by the host that they used, so any `hostname` is accepted.
const INIT_FIELDS: [&str; 10] = [
    "clusterName",
    "ftsMemoryQuota",
    "hostname",
    "indexMemoryQuota",
    "memoryQuota",
    "password",
    "port",
    "sendStats",
    "services",
    "username",
];

/// Returns the routes of setup calls and the reads that belong to them.
pub(super) fn routes() -> Router<HttpState> {
    Router::new()
        .route("/node/controller/rename", post(rename))
        .route(
            "/node/controller/setupAlternateAddresses/external",
            put(set_external).delete(drop_external),
        )
        .route("/settings/web", get(web).post(credentials))
        .route("/settings/stats", get(reports).post(set_reports))
        .route("/clusterInit", post(init))
        .route("/pools/default/tasks", get(tasks))
}

/// `GET /pools` without credentials: returns that there is a node, and its level. Scripts and containers use it to see
/// whether the node has started.
pub(super) fn hello(view: &dyn NodeView) -> Response {
    let node = view.node();
    let value = json!({
        "isAdminCreds": false,
        "isROAdminCreds": false,
        "isEnterprise": false,
        "pools": [],
        "implementationVersion": node.compatible_version,
    });
    answers::ok(&value)
}

/// `POST /pools/default`: sets the name and the quota of a cluster.
pub(super) async fn cluster(State(state): State<HttpState>, body: Bytes) -> HandlerResult {
    let mut form = Form::new(&body);
    let asked = state.view.node().cluster.stands_in_for;
    let change = read_cluster(&mut form, &asked);
    form.refuse_unknown(&CLUSTER_FIELDS);
    answers::check_fields(&form.wrong)?;
    if change != ClusterChange::default() {
        node_settings::change(&state, change).await?;
    }
    Ok(StatusCode::OK.into_response())
}

/// Accepts any name for a node alone: clients name it by the host that they used. A node of a cluster has the host that
/// it advertises.
async fn rename(State(state): State<HttpState>, body: Bytes) -> Response {
    let Some(name) = field(&body, "hostname") else {
        return answers::json(
            StatusCode::BAD_REQUEST,
            &json!(["The hostname is missing."]),
        );
    };
    let member = state.view.cluster();
    match member.map(|member| member.described().inside.host.clone()) {
        Some(host) if host != name => {
            let why = format!(
                "A node of a cluster has the host that it advertises, {host}. Start it with --advertise {name} for another one."
            );
            answers::json(StatusCode::BAD_REQUEST, &json!([why]))
        }
        _ => StatusCode::OK.into_response(),
    }
}

/// `PUT /node/controller/setupAlternateAddresses/external`: sets a host, and ports that differ from the node's own.
async fn set_external(State(state): State<HttpState>, body: Bytes) -> HandlerResult {
    let mut external = AlternateAddress::default();
    let mut form = Form::new(&body);
    let node = state.view.node();
    let asked = node.cluster.stands_in_for.iter();
    let asked: Vec<_> = asked.filter(|_| node.ports.query.is_some()).collect();
    for (name, value) in fields(&body) {
        let over_tls = name.strip_suffix("SSL");
        let stand_in = StandIn::from_name(over_tls.unwrap_or(&name));
        let stand_in = stand_in.filter(|one| asked.contains(&one));
        match (&*name, value.parse::<u16>()) {
            ("hostname", _) => external.hostname = value,
            // Stand-ins have no port with TLS.
            (_, Ok(port @ 1..)) if stand_in.is_some() => {
                if over_tls.is_none() {
                    external.ports.insert(name, port);
                }
            }
            ("kv" | "kvSSL" | "mgmt" | "mgmtSSL", Ok(port @ 1..)) => {
                external.ports.insert(name, port);
            }
            // Port of views; tools send it with that of KV.
            ("capi" | "capiSSL", Ok(1..)) => {}
            ("kv" | "kvSSL" | "mgmt" | "mgmtSSL" | "capi" | "capiSSL", _) => {
                form.complain(&name, "The value must be a port, 1 to 65535");
            }
            _ => form.complain(&name, "Settee serves kv and mgmt only."),
        }
    }
    if !is_host(&external.hostname) {
        form.complain("hostname", "The value must be a host");
    }
    change_external(&state, Some(external), &form.wrong).await
}

async fn drop_external(State(state): State<HttpState>) -> HandlerResult {
    change_external(&state, None, &FieldErrors::new()).await
}

async fn change_external(
    state: &HttpState,
    external: Option<AlternateAddress>,
    wrong: &FieldErrors,
) -> HandlerResult {
    answers::check_fields(wrong)?;
    node_settings::run(state, |view| view.set_external_address(external)).await?;
    Ok(StatusCode::OK.into_response())
}

async fn web(State(state): State<HttpState>) -> Response {
    let port = state.view.node().ports.http;
    answers::ok(&json!({ "port": port }))
}

async fn credentials(
    State(state): State<HttpState>,
    head: HeaderMap,
    body: Bytes,
) -> HandlerResult {
    let mut form = Form::new(&body);
    let was_open = check_administrator(&mut form, &*state.view);
    form.refuse_unknown(&WEB_FIELDS);
    answers::check_fields(&form.wrong)?;
    if was_open {
        provision::close(&state, &body).await?;
    }
    Ok(base_uri(&state, &head))
}

/// Settee sends no reports.
async fn reports() -> Response {
    answers::ok(&json!({ "sendStats": false }))
}

async fn set_reports(body: Bytes) -> HandlerResult {
    let mut form = Form::new(&body);
    check_reports(&mut form);
    answers::check_fields(&form.wrong)?;
    Ok(StatusCode::OK.into_response())
}

/// `POST /clusterInit`: does the whole setup in one call.
async fn init(State(state): State<HttpState>, head: HeaderMap, body: Bytes) -> HandlerResult {
    let mut form = Form::new(&body);
    let was_open = check_administrator(&mut form, &*state.view);
    let mut asked = state.view.node().cluster.stands_in_for;
    if field(&body, "services").is_some() {
        let may = provision::may_stand_in(&*state.view);
        asked = provision::read_services(&mut form, may);
    }
    check_reports(&mut form);
    let change = read_cluster(&mut form, &asked);
    form.refuse_unknown(&INIT_FIELDS);
    answers::check_fields(&form.wrong)?;
    if change != ClusterChange::default() {
        node_settings::change(&state, change).await?;
    }
    provision::choose(&state, asked, &mut form).await?;
    answers::check_fields(&form.wrong)?;
    if was_open {
        provision::close(&state, &body).await?;
    }
    Ok(base_uri(&state, &head))
}

/// Returns no running task: no long work is started over HTTP.
async fn tasks() -> Response {
    let idle = json!([{ "type": "rebalance", "status": "notRunning", "statusIsStale": false }]);
    answers::ok(&idle)
}

fn base_uri(state: &HttpState, head: &HeaderMap) -> Response {
    let uri = format!("http://$HOST:{}/", state.view.node().ports.http);
    answers::localized(&json!({ "newBaseUri": uri }), head)
}

fn read_cluster(form: &mut Form<'_>, asked: &BTreeSet<StandIn>) -> ClusterChange {
    let mut change = ClusterChange::default();
    let no_number = "The value must be an integer, MiB";
    for (field, value) in fields(form.body) {
        match &*field {
            "clusterName" if value.len() > NAME_BYTES_MAX => {
                form.complain(&field, &format!("A name may have {NAME_BYTES_MAX} bytes."));
            }
            "clusterName" => change.name = Some(value),
            "memoryQuota" => match value.parse() {
                Ok(mib) if mib <= QUOTA_MIB_MAX => change.memory_quota_mib = Some(mib),
                _ => form.complain(&field, no_number),
            },
            other => {
                let service = other.strip_suffix("MemoryQuota");
                let known = service.and_then(StandIn::from_name);
                // A stand-in takes no memory.
                let was_asked = known.is_some_and(|one| asked.contains(&one));
                if was_asked && value.parse::<u64>().is_err() {
                    form.complain(&field, no_number);
                } else if service.is_some() && !was_asked {
                    form.complain(&field, "Settee serves kv only.");
                }
            }
        }
    }
    change
}

/// Adds errors for credentials that are not those of an administrator, or cannot be the first one's. Returns whether
/// the node was open: only then the credentials are those of a user to create.
fn check_administrator(form: &mut Form<'_>, view: &dyn NodeView) -> bool {
    let is_open = view.is_open();
    if is_open {
        provision::check_new(form);
    } else {
        provision::check_known(form, view);
    }
    let here = view.node().ports.http.to_string();
    let port = field(form.body, "port");
    if port.is_some_and(|port| port != "SAME" && port != here) {
        let text = "The port is named by --http-port when the node is started.";
        form.complain("port", text);
    }
    is_open
}

fn check_reports(form: &mut Form<'_>) {
    let text = match field(form.body, "sendStats").map(|text| flag(&text)) {
        Some(Ok(true)) => "Settee reports nothing to anybody.",
        Some(Err(text)) => text,
        Some(Ok(false)) | None => return,
    };
    form.complain("sendStats", text);
}
