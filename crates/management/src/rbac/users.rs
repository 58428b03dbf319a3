//! Users from management, and the calling user.

use axum::Extension;
use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::response::Response;
use identity::{AuthenticatedUser, Directory, Identity, User, UserRecord};
use model::utc;
use serde::Deserialize;
use serde_json::{Value, json};

use super::change::{Refused, change, check_power};
use super::{fields, roles};
use crate::answers::{self, HandlerResult};
use crate::form::{Form, field};
use crate::state::HttpState;

const UNKNOWN: &str = "Unknown user.";
const FIELDS: [&str; 4] = ["groups", "name", "password", "roles"];
const BUILT_IN: &str =
    "This is the administrator, which --username and --password name when the node is started.";
const EXTERNAL: &str =
    "Users of another directory (LDAP, SAML, PAM) are not supported: make a local one.";

fn user_json(directory: &Directory, user: &User) -> Value {
    let (name, user) = (user.name(), user.record());
    json!({
        "id": name,
        "domain": "local",
        "name": user.full_name,
        "roles": roles::roles_of(directory, &user),
        "groups": user.groups,
        "external_groups": [],
        "password_change_date": iso(user.password_set_unix_s),
    })
}

/// Formats a time in ISO 8601, to the millisecond.
fn iso(unix_s: u32) -> String {
    let text = utc(u64::from(unix_s) * 1_000_000_000);
    format!("{}.000Z", text.split('.').next().unwrap_or_default())
}

/// The requested part of a long list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Page {
    page_size: Option<usize>,
    /// Name of the first user of the page.
    start_from: Option<String>,
}

/// `GET /settings/rbac/users`
pub(super) async fn list(State(state): State<HttpState>, Query(page): Query<Page>) -> Response {
    let directory = state.view.identity().directory();
    let from = page.start_from.unwrap_or_default();
    let all = directory.users.all();
    let listed = |users: &[User]| -> Value {
        let users = users.iter();
        users.map(|user| user_json(&directory, user)).collect()
    };
    let Some(size) = page.page_size else {
        return answers::ok(&listed(all));
    };
    let before = all.partition_point(|user| user.name() < &*from);
    let (users, following) = all[before..].split_at(size.min(all.len() - before));
    let users = listed(users);
    let mut links = json!({});
    if let Some(next) = following.first().filter(|_| size > 0) {
        let next = registry::cluster_map::percent_encode(next.name());
        let path = format!("/settings/rbac/users?pageSize={size}&startFrom={next}");
        links["next"] = path.into();
    }
    let total = all.len();
    answers::ok(&json!({ "total": total, "links": links, "skipped": before, "users": users }))
}

/// `GET /settings/rbac/users/D`
pub(super) async fn of_domain(
    State(state): State<HttpState>,
    Path(domain): Path<String>,
    page: Query<Page>,
) -> HandlerResult {
    match &*domain {
        "local" => Ok(list(State(state), page).await),
        "external" => Ok(answers::ok(&json!([]))),
        _ => Err(Refused::Unknown("Unknown user domain.").into()),
    }
}

/// `GET /settings/rbac/users/D/U`
pub(super) async fn show(
    State(state): State<HttpState>,
    Path((domain, name)): Path<(String, String)>,
) -> HandlerResult {
    let directory = state.view.identity().directory();
    let user = directory
        .users
        .get(&name)
        .filter(|_| domain == "local")
        .ok_or(Refused::Unknown(UNKNOWN))?;
    Ok(answers::ok(&user_json(&directory, user)))
}

