//! Audit events of requests: a table of the requests that change something, and failed logins.

use audit::{Event, Line, Origin, Stamp, User};
use axum::body::{Body, to_bytes};
use axum::extract::rejection::RawPathParamsRejection;
use axum::extract::{MatchedPath, RawPathParams, Request, State};
use axum::http::Method;
use axum::middleware::Next;
use axum::response::Response;
use identity::AuthenticatedUser;
use serde_json::{Map, Value};

use super::form::fields;
use super::peer::{OnBehalf, Peer};
use super::state::HttpState;
use super::view::NodeView;
use crate::requests::{Requests, find};

/// The events of successful requests. There is none for collections.
pub(super) const RECORDED: &Requests<Event> = &[
    (Event::DcpOpened, &["GET /changes/{bucket}"]),
    (
        Event::BucketCreated,
        &[
            "POST /pools/default/buckets",
            "POST /pools/default/buckets/",
        ],
    ),
    (
        Event::BucketModified,
        &[
            "POST /pools/default/buckets/{bucket}",
            "POST,PUT /pools/default/buckets/{bucket}/scopes",
            "DELETE /pools/default/buckets/{bucket}/scopes/{scope}",
            "POST /pools/default/buckets/{bucket}/scopes/{scope}/collections",
            "DELETE,PATCH /pools/default/buckets/{bucket}/scopes/{scope}/collections/{collection}",
        ],
    ),
    (
        Event::BucketDeleted,
        &["DELETE /pools/default/buckets/{bucket}"],
    ),
    (
        Event::BucketFlushed,
        &["POST /pools/default/buckets/{bucket}/controller/doFlush"],
    ),
    (
        Event::UserSet,
        &["PUT /settings/rbac/users/{domain}/{user}"],
    ),
    (
        Event::UserDeleted,
        &["DELETE /settings/rbac/users/{domain}/{user}"],
    ),
    (Event::GroupSet, &["PUT /settings/rbac/groups/{group}"]),
    (
        Event::GroupDeleted,
        &["DELETE /settings/rbac/groups/{group}"],
    ),
    (
        Event::CredentialsChanged,
        &["POST /controller/changePassword"],
    ),
    (Event::AuditSettings, &["POST /settings/audit"]),
    (
        Event::CertificateReloaded,
        &["POST /node/controller/reloadCertificate"],
    ),
];

/// Calls that change nothing although their method could.
pub(super) const UNRECORDED: &[&str] = &[
    "/pools/default/checkPermissions",
    "/pools/default/buckets/{bucket}/scopes/@ensureManifest/{uid}",
    "/pools/default/buckets/{bucket}/controller/{*path}",
];

/// Returns the event of a successful request. A request that may change something and has no row is a change of the
/// cluster.
fn event_of(method: &Method, path: &str) -> Option<Event> {
    let recorded = find(RECORDED, method.as_str(), path);
    let changes = !method.is_safe() && !UNRECORDED.contains(&path);
    recorded.or_else(|| changes.then_some(Event::ClusterSettings))
}

/// Records a request that changed something. Runs after the body was read.
pub(super) async fn record(
    State(state): State<HttpState>,
    peer: Peer,
    parameters: Result<RawPathParams, RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let event = path.and_then(|path| event_of(request.method(), path.as_str()));
    let recorder = state.view.audit();
    // A request that enables the audit is recorded, too.
    let candidate = event.filter(|event| recorder.is_on() || *event == Event::AuditSettings);
    let (Some(event), Ok(parameters)) = (candidate, parameters) else {
        return next.run(request).await;
    };
    let (head, body) = request.into_parts();
    let path = head.uri.path().to_owned();
    let user = head.extensions.get::<AuthenticatedUser>().cloned();
    let behalf = head.extensions.get::<OnBehalf>().cloned();
    // The body was read already, up to its limit.
    let body = to_bytes(body, usize::MAX).await.unwrap_or_default();
    let form = body.clone();
    let response = next.run(Request::from_parts(head, Body::from(body))).await;
    let (true, Some(user)) = (response.status().is_success(), user) else {
        return response;
    };
    let of = match &behalf {
        Some(behalf) => (user_of(&behalf.real), Some(user_of(&user))),
        None => (user_of(&user), None),
    };
    write(&*state.view, &peer, of, event, |line| {
        let mut line = line.text("path", path.as_bytes());
        for (name, value) in &parameters {
            let named = if name == "domain" {
                name
            } else {
                &format!("{name}_name")
            };
            line = line.text(named, value.as_bytes());
        }
        match props(&form) {
            Value::Object(props) if props.is_empty() => line,
            props => line.value("props", &props),
        }
    });
    response
}

/// Records a failed login. Without a name, the request had no credentials, or they were judged by another node.
pub(super) fn login_failed(state: &HttpState, peer: &Peer, name: Option<&str>) {
    let rejected = User {
        domain: "rejected",
        name: name.unwrap_or_default(),
    };
    let of = (rejected, None);
    write(&*state.view, peer, of, Event::LoginFailure, |line| line);
}

/// Records that the certificate of a peer is refused or missing.
pub(super) fn certificate_problem(view: &dyn NodeView, peer: &Peer, reason: &str) {
    let unknown = User {
        domain: "unknown",
        name: "",
    };
    let of = (unknown, None);
    write(view, peer, of, Event::CertificateProblem, |line| {
        line.text("reason", reason.as_bytes())
    });
}

/// Writes an event of a user, or of a user on behalf of another one.
fn write(
    view: &dyn NodeView,
    peer: &Peer,
    (user, effective): (User<'_>, Option<User<'_>>),
    event: Event,
    fill: impl FnOnce(Line<'_>) -> Line<'_>,
) {
    let recorder = view.audit();
    if !recorder.wants_of(event, user.domain, user.name) {
        return;
    }
    let ends = (peer.ends.map(|ends| ends.0), peer.ends.map(|ends| ends.1));
    let origin = Origin::new(ends, user, effective);
    let unix_ns = view.unix_ms() * 1_000_000;
    let mut out = Vec::new();
    fill(Line::begin(
        &mut out,
        event,
        (&mut Stamp::default(), unix_ns),
        &origin,
    ))
    .end();
    recorder.submit(out, 1);
}

/// Converts a user. The administrator of the configuration has a domain of its own, as in the reference server.
fn user_of(user: &AuthenticatedUser) -> User<'_> {
    User {
        domain: if user.built_in { "builtin" } else { "local" },
        name: &user.name,
    }
}

/// Returns the fields of a form without secrets.
fn props(body: &[u8]) -> Value {
    let secret = |name: &str| name.to_ascii_lowercase().contains("password");
    let shown = fields(body).filter(|(name, _)| !secret(name));
    let shown: Map<String, Value> = shown.map(|(name, value)| (name, value.into())).collect();
    Value::Object(shown)
}
