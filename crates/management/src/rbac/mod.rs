//! Users, groups and roles, for clients that manage them.
//!
//! As in the reference server, the list of users contains the users from management, not the administrator of the
//! configuration. The texts of refusals are those that SDKs show or look for.

mod change;
mod fields;
mod groups;
mod roles;
mod users;

use axum::Router;
use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{any, get, post};

pub(super) use fields::{check_name, check_password};

use super::answers;
use super::state::HttpState;

/// Returns the routes below `/settings/rbac`, and those about the calling user.
pub(super) fn routes() -> Router<HttpState> {
    let below = "/settings/rbac";
    let user = get(users::show).put(users::put).delete(users::remove);
    let group = get(groups::show).put(groups::put).delete(groups::remove);
    Router::new()
        .route("/whoami", get(users::whoami))
        .route("/controller/changePassword", post(users::change_password))
        .route(&format!("{below}/users"), get(users::list))
        .route(&format!("{below}/users/{{domain}}"), get(users::of_domain))
        .route(&format!("{below}/users/{{domain}}/{{user}}"), user)
        .route(&format!("{below}/groups"), get(groups::list))
        .route(&format!("{below}/groups/{{group}}"), group)
        .route(&format!("{below}/roles"), get(roles::list))
        .route(&format!("{below}/{{*path}}"), any(refused))
}

async fn refused(method: Method, uri: Uri) -> Response {
    let text = format!(
        "{method} {} is not supported: users are local ones, with names, passwords, roles and groups.",
        uri.path()
    );
    // With other statuses SDKs show no text, but "internal server failure".
    answers::refusal(StatusCode::BAD_REQUEST, &text)
}
