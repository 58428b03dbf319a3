//! What statistics are asked about, and why there are none.

use identity::{Privilege, PrivilegeSet};
use model::CollectionId;
use registry::{Registry, ServedBucket};

use super::catalogue::Group;

/// What a request for statistics may look at.
pub struct StatScope<'a> {
    /// The node.
    pub node: &'a Registry,
    /// The selected bucket.
    pub bucket: Option<&'a ServedBucket>,
    /// The connection that asks, if it is one.
    pub connection: Option<u64>,
    /// What may be told of single collections; `None` for all of them.
    pub access: Option<&'a StatAccess<'a>>,
}

impl StatScope<'_> {
    /// Whether the asker has a privilege in a collection that exists.
    pub(super) fn check(
        &self,
        privilege: Privilege,
        collection: CollectionId,
    ) -> Result<(), StatError> {
        self.access
            .map_or(Ok(()), |access| access(privilege, collection))
    }
}

/// Gives `UnknownCollection` or `MissingPrivileges` where the asker does not have a privilege.
pub type StatAccess<'a> = dyn Fn(Privilege, CollectionId) -> Result<(), StatError> + 'a;

/// What a group needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatNeeds {
    /// All of them.
    pub privileges: PrivilegeSet,
    /// Where.
    pub within: StatPlace,
}

/// Where privileges are needed for a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatPlace {
    /// On the node: the group tells of all buckets.
    Node,
    /// On the node, or in the selected bucket.
    NodeOrBucket,
    /// In the whole of the selected bucket.
    Bucket,
    /// In the collections that it tells of.
    Collections,
}

/// A group of statistics that is asked for.
#[derive(Clone, Copy)]
pub(super) struct Request<'a> {
    pub(super) group: &'static Group,
    /// The words behind its name.
    pub(super) arguments: &'a [&'a str],
}

/// Why there are no statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatError {
    /// Privileges are missing in the collection.
    MissingPrivileges(PrivilegeSet),
    /// No such group, or no such document.
    UnknownGroup,
    /// The reference has the group, and there is nothing to tell here, for this reason.
    NothingToTell(&'static str),
    /// The group is about a bucket, and none is selected.
    NoBucket,
    /// No such vBucket.
    NoVbucket,
    /// No such collection.
    UnknownCollection,
    /// No such scope.
    UnknownScope,
    /// An argument makes no sense, for this reason.
    Argument(&'static str),
}

/// Where rows go: key and value.
pub type Sink<'a> = dyn FnMut(&str, &str) + 'a;
