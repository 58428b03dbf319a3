//! Roles: named sets of privileges, like those of the reference server's management.

use std::fmt;

use crate::privilege::{Privilege, PrivilegeSet};
use Privilege::{
    BucketAdmin, CollectionAdmin, DcpConsumer, DcpProducer, DcpStream, Delete, IdleConnection,
    Insert, MetaWrite, NodeSupervisor, RangeScan, Read, SecurityAdmin, SecurityRead, Settings,
    SimpleStats, Stats, SystemCollectionLookup, SystemCollectionMutation, SystemSettings,
    SystemXattrRead, SystemXattrWrite, Upsert,
};

/// Smallest scope of a role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// The node: the role takes no parameter.
    Node,
    /// A bucket, or all of them: `role[bucket]`, `role[*]`.
    Bucket,
    /// A scope: `role[bucket:scope]`, and wider scopes.
    Scope,
    /// A collection: `role[bucket:scope:collection]`, and wider scopes.
    Collection,
}

/// One row of the table of roles.
#[derive(Debug, PartialEq, Eq)]
pub struct Role {
    /// Name that clients send.
    pub name: &'static str,
    /// Name for people.
    pub title: &'static str,
    /// Purpose of the role, a sentence or two.
    pub description: &'static str,
    /// Smallest scope of the role.
    pub reach: Reach,
    /// Privileges on the whole node.
    pub node: PrivilegeSet,
    /// Privileges on the granted buckets, scopes or collections; for a role of the node, on all.
    pub data: PrivilegeSet,
}

const NONE: PrivilegeSet = PrivilegeSet::EMPTY;
/// Allows to read the setup of the node.
const VIEW: PrivilegeSet = PrivilegeSet::of(&[SystemSettings]);
const FIGURES: PrivilegeSet = PrivilegeSet::of(&[SimpleStats, Stats]);
const WRITES: PrivilegeSet = PrivilegeSet::of(&[Insert, Upsert, Delete]);
const BUCKET_SETTINGS: PrivilegeSet =
    PrivilegeSet::of(&[Settings, SimpleStats, Stats, BucketAdmin, CollectionAdmin]);
const USERS: PrivilegeSet = PrivilegeSet::of(&[SystemSettings, SecurityRead, SecurityAdmin]);
const STREAMS: PrivilegeSet = PrivilegeSet::of(&[
    Read,
    Settings,
    DcpProducer,
    DcpStream,
    IdleConnection,
    SystemXattrRead,
    SystemCollectionLookup,
]);
/// Allows all operations on documents, and on streams of them.
const DOCUMENTS: PrivilegeSet = STREAMS.with(WRITES).with(PrivilegeSet::of(&[
    SimpleStats,
    DcpConsumer,
    MetaWrite,
    SystemXattrWrite,
    SystemCollectionMutation,
    RangeScan,
]));

/// Creates a role of a service that Settee does not have.
const fn of_another_service(name: &'static str, title: &'static str, reach: Reach) -> Role {
    Role {
        name,
        title,
        description: "Concerns a service that this node does not have; taken, and gives nothing.",
        reach,
        node: NONE,
        data: NONE,
    }
}

