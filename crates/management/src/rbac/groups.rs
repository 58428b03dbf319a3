//! Groups of users.

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, State};
use identity::{AuthenticatedUser, Directory, GroupRecord, Identity};
use serde_json::{Value, json};

use super::change::{Refused, change, check_power};
use super::{fields, roles};
use crate::answers::{self, HandlerResult};
use crate::form::{Form, field};
use crate::state::HttpState;

const UNKNOWN: &str = "Unknown group.";
const FIELDS: [&str; 3] = ["description", "ldap_group_ref", "roles"];

fn group_json(name: &str, group: &GroupRecord) -> Value {
    let roles: Vec<Value> = group.roles.iter().map(roles::role_json).collect();
    let mut answer = json!({ "id": name, "description": group.description, "roles": roles });
    if !group.ldap_group_ref.is_empty() {
        answer["ldap_group_ref"] = group.ldap_group_ref.clone().into();
    }
    answer
}

/// `GET /settings/rbac/groups`
pub(super) async fn list(State(state): State<HttpState>) -> HandlerResult {
    let directory = state.view.identity().directory();
    let all = directory.groups.iter();
    Ok(answers::ok(
        &all.map(|(name, group)| group_json(name, group))
            .collect::<Value>(),
    ))
}

/// `GET /settings/rbac/groups/G`
pub(super) async fn show(
    State(state): State<HttpState>,
    Path(name): Path<String>,
) -> HandlerResult {
    let directory = state.view.identity().directory();
    let group = directory.groups.get(&name);
    let group = group.ok_or(Refused::Unknown(UNKNOWN))?;
    Ok(answers::ok(&group_json(&name, group)))
}

/// `PUT /settings/rbac/groups/G`
pub(super) async fn put(
    State(state): State<HttpState>,
    Extension(asks): Extension<AuthenticatedUser>,
    Path(name): Path<String>,
    body: Bytes,
) -> HandlerResult {
    let mut form = Form::new(&body);
    fields::check_name(&mut form, "_", &name, "group name");
    form.refuse_unknown(&FIELDS);
    let group = GroupRecord {
        description: field(&body, "description").unwrap_or_default(),
        ldap_group_ref: field(&body, "ldap_group_ref").unwrap_or_default(),
        roles: fields::roles(&state, &mut form).into(),
    };
    answers::check_fields(&form.wrong)?;
    let edit = move |directory: &mut Directory, _: &Identity| {
        let before = directory.groups.insert(name.clone(), group.clone());
        let before = before.unwrap_or_default();
        check_power(&asks, before.roles.iter().chain(&group.roles))
    };
    change(&state, edit).await
}

/// `DELETE /settings/rbac/groups/G`
pub(super) async fn remove(
    State(state): State<HttpState>,
    Extension(asks): Extension<AuthenticatedUser>,
    Path(name): Path<String>,
) -> HandlerResult {
    let edit = move |directory: &mut Directory, _: &Identity| {
        let group = directory.groups.remove(&name);
        let group = group.ok_or(Refused::Unknown(UNKNOWN))?;
        for user in directory.users.clone().all() {
            let mut record = user.record();
            if record.groups.contains(&name) {
                let groups = record.groups.into_iter().filter(|of| *of != name);
                record.groups = groups.collect();
                directory.users.insert(user.name(), &record);
            }
        }
        check_power(&asks, &group.roles)
    };
    change(&state, edit).await
}
