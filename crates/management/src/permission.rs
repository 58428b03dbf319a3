//! Permissions by the names of management clients, and the privileges behind them.
//!
//! Shape: `cluster.settings!read` of the node, `cluster.bucket[B].data.docs!read` of a bucket,
//! `cluster.scope[B:S].collections!write` of a scope, `cluster.collection[B:S:C].data.docs!upsert` of a collection.

use identity::{Access, Privilege};

/// Subject of a permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PermissionSubject<'a> {
    Node,
    Part {
        bucket: &'a str,
        scope: Option<&'a str>,
        collection: Option<&'a str>,
    },
}

/// Privilege that a permission needs for its subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RequiredPrivilege {
    /// No privilege: any user has it; in a bucket, any privilege in it is enough.
    Presence,
    /// A privilege for the subject.
    Privilege(Privilege),
    /// A privilege anywhere in the bucket.
    Anywhere(Privilege),
    /// A privilege on the node, whatever the subject.
    Node(Privilege),
    /// The rights of a full administrator.
    Everything,
}

/// A permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Permission<'a> {
    within: PermissionSubject<'a>,
    needs: RequiredPrivilege,
}

impl<'a> Permission<'a> {
    /// Parses a permission; `None` if it is malformed. An unknown permission needs a full administrator.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let rest = text.strip_prefix("cluster")?;
        let (within, rest) = within(rest)?;
        let (object, operation) = rest.split_once('!')?;
        let object = match object {
            "" => "",
            object => object.strip_prefix('.')?,
        };
        let needs = match within {
            PermissionSubject::Node => on_node(object, operation),
            PermissionSubject::Part { .. } => on_bucket(object, operation),
        };
        Some(Self { within, needs })
    }

    /// Returns the bucket of the subject.
    pub(super) fn bucket(&self) -> Option<&'a str> {
        match self.within {
            PermissionSubject::Node => None,
            PermissionSubject::Part { bucket, .. } => Some(bucket),
        }
    }

    /// Returns the same permission for another bucket.
    pub(super) fn of_bucket(mut self, name: &'a str) -> Self {
        if let PermissionSubject::Part { bucket, .. } = &mut self.within {
            *bucket = name;
        }
        self
    }

    /// Checks whether a user has the permission.
    pub(super) fn is_given(&self, access: &Access) -> bool {
        if access.is_admin() {
            return true;
        }
        match (self.needs, self.within) {
            (RequiredPrivilege::Everything, _) => false,
            (RequiredPrivilege::Presence, PermissionSubject::Node) => true,
            (RequiredPrivilege::Presence, PermissionSubject::Part { bucket, .. }) => {
                !access.within_bucket(bucket).is_empty()
            }
            (RequiredPrivilege::Anywhere(one), PermissionSubject::Part { bucket, .. }) => {
                access.within_bucket(bucket).has(one)
            }
            (
                RequiredPrivilege::Privilege(one),
                PermissionSubject::Part {
                    bucket,
                    scope,
                    collection,
                },
            ) => match scope {
                None => access.of_bucket(bucket).has(one),
                Some(scope) => access.of_part(bucket, scope, collection).has(one),
            },
            (
                RequiredPrivilege::Node(one)
                | RequiredPrivilege::Privilege(one)
                | RequiredPrivilege::Anywhere(one),
                PermissionSubject::Node | PermissionSubject::Part { .. },
            ) => access.node().has(one),
        }
    }
}

/// Splits off the subject: the text after `cluster`, up to the object.
fn within(text: &str) -> Option<(PermissionSubject<'_>, &str)> {
    for (word, parts_max) in [(".bucket[", 1), (".scope[", 2), (".collection[", 3)] {
        let Some((names, rest)) = text
            .strip_prefix(word)
            .and_then(|text| text.split_once(']'))
        else {
            continue;
        };
        let mut parts = names.splitn(parts_max, ':');
        let within = PermissionSubject::Part {
            bucket: parts.next().filter(|name| !name.is_empty())?,
            scope: parts.next(),
            collection: parts.next(),
        };
        return Some((within, rest));
    }
    Some((PermissionSubject::Node, text))
}

fn on_node(object: &str, operation: &str) -> RequiredPrivilege {
    let reads = operation == "read" || operation == "list";
    match object {
        "pools" | "nodes" | "tasks" | "buckets" if reads => RequiredPrivilege::Presence,
        "admin.security.admin" => RequiredPrivilege::Everything,
        _ if object.starts_with("admin.security") => RequiredPrivilege::Privilege(if reads {
            Privilege::SecurityRead
        } else {
            Privilege::SecurityAdmin
        }),
        "settings" if reads => RequiredPrivilege::Privilege(Privilege::SystemSettings),
        "stats" | "admin.stats_export" if reads => RequiredPrivilege::Privilege(Privilege::Stats),
        "settings" | "pools" | "nodes" | "buckets" | "admin.setup" | "admin.settings" => {
            RequiredPrivilege::Privilege(Privilege::NodeSupervisor)
        }
        _ => RequiredPrivilege::Everything,
    }
}

