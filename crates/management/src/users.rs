//! Users that may log in, as clients that manage users request them.
//!
//! There is one user, the administrator, which is named where the node is started. As in the
//! reference the list of users does not hold the administrator: it holds the users that an
//! administrator made, and none can be made here.

use axum::http::{Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{any, get};
use axum::{Extension, Router};
use identity::{AuthenticatedUser, Role};
use serde_json::json;

use super::answers;
use crate::state::HttpState;

/// The resource below `/settings/rbac`, and the user that asks.
pub(super) fn routes() -> Router<HttpState> {
    let one_user = get(no_user).delete(no_user).fallback(refused);
    let one_group = get(no_group).delete(no_group).fallback(refused);
    let below = "/settings/rbac";
    Router::new()
        .route("/whoami", get(whoami))
        .route(&format!("{below}/users"), get(none).fallback(refused))
        .route(
            &format!("{below}/users/{{domain}}"),
            get(of_domain).fallback(refused),
        )
        .route(&format!("{below}/users/{{domain}}/{{user}}"), one_user)
        .route(&format!("{below}/groups"), get(none).fallback(refused))
        .route(&format!("{below}/groups/{{group}}"), one_group)
        .route(&format!("{below}/roles"), get(roles).fallback(refused))
        .route(&format!("{below}/{{*path}}"), any(refused))
        .route("/controller/changePassword", any(refused))
}

/// The empty list of users, whatever is asked for.
async fn none() -> Response {
    answers::json(StatusCode::OK, &json!([]))
}

async fn of_domain(axum::extract::Path(domain): axum::extract::Path<String>) -> Response {
    match &*domain {
        "local" | "external" => none().await,
        _ => answers::json(StatusCode::NOT_FOUND, &json!("Unknown user domain.")),
    }
}

/// The texts are those of the reference.
async fn no_user() -> Response {
    answers::json(StatusCode::NOT_FOUND, &json!("Unknown user."))
}

async fn no_group() -> Response {
    answers::json(StatusCode::NOT_FOUND, &json!("Unknown group."))
}

async fn roles() -> Response {
    let admin = json!({
        "role": Role::Admin.name(),
        "name": "Full Admin",
        "desc": "May do everything. The only role there is, of the only user there is.",
    });
    answers::json(StatusCode::OK, &json!([admin]))
}

async fn whoami(Extension(user): Extension<AuthenticatedUser>) -> Response {
    let roles = json!([{ "role": user.role.name() }]);
    let value = json!({ "id": &*user.name, "domain": "admin", "roles": roles });
    answers::json(StatusCode::OK, &value)
}

async fn refused(method: Method, uri: Uri) -> Response {
    let text = format!(
        "{method} {}: the administrator is the only user, named by --username and --password \
         when the node is started.",
        uri.path()
    );
    // Of other statuses SDKs show no text, but "internal server failure".
    answers::refusal(StatusCode::BAD_REQUEST, &text)
}