/// Every role, in the order of lists.
pub static ROLES: &[Role] = &[
    Role {
        name: "admin",
        title: "Full Admin",
        description: "Can manage all cluster features, those of a web console too, and read and write all data.",
        reach: Reach::Node,
        node: PrivilegeSet::ALL,
        data: PrivilegeSet::ALL,
    },
    Role {
        name: "ro_admin",
        title: "Read-Only Admin",
        description: "Can view settings and statistics, but no documents and no credentials.",
        reach: Reach::Node,
        node: VIEW.with(FIGURES).with(PrivilegeSet::of(&[SecurityRead])),
        data: FIGURES.with(PrivilegeSet::of(&[Settings])),
    },
    Role {
        name: "security_admin",
        title: "Security Admin",
        description: "Can manage users, roles and certificates. Has no access to documents.",
        reach: Reach::Node,
        node: USERS,
        data: NONE,
    },
    Role {
        name: "user_admin_local",
        title: "Local User Admin",
        description: "Can manage users and groups.",
        reach: Reach::Node,
        node: USERS,
        data: NONE,
    },
    Role {
        name: "cluster_admin",
        title: "Cluster Admin",
        description: "Can manage the node and its buckets, but neither users nor documents.",
        reach: Reach::Node,
        node: VIEW.with(FIGURES).with(PrivilegeSet::of(&[NodeSupervisor])),
        data: BUCKET_SETTINGS,
    },
    Role {
        name: "bucket_admin",
        title: "Bucket Admin",
        description: "Can manage settings, scopes and collections of a bucket, but no documents.",
        reach: Reach::Bucket,
        node: VIEW,
        data: BUCKET_SETTINGS,
    },
    Role {
        name: "bucket_full_access",
        title: "Application Access",
        description: "Full access to the documents of a bucket, change streams included.",
        reach: Reach::Bucket,
        node: VIEW,
        data: DOCUMENTS.with(FIGURES),
    },
    Role {
        name: "scope_admin",
        title: "Manage Scopes",
        description: "Can make and drop scopes of a bucket and their collections.",
        reach: Reach::Scope,
        node: VIEW,
        data: PrivilegeSet::of(&[CollectionAdmin, Settings]),
    },
    Role {
        name: "data_reader",
        title: "Data Reader",
        description: "Can read documents.",
        reach: Reach::Collection,
        node: VIEW,
        data: PrivilegeSet::of(&[Read, Settings, RangeScan]),
    },
    Role {
        name: "data_writer",
        title: "Data Writer",
        description: "Can write documents, but not read them.",
        reach: Reach::Collection,
        node: VIEW,
        data: WRITES.with(PrivilegeSet::of(&[Settings])),
    },
    Role {
        name: "data_dcp_reader",
        title: "Data DCP Reader",
        description: "Can read documents and open change streams.",
        reach: Reach::Collection,
        node: VIEW,
        data: STREAMS,
    },
    Role {
        name: "data_backup",
        title: "Data Backup & Restore",
        description: "Can back up and restore a bucket: documents, collections, settings.",
        reach: Reach::Bucket,
        node: VIEW,
        data: DOCUMENTS.with(BUCKET_SETTINGS),
    },
    Role {
        name: "data_monitoring",
        title: "Data Monitoring",
        description: "Can read statistics.",
        reach: Reach::Collection,
        node: VIEW,
        data: PrivilegeSet::of(&[SimpleStats, Settings]),
    },
    Role {
        name: "mobile_sync_gateway",
        title: "Sync Gateway",
        description: "What Sync Gateway does with a bucket: documents, system attributes, streams.",
        reach: Reach::Bucket,
        node: VIEW,
        data: DOCUMENTS
            .with(FIGURES)
            .with(PrivilegeSet::of(&[CollectionAdmin])),
    },
    Role {
        name: "replication_target",
        title: "XDCR Inbound",
        description: "Can write what another site replicates to a bucket.",
        reach: Reach::Bucket,
        node: VIEW,
        data: DOCUMENTS,
    },
    Role {
        name: "replication_admin",
        title: "XDCR Admin",
        description: "Can read a bucket as another site replicates it.",
        reach: Reach::Node,
        node: VIEW.with(FIGURES),
        data: STREAMS,
    },
    Role {
        name: "external_stats_reader",
        title: "External Stats Reader",
        description: "Can read all metrics.",
        reach: Reach::Node,
        node: FIGURES,
        data: FIGURES,
    },
    of_another_service("views_admin", "Views Admin", Reach::Bucket),
    of_another_service("views_reader", "Views Reader", Reach::Bucket),
    of_another_service("query_select", "Query Select", Reach::Collection),
    of_another_service("query_insert", "Query Insert", Reach::Collection),
    of_another_service("query_update", "Query Update", Reach::Collection),
    of_another_service("query_delete", "Query Delete", Reach::Collection),
    of_another_service(
        "query_manage_index",
        "Query Manage Index",
        Reach::Collection,
    ),
    of_another_service(
        "query_manage_functions",
        "Manage Scope Functions",
        Reach::Scope,
    ),
    of_another_service(
        "query_execute_functions",
        "Execute Scope Functions",
        Reach::Scope,
    ),
    of_another_service("query_system_catalog", "Query System Catalog", Reach::Node),
    of_another_service("query_external_access", "Query CURL Access", Reach::Node),
    of_another_service("fts_admin", "Search Admin", Reach::Bucket),
    of_another_service("fts_searcher", "Search Reader", Reach::Collection),
    of_another_service("analytics_admin", "Analytics Admin", Reach::Node),
    of_another_service("analytics_manager", "Analytics Manager", Reach::Bucket),
    of_another_service("analytics_reader", "Analytics Reader", Reach::Node),
    of_another_service("analytics_select", "Analytics Select", Reach::Collection),
    of_another_service("eventing_admin", "Eventing Full Admin", Reach::Node),
    of_another_service("backup_admin", "Backup Full Admin", Reach::Node),
];

