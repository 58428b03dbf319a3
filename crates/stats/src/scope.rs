//! What statistics are asked about, and why there are none.

use registry::{Registry, ServedBucket};

/// What a request for statistics may look at.
pub struct StatScope<'a> {
    /// The node.
    pub node: &'a Registry,
    /// The selected bucket.
    pub bucket: Option<&'a ServedBucket>,
    /// The connection that asks, if it is one.
    pub connection: Option<u64>,
}

/// Why there are no statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatError {
    /// No such group, or no such document.
    UnknownGroup,
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