/// `PUT /settings/rbac/users/D/U`
pub(super) async fn put(
    State(state): State<HttpState>,
    Extension(asks): Extension<AuthenticatedUser>,
    Path((domain, name)): Path<(String, String)>,
    body: Bytes,
) -> HandlerResult {
    let mut form = Form::new(&body);
    match &*domain {
        "local" => {}
        "external" => return Err(answers::refusal(StatusCode::BAD_REQUEST, EXTERNAL)),
        _ => return Err(Refused::Unknown("Unknown user domain.").into()),
    }
    if state.view.identity().is_built_in(&name) {
        return Err(answers::refusal(StatusCode::BAD_REQUEST, BUILT_IN));
    }
    fields::check_name(&mut form, "_", &name, "username");
    form.refuse_unknown(&FIELDS);
    let password = field(&body, "password");
    if let Some(password) = &password {
        fields::check_password(&mut form, password);
    }
    let wanted = UserRecord {
        full_name: field(&body, "name").unwrap_or_default().into(),
        roles: fields::roles(&state, &mut form).into(),
        groups: fields::list(&body, "groups").into_iter().collect(),
        password: None,
        password_set_unix_s: now_s(&state),
    };
    answers::check_fields(&form.wrong)?;
    let edit = move |directory: &mut Directory, identity: &Identity| {
        check_groups(directory, &wanted.groups)?;
        let before = directory.users.get(&name).map(User::record);
        let known = before.iter().chain([&wanted]);
        check_power(&asks, known.flat_map(|user| directory.grants_of(user)))?;
        let mut user = wanted.clone();
        let password = password.as_ref();
        user.password = password.map(|text| identity.verifier(&name, text.as_bytes()));
        if password.is_none() {
            let before = before.filter(|user| user.password.is_some());
            let required = "Password is required for new user.";
            let before = before.ok_or_else(|| Refused::Field("password", required.into()))?;
            user.password.clone_from(&before.password);
            user.password_set_unix_s = before.password_set_unix_s;
        }
        directory.users.insert(&name, &user);
        Ok(())
    };
    change(&state, edit).await
}

fn check_groups(directory: &Directory, groups: &[String]) -> Result<(), Refused> {
    let mut unknown = groups.to_vec();
    unknown.retain(|name| !directory.groups.contains_key(name));
    if unknown.is_empty() {
        return Ok(());
    }
    let text = format!("Groups do not exist: {}", unknown.join(", "));
    Err(Refused::Field("groups", text))
}

/// `DELETE /settings/rbac/users/D/U`
pub(super) async fn remove(
    State(state): State<HttpState>,
    Extension(asks): Extension<AuthenticatedUser>,
    Path((domain, name)): Path<(String, String)>,
) -> HandlerResult {
    if domain != "local" {
        return Err(Refused::Unknown(UNKNOWN).into());
    }
    if state.view.identity().is_built_in(&name) {
        return Err(answers::refusal(StatusCode::BAD_REQUEST, BUILT_IN));
    }
    let edit = move |directory: &mut Directory, _: &Identity| {
        let user = directory.users.remove(&name);
        let user = user.ok_or(Refused::Unknown(UNKNOWN))?;
        check_power(&asks, directory.grants_of(&user.record()))
    };
    change(&state, edit).await
}

/// `GET /whoami`
pub(super) async fn whoami(
    State(state): State<HttpState>,
    Extension(user): Extension<AuthenticatedUser>,
) -> HandlerResult {
    if user.built_in {
        let roles = json!([{ "role": "admin" }]);
        let value = json!({ "id": &*user.name, "domain": "admin", "roles": roles });
        return Ok(answers::ok(&value));
    }
    show(State(state), Path(("local".into(), user.name.to_string()))).await
}

/// `POST /controller/changePassword`: changes the password of the calling user.
pub(super) async fn change_password(
    State(state): State<HttpState>,
    Extension(user): Extension<AuthenticatedUser>,
    body: Bytes,
) -> HandlerResult {
    if user.built_in {
        return Err(answers::refusal(StatusCode::BAD_REQUEST, BUILT_IN));
    }
    let mut form = Form::new(&body);
    form.refuse_unknown(&["password"]);
    let password = field(&body, "password").unwrap_or_default();
    fields::check_password(&mut form, &password);
    answers::check_fields(&form.wrong)?;
    let (name, now_s) = (user.name, now_s(&state));
    let edit = move |directory: &mut Directory, identity: &Identity| {
        let user = directory.users.get(&name);
        let mut user = user.ok_or(Refused::Unknown(UNKNOWN))?.record();
        user.password = Some(identity.verifier(&name, password.as_bytes()));
        user.password_set_unix_s = now_s;
        directory.users.insert(&name, &user);
        Ok(())
    };
    change(&state, edit).await
}

fn now_s(state: &HttpState) -> u32 {
    u32::try_from(state.view.unix_ms() / 1000).unwrap_or(u32::MAX)
}
