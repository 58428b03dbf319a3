//! Users and roles in answers of the HTTP management, and tables of them.

use std::fmt::Write as _;

use serde::Deserialize;

/// A user.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct UserRecord {
    id: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    roles: Vec<UserRole>,
    #[serde(default)]
    groups: Vec<String>,
}

/// A group.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct UserGroup {
    id: String,
    #[serde(default)]
    description: String,
    #[serde(default)]
    roles: Vec<UserRole>,
}

/// A role of a user, or an existing role.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct UserRole {
    #[serde(rename = "role")]
    id: String,
    bucket_name: Option<String>,
    scope_name: Option<String>,
    collection_name: Option<String>,
    #[serde(default)]
    origins: Vec<RoleOrigin>,
    #[serde(default)]
    desc: String,
}

/// Origin of a user's role: `user` or `group`.
#[derive(Clone, Debug, Deserialize)]
struct RoleOrigin {
    #[serde(rename = "type")]
    kind: String,
}

impl UserRecord {
    /// Full name of the user.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Names of the groups, in the form of a request.
    pub(super) fn groups(&self) -> String {
        self.groups.join(",")
    }

    /// The user's own roles, without those of groups, in the form of a request.
    pub(super) fn own_roles(&self) -> String {
        let own = |role: &&UserRole| role.origins.iter().any(|origin| origin.kind == "user");
        let own = self.roles.iter().filter(own);
        own.map(UserRole::text).collect::<Vec<_>>().join(",")
    }
}

impl UserRole {
    /// Text of this role: `data_reader[bucket:scope:collection]`.
    fn text(&self) -> String {
        let parts = [&self.bucket_name, &self.scope_name, &self.collection_name];
        let mut parts: Vec<&str> = parts.into_iter().flatten().map(|part| &**part).collect();
        while parts.len() > 1 && parts.last() == Some(&"*") {
            parts.pop();
        }
        if parts.is_empty() {
            return self.id.clone();
        }
        format!("{}[{}]", self.id, parts.join(":"))
    }

    /// Text of this role with placeholders for the parts that can narrow it.
    fn pattern(&self) -> String {
        let named = |part: &Option<String>, name: &str| part.as_ref().map(|_| name.to_owned());
        let pattern = Self {
            bucket_name: named(&self.bucket_name, "bucket"),
            scope_name: named(&self.scope_name, "scope"),
            collection_name: named(&self.collection_name, "collection"),
            ..self.clone()
        };
        pattern.text()
    }
}

/// Returns a table of users.
pub(super) fn table_of_users(users: &[UserRecord]) -> String {
    let row = |user: &UserRecord| {
        let roles: Vec<String> = user.roles.iter().map(UserRole::text).collect();
        [
            user.id.clone(),
            user.name.clone(),
            roles.join(","),
            user.groups(),
        ]
    };
    table(
        ["USER", "NAME", "ROLES", "GROUPS"],
        users.iter().map(row).collect(),
    )
}

/// Returns a table of groups.
pub(super) fn table_of_groups(groups: &[UserGroup]) -> String {
    let row = |group: &UserGroup| {
        let roles: Vec<String> = group.roles.iter().map(UserRole::text).collect();
        [group.id.clone(), group.description.clone(), roles.join(",")]
    };
    let rows = groups.iter().map(row).collect();
    table(["GROUP", "DESCRIPTION", "ROLES"], rows)
}

/// Returns a table of the existing roles.
pub(super) fn table_of_roles(roles: &[UserRole]) -> String {
    let row = |role: &UserRole| [role.pattern(), role.desc.clone()];
    table(["ROLE", "DESCRIPTION"], roles.iter().map(row).collect())
}

/// Returns aligned columns, two spaces apart; an empty value is a dash.
fn table<const N: usize>(head: [&str; N], rows: Vec<[String; N]>) -> String {
    let mut rows = rows;
    for value in rows.iter_mut().flatten().filter(|value| value.is_empty()) {
        "-".clone_into(value);
    }
    rows.insert(0, head.map(str::to_owned));
    let width = |column: usize| {
        let widths = rows.iter().map(|row| row[column].chars().count());
        widths.max().unwrap_or_default()
    };
    let widths: [usize; N] = std::array::from_fn(width);
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (value, width) in row.iter().zip(widths) {
            let _infallible = write!(line, "{value:width$}  ");
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: &str = r#"{"id":"ana","domain":"local","name":"","groups":["g"],"roles":[
        {"role":"admin","origins":[{"type":"user"}]},
        {"role":"data_reader","bucket_name":"b","scope_name":"s","collection_name":"*",
         "origins":[{"type":"group","name":"g"},{"type":"user"}]},
        {"role":"bucket_admin","bucket_name":"*","origins":[{"type":"group","name":"g"}]}]}"#;

    #[test]
    fn only_own_roles_are_sent_back() {
        let user: UserRecord = serde_json::from_str(USER).unwrap();
        assert_eq!(user.own_roles(), "admin,data_reader[b:s]");
        assert_eq!(user.groups(), "g");
    }

    #[test]
    fn tables_are_aligned() {
        let user: UserRecord = serde_json::from_str(USER).unwrap();
        let expected = "\
USER  NAME  ROLES                                   GROUPS
ana   -     admin,data_reader[b:s],bucket_admin[*]  g
";
        assert_eq!(table_of_users(&[user]), expected);
        let roles = r#"[{"role":"admin","desc":"All."},
            {"role":"data_reader","bucket_name":"*","scope_name":"*","collection_name":"*"}]"#;
        let roles: Vec<UserRole> = serde_json::from_str(roles).unwrap();
        let expected = "\
ROLE                                  DESCRIPTION
admin                                 All.
data_reader[bucket:scope:collection]  -
";
        assert_eq!(table_of_roles(&roles), expected);
    }
}