fn on_bucket(object: &str, operation: &str) -> RequiredPrivilege {
    let one = match (object, operation) {
        ("", "read" | "list") | ("collections", "read") => return RequiredPrivilege::Presence,
        ("", "create" | "delete") => return RequiredPrivilege::Node(Privilege::NodeSupervisor),
        ("data.stream", "read") => return RequiredPrivilege::Anywhere(Privilege::DcpStream),
        ("" | "settings", "compact" | "flush" | "write") => Privilege::BucketAdmin,
        ("settings", "read") => Privilege::Settings,
        ("collections", "write" | "create" | "delete") => Privilege::CollectionAdmin,
        ("stats", "read") => Privilege::SimpleStats,
        ("data" | "data.docs" | "data.xattr" | "data.meta", "read") => Privilege::Read,
        ("data" | "data.docs", "insert") => Privilege::Insert,
        ("data" | "data.docs" | "data.xattr", "upsert" | "write") => Privilege::Upsert,
        ("data" | "data.docs", "delete") => Privilege::Delete,
        ("data" | "data.docs", "range_scan") => Privilege::RangeScan,
        ("data.meta", "write") => Privilege::MetaWrite,
        ("data.sxattr", "read") => Privilege::SystemXattrRead,
        ("data.sxattr", "write") => Privilege::SystemXattrWrite,
        ("data.dcp", "read") => Privilege::DcpProducer,
        ("data.dcp", "write") => Privilege::DcpConsumer,
        ("data.dcpstream", "read") => Privilege::DcpStream,
        _ => return RequiredPrivilege::Everything,
    };
    RequiredPrivilege::Privilege(one)
}

#[cfg(test)]
mod tests {
    use identity::Grant;

    use super::*;

    fn is_given(permission: &str, grants: &[&str]) -> Option<bool> {
        let access = Access::new(grants.iter().map(|text| Grant::parse(text).unwrap()));
        Some(Permission::parse(permission)?.is_given(&access))
    }

    #[test]
    fn permissions_stand_for_privileges() {
        let reader = &["data_reader[b:s:c]"][..];
        for (permission, grants, given) in [
            ("cluster.pools!read", &[][..], true),
            ("cluster.settings!read", &[], false),
            ("cluster.settings!read", reader, true),
            ("cluster.settings!write", &["ro_admin"], false),
            ("cluster.settings!write", &["cluster_admin"], true),
            ("cluster.admin.security!read", &["ro_admin"], true),
            ("cluster.admin.security!write", &["ro_admin"], false),
            ("cluster.admin.security!write", &["user_admin_local"], true),
            (
                "cluster.admin.security.admin!write",
                &["user_admin_local"],
                false,
            ),
            ("cluster.admin.security.admin!write", &["admin"], true),
            ("cluster.nonsense!read", &["cluster_admin"], false),
            ("cluster.bucket[b]!read", reader, true),
            ("cluster.bucket[c]!read", reader, false),
            ("cluster.bucket[b.c]!read", &["data_reader[b.c]"], true),
            ("cluster.bucket[b]!delete", &["bucket_admin[b]"], false),
            ("cluster.bucket[b]!delete", &["cluster_admin"], true),
            ("cluster.bucket[b]!flush", &["bucket_admin[b]"], true),
            (
                "cluster.bucket[b].settings!write",
                &["bucket_admin[c]"],
                false,
            ),
            ("cluster.bucket[b].data.docs!read", reader, false),
            (
                "cluster.bucket[b].data.docs!read",
                &["data_reader[*]"],
                true,
            ),
            (
                "cluster.bucket[b].data.docs!upsert",
                &["data_reader[*]"],
                false,
            ),
            ("cluster.collection[b:s:c].data.docs!read", reader, true),
            ("cluster.collection[b:s:d].data.docs!read", reader, false),
            ("cluster.scope[b:s].data.docs!read", reader, false),
            (
                "cluster.scope[b:s].collections!write",
                &["scope_admin[b:s]"],
                true,
            ),
            (
                "cluster.scope[b:t].collections!write",
                &["scope_admin[b:s]"],
                false,
            ),
        ] {
            assert_eq!(
                is_given(permission, grants),
                Some(given),
                "{permission} {grants:?}"
            );
        }
        for text in [
            "",
            "cluster",
            "bucket[b]!read",
            "cluster.bucket[]!read",
            "clusterx!read",
        ] {
            assert_eq!(is_given(text, &[]), None, "{text}");
        }
    }
}
