//! Requests for statistics, and their errors.

use identity::{Privilege, PrivilegeSet};
use model::CollectionId;
use registry::{Registry, ServedBucket};

use super::catalogue::Group;

/// Scope of a request for statistics.
pub struct StatScope<'a> {
    /// The node.
    pub node: &'a Registry,
    /// The selected bucket.
    pub bucket: Option<&'a ServedBucket>,
    /// The connection that asks, if any.
    pub connection: Option<u64>,
    /// Check of access to single collections; `None` if all are visible.
    pub access: Option<&'a StatAccess<'a>>,
}

impl StatScope<'_> {
    /// Checks whether the client has a privilege in a collection that exists.
    pub(super) fn check(
        &self,
        privilege: Privilege,
        collection: CollectionId,
    ) -> Result<(), StatError> {
        self.access
            .map_or(Ok(()), |access| access(privilege, collection))
    }
}

/// Returns `UnknownCollection` or `MissingPrivileges` if the client lacks a privilege.
pub type StatAccess<'a> = dyn Fn(Privilege, CollectionId) -> Result<(), StatError> + 'a;

/// Privileges that a group needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatNeeds {
    /// All of these privileges are needed.
    pub privileges: PrivilegeSet,
    /// Scope in which they are needed.
    pub within: StatPlace,
}

/// Scope of the privileges that a group needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatPlace {
    /// The node: the group shows all buckets.
    Node,
    /// The node or the selected bucket.
    NodeOrBucket,
    /// The whole selected bucket.
    Bucket,
    /// The collections that the group shows.
    Collections,
}

/// A requested group of statistics.
#[derive(Clone, Copy)]
pub(super) struct GroupRequest<'a> {
    pub(super) group: &'static Group,
    /// The words after the name.
    pub(super) arguments: &'a [&'a str],
}

/// Reason why there are no statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatError {
    /// Privileges are missing in the collection.
    MissingPrivileges(PrivilegeSet),
    /// The group or the document does not exist.
    UnknownGroup,
    /// The reference has the group; here it has no content, for this reason.
    NothingToTell(&'static str),
    /// The group needs a bucket, and none is selected.
    NoBucket,
    /// The vBucket does not exist.
    NoVbucket,
    /// The collection does not exist.
    UnknownCollection,
    /// The scope does not exist.
    UnknownScope,
    /// An argument is not valid, for this reason.
    Argument(&'static str),
}

/// The receiver of rows: key and value.
pub type Sink<'a> = dyn FnMut(&str, &str) + 'a;
