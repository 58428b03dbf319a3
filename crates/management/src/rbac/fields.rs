//! Fields of the forms of users and groups.

use std::collections::BTreeSet;

use identity::Grant;

use crate::form::{Form, field, words};
use crate::state::HttpState;

const NAME_CHARS_MAX: usize = 128;
const PASSWORD_CHARS_MIN: usize = 6;
/// Characters that are not allowed in names.
const NOT_IN_NAMES: &str = "()<>@,;:\\\"/[]?={}";

/// Adds an error for a name that is not allowed for users and groups.
pub(crate) fn check_name(form: &mut Form<'_>, field: &str, name: &str, what: &str) {
    let odd = |c: char| c.is_whitespace() || c.is_control() || NOT_IN_NAMES.contains(c);
    let text = if name.chars().count() > NAME_CHARS_MAX
        || name.len() > identity::USER_NAME_BYTES_MAX
    {
        format!("The {what} may not exceed {NAME_CHARS_MAX} characters.")
    } else if name.is_empty() || name.starts_with('@') || name.contains(odd) {
        format!(
            "The {what} must not be empty, and not contain spaces, control or any of {NOT_IN_NAMES} \
             characters."
        )
    } else {
        return;
    };
    form.complain(field, &text);
}

/// Adds an error for a password that is too short.
pub(crate) fn check_password(form: &mut Form<'_>, password: &str) {
    if password.chars().count() < PASSWORD_CHARS_MIN {
        let text = format!("The password must be at least {PASSWORD_CHARS_MIN} characters long.");
        form.complain("password", &text);
    }
}

/// Reads the roles of a form, each once; adds errors for unknown roles and for roles of missing buckets.
pub(super) fn roles(state: &HttpState, form: &mut Form<'_>) -> Vec<Grant> {
    let buckets = state.view.bucket_names();
    let is_here = |name: &str| buckets.iter().any(|here| here == name);
    let mut grants = Vec::new();
    let mut unknown = Vec::new();
    for text in list(form.body, "roles") {
        let grant = Grant::parse(&text);
        match grant.filter(|grant| grant.bucket().is_none_or(is_here)) {
            Some(grant) if grants.contains(&grant) => {}
            Some(grant) => grants.push(grant),
            None => unknown.push(text),
        }
    }
    if !unknown.is_empty() {
        let text = format!(
            "Cannot assign roles to user because the following roles are unknown, malformed or role \
             parameters are undefined: [{}]",
            unknown.join(",")
        );
        form.complain("roles", &text);
    }
    grants
}

/// Returns the names in a field, separated by commas; each once.
pub(super) fn list(body: &[u8], name: &str) -> BTreeSet<String> {
    let text = field(body, name).unwrap_or_default();
    words(&text).map(str::to_owned).collect()
}
