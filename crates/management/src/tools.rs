//! Calls of command-line tools: settings with a fixed value, actions on a bucket's files, and calls of services and
//! clusters that are refused with a reason.

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use registry::cluster_map::SERVER_GROUP;
use serde_json::{Value, json};

use super::answers::{self, HandlerResult};
use super::buckets;
use super::documents;
use super::form::{FieldErrors, fields};
use crate::state::HttpState;
use crate::view::BucketChange;

/// A setting with a fixed value.
struct FixedSetting {
    path: &'static str,
    /// Answer to a read, JSON text.
    shown: &'static str,
    /// Accepted fields, with their fixed values.
    taken: &'static [(&'static str, &'static str)],
    /// Reason to refuse other values.
    reason: &'static str,
}

static FIXED: &[FixedSetting] = &[
    FixedSetting {
        path: "/settings/alerts",
        shown: r#"{"enabled":false,"recipients":[],"sender":"","alerts":[],"pop_up_alerts":[],
            "emailServer":{"user":"","pass":"","host":"","port":25,"encrypt":false}}"#,
        taken: &[("enabled", "false")],
        reason: "Settee sends no mails: read its log and /metrics",
    },
    FixedSetting {
        path: "/settings/autoReprovision",
        shown: r#"{"enabled":false,"max_nodes":1,"count":0}"#,
        taken: &[("enabled", "false")],
        reason: "A cluster elects active copies; elsewhere a replica becomes active with settee promote",
    },
    FixedSetting {
        path: "/settings/passwordPolicy",
        shown: r#"{"minLength":6,"enforceUppercase":false,"enforceLowercase":false,"enforceDigits":false,
            "enforceSpecialChars":false}"#,
        taken: &[
            ("minLength", "6"),
            ("enforceUppercase", "false"),
            ("enforceLowercase", "false"),
            ("enforceDigits", "false"),
            ("enforceSpecialChars", "false"),
        ],
        reason: "Passwords have six characters at least, and no other rule",
    },
    FixedSetting {
        path: "/settings/security",
        shown: r#"{"disableUIOverHttp":true,"disableUIOverHttps":true,"tlsMinVersion":"tlsv1.2","honorCipherOrder":true,
            "cipherSuites":[],"clusterEncryptionLevel":"control"}"#,
        taken: &[
            ("disableUIOverHttp", "true"),
            ("disableUIOverHttps", "true"),
            ("tlsMinVersion", "tlsv1.2"),
        ],
        reason: "There is no web console, and what TLS is served with is named when the node is started",
    },
    FixedSetting {
        path: "/settings/rebalance",
        shown: r#"{"rebalanceMovesPerNode":2}"#,
        taken: &[("rebalanceMovesPerNode", "2")],
        reason: "A rebalance of a cluster fills two vBuckets of a node at a time",
    },
    FixedSetting {
        path: "/settings/retryRebalance",
        shown: r#"{"enabled":false,"afterTimePeriod":300,"maxAttempts":1}"#,
        taken: &[("enabled", "false")],
        reason: "A rebalance that pauses goes on when it is told to: settee cluster rebalance",
    },
    FixedSetting {
        path: "/settings/developerPreview",
        shown: r#"{"enabled":false}"#,
        taken: &[("enabled", "false")],
        reason: "Settee has no features that are switched on apart",
    },
    FixedSetting {
        path: "/settings/logRedaction",
        shown: r#"{"logRedactionLevel":"none"}"#,
        taken: &[("logRedactionLevel", "none")],
        reason: "Keys and values are not in the log",
    },
];

const LDAP: &str =
    "Users of other directories (LDAP, SAML, PAM) are not supported: make local ones";
const ONE_NODE: &str = "A node is a cluster of its own; others follow it with --replica-of and take over with settee promote";
const XDCR: &str = "Settee replicates to another node with the command settee replicate";
const NO_SERVICE: &str = "Settee has no such service: it serves documents alone";

/// Calls that are refused with all methods, and the reason.
static REFUSED: &[(&str, &str)] = &[
    ("/settings/ldap", LDAP),
    ("/settings/saml", LDAP),
    ("/settings/replications", XDCR),
    ("/settings/replications/{*path}", XDCR),
    ("/controller/createReplication", XDCR),
    ("/settings/querySettings", NO_SERVICE),
    ("/settings/analytics", NO_SERVICE),
    ("/controller/addNode", ONE_NODE),
    ("/controller/ejectNode", ONE_NODE),
    ("/controller/failOver", ONE_NODE),
    ("/controller/startGracefulFailover", ONE_NODE),
    ("/controller/reAddNode", ONE_NODE),
    ("/controller/setRecoveryType", ONE_NODE),
    ("/controller/rebalance", ONE_NODE),
    ("/controller/stopRebalance", ONE_NODE),
    ("/node/controller/doJoinCluster", ONE_NODE),
];

