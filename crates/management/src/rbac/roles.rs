//! Roles as JSON.

use axum::response::Response;
use identity::{Directory, Grant, ROLES, Reach, UserRecord};
use serde_json::{Value, json};

use crate::answers;

/// `GET /settings/rbac/roles`
pub(super) async fn list() -> Response {
    let all = ROLES.iter().map(|role| {
        let mut value = role_json(&Grant::everywhere(role));
        value["name"] = role.title.into();
        value["desc"] = role.description.into();
        value
    });
    answers::ok(&Value::Array(all.collect()))
}

/// Returns a role with its scope.
pub(super) fn role_json(grant: &Grant) -> Value {
    let mut value = json!({ "role": grant.role.name });
    let parts = [
        (Reach::Bucket, "bucket_name", grant.bucket()),
        (Reach::Scope, "scope_name", grant.scope()),
        (Reach::Collection, "collection_name", grant.collection()),
    ];
    for (reach, field, name) in parts {
        if grant.role.reach >= reach {
            value[field] = name.unwrap_or("*").into();
        }
    }
    value
}

/// Returns the roles of a user, including those of groups, each with its origins.
pub(super) fn roles_of(directory: &Directory, user: &UserRecord) -> Value {
    let own = user.roles.iter();
    let own = own.map(|grant| (grant, json!({ "type": "user" })));
    let groups = user.groups.iter();
    let groups = groups.filter_map(|name| directory.groups.get_key_value(name));
    let of_groups = groups.flat_map(|(name, group)| {
        let origin = json!({ "type": "group", "name": name });
        group.roles.iter().map(move |grant| (grant, origin.clone()))
    });
    let mut grants: Vec<(&Grant, Vec<Value>)> = Vec::new();
    for (grant, origin) in own.chain(of_groups) {
        match grants.iter_mut().find(|(known, _)| *known == grant) {
            Some((_, origins)) => origins.push(origin),
            None => grants.push((grant, vec![origin])),
        }
    }
    let roles = grants.into_iter().map(|(grant, origins)| {
        let mut value = role_json(grant);
        value["origins"] = origins.into();
        value
    });
    roles.collect()
}
