//! Setup of a node that was started without an administrator: services, and the administrator.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use identity::{Directory, Grant, UserRecord};
use registry::{ClusterSettings, StandIn};
use serde_json::{Value, json};

use super::answers::{self, HandlerResult};
use super::form::{Form, field};
use super::node_settings;
use super::rbac::{check_name, check_password};
use crate::state::HttpState;
use crate::view::{ClusterChange, NodeView};

/// The public default password of tools.
const KNOWN_PASSWORD: &str = "password";
const CLOSED: &str = "The administrator is named already; POST /controller/changePassword changes \
                      its password.";
const STORAGE_MODES: [&str; 3] = ["forestdb", "memory_optimized", "plasma"];

/// Returns the routes that make sense only if a node stands in for services.
pub(super) fn routes() -> Router<HttpState> {
    Router::new()
        .route("/node/controller/setupServices", post(services))
        .route("/settings/indexes", post(indexes))
}

/// Returns the services for which the node may stand in: all of them, or none if it was not started so.
pub(super) fn may_stand_in(view: &dyn NodeView) -> &'static [StandIn] {
    if view.node().ports.query.is_some() {
        &StandIn::ALL
    } else {
        &[]
    }
}

/// Reads the services of a form beside KV; adds an error for unknown ones.
pub(super) fn read_services(form: &mut Form<'_>, may: &[StandIn]) -> BTreeSet<StandIn> {
    let services = field(form.body, "services").unwrap_or_default();
    let names: BTreeSet<&str> = services.split(',').map(str::trim).collect();
    let mut asked = BTreeSet::new();
    for name in &names {
        match StandIn::from_name(name) {
            _ if *name == "kv" => {}
            Some(one) if may.contains(&one) => {
                asked.insert(one);
            }
            _ => {
                let others: Vec<_> = may.iter().map(|one| one.name()).collect();
                let mut text = format!("Unknown services: [{name:?}]. Settee serves kv");
                if !others.is_empty() {
                    text = format!("{text}, and stands in for {}", others.join(", "));
                }
                form.complain("services", &format!("{text}."));
                return asked;
            }
        }
    }
    if !names.contains("kv") {
        let text = "Settee serves kv: it must be among the services.";
        form.complain("services", text);
    }
    asked
}

async fn services(State(state): State<HttpState>, body: Bytes) -> HandlerResult {
    let may = may_stand_in(&*state.view);
    let mut form = Form::new(&body);
    let asked = read_services(&mut form, may);
    form.refuse_unknown(&["services"]);
    if form.wrong.is_empty() {
        choose(&state, asked, &mut form).await?;
    }
    let texts: Vec<_> = form.wrong.values().cloned().collect();
    if texts.is_empty() {
        return Ok(StatusCode::OK.into_response());
    }
    Err(answers::json(StatusCode::BAD_REQUEST, &Value::Array(texts)))
}

/// Makes the node stand in for these services. They must be chosen before there is an administrator.
pub(super) async fn choose(
    state: &HttpState,
    asked: BTreeSet<StandIn>,
    form: &mut Form<'_>,
) -> Result<(), Response> {
    let ClusterSettings { stands_in_for, .. } = state.view.node().cluster;
    if may_stand_in(&*state.view).is_empty() || stands_in_for == asked {
        return Ok(());
    }
    if !state.view.is_open() {
        let text = "Services are chosen before the node has its administrator.";
        form.complain("services", text);
        return Ok(());
    }
    let change = ClusterChange {
        stands_in_for: Some(asked),
        ..ClusterChange::default()
    };
    node_settings::change(state, change).await
}

/// `POST /settings/indexes`: any storage mode of indexes is accepted, since it has no effect.
async fn indexes(State(state): State<HttpState>, body: Bytes) -> HandlerResult {
    let mut form = Form::new(&body);
    form.refuse_unknown(&["storageMode"]);
    let mode = field(&body, "storageMode").unwrap_or_default();
    let node = state.view.node();
    if node.ports.query.is_none() || !node.cluster.stands_in_for.contains(&StandIn::Index) {
        let text = "Settee has no indexes, and was not asked to stand in for them.";
        form.complain("storageMode", text);
    } else if !STORAGE_MODES.contains(&&*mode) {
        let text = format!("The value must be one of {}.", STORAGE_MODES.join(", "));
        form.complain("storageMode", &text);
    }
    answers::check_fields(&form.wrong)?;
    Ok(answers::ok(&json!({ "storageMode": mode })))
}

/// Adds errors for a name and a password that an administrator cannot have.
pub(super) fn check_new(form: &mut Form<'_>) {
    let name = field(form.body, "username").unwrap_or_default();
    check_name(form, "username", &name, "username");
    let password = field(form.body, "password").unwrap_or_default();
    check_password(form, &password);
}

/// Creates the administrator of an open node from a checked form. From then on the node asks for credentials, also
/// after a restart.
///
/// # Errors
/// Another request did so first, or the disk failed; then the node is still open.
pub(super) async fn close(state: &HttpState, body: &[u8]) -> HandlerResult {
    let name = field(body, "username").unwrap_or_default();
    let password = field(body, "password").unwrap_or_default();
    if password == KNOWN_PASSWORD {
        tracing::warn!(
            user = name,
            "the administrator's password is the public default: fit for tests only"
        );
    }
    let view = Arc::clone(&state.view);
    let done = state.users_turn.run(move || {
        if !view.is_open() {
            return Err((StatusCode::BAD_REQUEST, CLOSED.to_owned()));
        }
        let user = UserRecord {
            roles: Grant::parse("admin").into_iter().collect(),
            password: Some(view.identity().verifier(&name, password.as_bytes())),
            password_set_unix_s: u32::try_from(view.unix_ms() / 1000).unwrap_or(u32::MAX),
            ..UserRecord::default()
        };
        let edit = &mut |directory: &mut Directory| {
            directory.users.insert(&name, &user);
            true
        };
        let changed = view.change_users(edit);
        changed.map_err(|error| (error.status(), error.to_string()))?;
        // After a crash before this line there is a user, and the node is open: the call was not answered.
        let change = ClusterChange {
            provisioned: true,
            ..ClusterChange::default()
        };
        let changed = view.change_cluster(change);
        changed.map_err(|error| (error.status(), error.to_string()))?;
        tracing::info!(
            user = name,
            "the node has its administrator, and asks for credentials"
        );
        Ok(())
    });
    let done = done.await?;
    done.map_err(|(status, text)| answers::refusal(status, &text))?;
    Ok(StatusCode::OK.into_response())
}

/// Adds an error for credentials that do not belong to an existing administrator.
pub(super) fn check_known(form: &mut Form<'_>, view: &dyn NodeView) {
    const NAMED_AT_START: &str =
        "The administrator is named by --username and --password when the node is started.";
    let (name, password) = (field(form.body, "username"), field(form.body, "password"));
    let right = name.zip(password).is_some_and(|(name, password)| {
        let user = view.identity().authenticate(&name, password.as_bytes());
        user.is_some_and(|user| user.access.is_admin())
    });
    if !right {
        let named_over_http = view.node().ports.query.is_some();
        let text = if named_over_http {
            CLOSED
        } else {
            NAMED_AT_START
        };
        form.complain("_", text);
    }
}