/// Returns the routes for the node.
pub(super) fn routes() -> Router<HttpState> {
    let mut routes = Router::new()
        .route("/nodes/self/controller/settings", post(paths))
        .route("/node/controller/setupNetConfig", post(listeners))
        .route("/node/controller/enableExternalListener", post(listeners))
        .route("/node/controller/disableExternalListener", post(listeners))
        .route(
            "/node/controller/disableUnusedExternalListeners",
            post(listeners),
        )
        .route("/pools/default/serverGroups", get(groups))
        .route(
            "/pools/default/remoteClusters",
            get(remotes).post(no_remote),
        )
        .route("/pools/default/terseClusterInfo", get(terse))
        .route("/pools/default/nodeStatuses", get(statuses))
        .route("/versions", get(versions));
    for fixed in FIXED {
        routes = routes.route(fixed.path, setting(fixed));
    }
    for (path, reason) in REFUSED {
        let refuse = async || refused(reason);
        routes = routes.route(path, get(refuse).post(refuse));
    }
    routes
}

/// Returns the routes for a bucket.
pub(super) fn bucket_routes(bucket: &str) -> Router<HttpState> {
    let at = |what: &str| format!("{bucket}/controller/{what}");
    Router::new()
        .route(&at("compactBucket"), post(compact))
        .route(&at("compactDatabases"), post(compact))
        .route(&at("compactViews"), post(async || StatusCode::OK))
}

fn refused(reason: &str) -> Response {
    answers::refusal(StatusCode::BAD_REQUEST, reason)
}

fn setting(fixed: &'static FixedSetting) -> MethodRouter<HttpState> {
    let show = async || answers::json_text(StatusCode::OK, fixed.shown);
    let take = async move |body: Bytes| only(&body, fixed.taken, fixed.reason);
    get(show).post(take)
}

/// Accepts fields that have the fixed values only.
pub(super) fn only(body: &[u8], fixed: &[(&str, &str)], reason: &str) -> Response {
    only_if(body, |name, value| fixed.contains(&(name, value)), reason)
}

fn only_if(body: &[u8], is_fixed: impl Fn(&str, &str) -> bool, reason: &str) -> Response {
    let others = fields(body).filter(|(name, value)| !is_fixed(name, value));
    let wrong: FieldErrors = others.map(|(name, _)| (name, reason.into())).collect();
    answers::check_fields(&wrong).map_or_else(Response::from, IntoResponse::into_response)
}

/// Starts a compaction of every vBucket, like `COMPACT_DB`; the answer does not wait for it.
async fn compact(State(state): State<HttpState>, Path(bucket): Path<String>) -> HandlerResult {
    buckets::change(state, BucketChange::Compact(bucket)).await
}

/// Accepts the current paths only: the start options set them.
async fn paths(State(state): State<HttpState>, body: Bytes) -> Response {
    let path = state.view.node().data_path;
    let is_fixed = |name: &str, value: &str| {
        let is_path = name == "path" || name.ends_with("_path");
        is_path && (value.is_empty() || value == path)
    };
    let reason = format!("The data is in {path}: --data-dir names another place");
    only_if(&body, is_fixed, &reason)
}

/// Accepts the current listeners only: the start options set addresses and TLS, and `--replica-of` sets links between
/// nodes.
async fn listeners(body: Bytes) -> Response {
    let fixed = [
        ("afamily", "ipv4"),
        ("afamily", "ipv6"),
        ("nodeEncryption", "off"),
    ];
    only(
        &body,
        &fixed,
        "The node listens where --listen says, and with TLS where ports for it are named",
    )
}

async fn groups(State(state): State<HttpState>, headers: HeaderMap) -> Response {
    let nodes = documents::nodes(&state.view.node(), state.view.ready().is_ok(), &[]);
    let group = json!({ "name": SERVER_GROUP, "uri": "/pools/default/serverGroups/0", "nodes": nodes["nodes"] });
    let value = json!({ "groups": [group], "uri": "/pools/default/serverGroups?rev=0" });
    answers::localized(&value, &headers)
}

async fn remotes() -> Response {
    answers::ok(&json!([]))
}

async fn no_remote() -> Response {
    refused(XDCR)
}

async fn terse(State(state): State<HttpState>) -> Response {
    let node = state.view.node();
    answers::ok(&json!({
        "clusterUUID": node.cluster_uuid,
        "orchestrator": "ns_1@127.0.0.1",
        "isBalanced": true,
        "clusterCompatVersion": documents::cluster_compatibility(&node.compatible_version),
    }))
}

async fn statuses(State(state): State<HttpState>, headers: HeaderMap) -> Response {
    let node = state.view.node();
    let status = documents::health(state.view.ready().is_ok());
    let name = format!("$HOST:{}", node.ports.http);
    let value = json!({ name: {
        "status": status,
        "gracefulFailoverPossible": false,
        "otpNode": "ns_1@$HOST",
        "replication": 1.0,
    }});
    answers::localized(&value, &headers)
}

async fn versions(State(state): State<HttpState>) -> Response {
    let node = state.view.node();
    let value: Value = documents::pools(&node, false);
    answers::ok(&json!({
        "implementationVersion": value["implementationVersion"],
        "componentsVersion": value["componentsVersion"],
    }))
}
