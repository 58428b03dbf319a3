//! Changes of users and groups, outside of the thread that serves connections.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use identity::{AuthenticatedUser, Directory, Grant, Identity, Privilege};
use serde_json::json;

use crate::answers::{self, HandlerResult};
use crate::state::HttpState;

/// Reason why a user or a group was not changed.
#[derive(Debug)]
pub(super) enum Refused {
    /// There is no such user or group; with the text of the answer.
    Unknown(&'static str),
    /// A field is not valid.
    Field(&'static str, String),
    /// The calling user may not assign such roles, or change users that have them.
    Forbidden,
}

impl From<Refused> for Response {
    fn from(why: Refused) -> Self {
        match why {
            Refused::Unknown(text) => answers::json(StatusCode::NOT_FOUND, &json!(text)),
            Refused::Field(field, text) => answers::wrong_field(field, &text),
            Refused::Forbidden => answers::forbidden(&["cluster.admin.security.admin!write"]),
        }
    }
}

/// Changes the users after the earlier changes are done. `edit` derives verifiers of passwords, some 30 ms each, since
/// they depend on the salts in force when it runs.
pub(super) async fn change(
    state: &HttpState,
    edit: impl Fn(&mut Directory, &Identity) -> Result<(), Refused> + Send + 'static,
) -> HandlerResult {
    let view = Arc::clone(&state.view);
    let done = state.users_turn.run(move || {
        let mut refused = None;
        let written = view.change_users(&mut |directory| {
            refused = edit(directory, view.identity()).err();
            refused.is_none()
        });
        (written, refused)
    });
    let (written, refused) = done.await?;
    if let Some(why) = refused {
        return Err(why.into());
    }
    written.map_err(|error| answers::refusal(error.status(), &error.to_string()))?;
    Ok(answers::ok(&json!("")))
}

/// Refuses a change in which a user that is no full administrator assigns or removes the power over users.
///
/// # Errors
/// One of the roles has that power, and the calling user is no full administrator.
pub(super) fn check_power<'a>(
    asks: &AuthenticatedUser,
    grants: impl IntoIterator<Item = &'a Grant>,
) -> Result<(), Refused> {
    let has_power = |grant: &Grant| grant.role.node.has(Privilege::SecurityAdmin);
    if !asks.access.is_admin() && grants.into_iter().any(has_power) {
        return Err(Refused::Forbidden);
    }
    Ok(())
}