/// A role of a user or a group, with its scope.
///
/// Shape of its text: `name`, `name[*]`, `name[bucket]`, `name[bucket:scope]`, `name[bucket:scope:collection]`. A scope
/// or a collection may be `*` as well, which is the same as leaving it out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The role's row of the table.
    pub role: &'static Role,
    /// Bucket, scope and collection as in the text; empty for all buckets, and for a role of the node. It is one string
    /// to save memory: many users have grants.
    place: Box<str>,
}

impl Grant {
    /// Creates a grant of a role of the node, or of a role on all buckets.
    pub fn everywhere(role: &'static Role) -> Self {
        Self::on(role, [None; 3])
    }

    /// Creates a grant on a bucket, a scope, a collection; parts after the first `None` are ignored.
    pub fn on(role: &'static Role, place: [Option<&str>; 3]) -> Self {
        let parts: Vec<&str> = place.into_iter().map_while(|part| part).collect();
        Self::at(role, &parts.join(":"))
    }

    /// Creates a grant on a place in the form of [`Grant::place`].
    pub(crate) fn at(role: &'static Role, place: &str) -> Self {
        let place = place.into();
        Self { role, place }
    }

    pub(crate) fn place(&self) -> &str {
        &self.place
    }

    /// Parses a grant; `None` if the text is malformed, the role does not exist, or the scope is too small for the
    /// role.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, parameters) = match text.trim().split_once('[') {
            Some((name, rest)) => (name, Some(rest.strip_suffix(']')?)),
            None => (text.trim(), None),
        };
        let role = ROLES.iter().find(|role| role.name == name)?;
        if (role.reach == Reach::Node) != parameters.is_none() {
            return None;
        }
        let mut parts = parameters.into_iter().flat_map(|text| text.split(':'));
        let mut next = |reach: Reach| match parts.next() {
            None | Some("*") => Some(None),
            Some("") => None,
            Some(_) if role.reach < reach => None,
            Some(part) => Some(Some(part)),
        };
        let place = [
            next(Reach::Bucket)?,
            next(Reach::Scope)?,
            next(Reach::Collection)?,
        ];
        let has_gap = !place.is_sorted_by_key(Option::is_none);
        (parts.next().is_none() && !has_gap).then(|| Self::on(role, place))
    }

    fn part(&self, index: usize) -> Option<&str> {
        let part = self.place.split(':').nth(index);
        part.filter(|name| !name.is_empty())
    }

    /// Returns the bucket; `None` for all buckets, and for a role of the node.
    pub fn bucket(&self) -> Option<&str> {
        self.part(0)
    }

    /// Returns the scope; `None` for all scopes.
    pub fn scope(&self) -> Option<&str> {
        self.part(1)
    }

    /// Returns the collection; `None` for all collections.
    pub fn collection(&self) -> Option<&str> {
        self.part(2)
    }

    /// Checks whether the grant includes a bucket.
    pub fn is_for(&self, bucket: &str) -> bool {
        self.bucket().is_none_or(|name| name == bucket)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.role.name)?;
        if self.role.reach == Reach::Node {
            return Ok(());
        }
        let everywhere = if self.place.is_empty() { "*" } else { "" };
        write!(f, "[{everywhere}{}]", self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grants_are_formatted_as_they_are_parsed() {
        for text in [
            "admin",
            "bucket_admin[*]",
            "bucket_admin[a b]",
            "data_reader[b:s]",
            "data_reader[b:s:c]",
            "scope_admin[b:s]",
        ] {
            assert_eq!(Grant::parse(text).unwrap().to_string(), text);
        }
        for (text, same) in [
            (" admin ", "admin"),
            ("data_reader[b:*:*]", "data_reader[b]"),
            ("data_reader[b:s:*]", "data_reader[b:s]"),
        ] {
            assert_eq!(Grant::parse(text).unwrap().to_string(), same);
        }
    }

    #[test]
    fn malformed_grants_are_refused() {
        for text in [
            "",
            "nothing",
            "admin[b]",
            "bucket_admin",
            "bucket_admin[]",
            "bucket_admin[b:s]",
            "scope_admin[b:s:c]",
            "data_reader[b:s:c:d]",
            "data_reader[b:*:c]",
            "data_reader[*:s]",
            "data_reader[b::c]",
            "data_reader[b",
            "data_reader[b]x",
        ] {
            assert_eq!(Grant::parse(text), None, "{text}");
        }
    }

    #[test]
    fn names_of_roles_are_unique() {
        let mut names: Vec<&str> = ROLES.iter().map(|role| role.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ROLES.len());
    }
}
