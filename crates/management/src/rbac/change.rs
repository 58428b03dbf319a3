//! Changes of users and groups, away from the thread that serves connections.

use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::Response;
use identity::{AuthenticatedUser, Directory, Grant, Privilege, UserRecord};
use serde_json::json;

use crate::answers::{self, Handled};
use crate::state::HttpState;

/// Why a user or a group is not as a client wants it.
#[derive(Debug)]
pub(super) enum Refused {
    /// There is no such user, or no such group: the text that says so.
    Unknown(&'static str),
    /// A field makes no sense.
    Field(&'static str, String),
    /// The user that asks may not give such roles, or change their holders.
    Forbidden,
}

impl Refused {
    fn answer(self) -> Response {
        match self {
            Self::Unknown(text) => answers::json(StatusCode::NOT_FOUND, &json!(text)),
            Self::Field(field, text) => answers::wrong_field(field, &text),
            Self::Forbidden => answers::forbidden(&["cluster.admin.security.admin!write"]),
        }
    }
}

impl From<Refused> for Response {
    fn from(why: Refused) -> Self {
        why.answer()
    }
}

/// Changes the users once the changes before are done; `derive` runs before, where nothing waits for it.
///
/// It hashes passwords, which takes some 30 ms.
pub(super) async fn change<T: Send + 'static>(
    state: &HttpState,
    derive: impl FnOnce(&identity::Identity) -> T + Send + 'static,
    edit: impl Fn(&mut Directory, &T) -> Result<(), Refused> + Send + 'static,
) -> Handled {
    let view = Arc::clone(&state.view);
    let done = state.users_turn.run(move || {
        let derived = derive(view.identity());
        let mut refused = None;
        let written = view.change_users(&mut |directory| {
            refused = edit(directory, &derived).err();
            refused.is_none()
        });
        (written, refused)
    });
    let unavailable = |text: &str| answers::refusal(StatusCode::SERVICE_UNAVAILABLE, text);
    let (written, refused) = done
        .await
        .ok_or_else(|| unavailable("The node is stopping."))?;
    if let Some(why) = refused {
        return Err(why.into());
    }
    let failed = |text: String| answers::refusal(StatusCode::INTERNAL_SERVER_ERROR, &text);
    written.map_err(failed)?;
    Ok(answers::ok(&json!("")))
}

/// Refuses a change that would let another user than a full administrator give or take the power over users.
///
/// # Errors
/// One of the roles has that power, and the user that asks is no full administrator.
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

/// The roles of a user's own and those of the user's groups.
pub(super) fn all_grants<'a>(
    directory: &'a Directory,
    user: &'a UserRecord,
) -> impl Iterator<Item = &'a Grant> {
    let groups = user.groups.iter();
    let groups = groups.filter_map(|name| directory.groups.get(name));
    user.roles
        .iter()
        .chain(groups.flat_map(|group| &group.roles))
}
