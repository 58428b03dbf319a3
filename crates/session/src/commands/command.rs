//! What a row of the command table says.

use identity::PrivilegeSet;
use wire::{Frame, Opcode};

use crate::context::Context;
use crate::outcome::CommandResult;

/// What a command needs to run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A document of the selected bucket.
    Document,
    /// The selected bucket.
    Bucket,
    /// Nothing but the node.
    Node,
}

impl Scope {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Document => "document",
            Self::Bucket => "bucket",
            Self::Node => "node",
        }
    }
}

/// Where a user must have a command's privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Where {
    /// In the collection of the document.
    Document,
    /// In one collection at least; the command looks at each one that it concerns.
    Anywhere,
    /// In the whole bucket, or on the node.
    Whole,
}

/// Of what an answer may hold a large part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sends {
    Nothing,
    Document,
    /// A document of a vBucket that is a replica here.
    ReplicaDocument,
}

/// One row.
pub(crate) struct Command {
    pub(crate) opcode: Opcode,
    pub(crate) scope: Scope,
    /// All of them are needed.
    pub(crate) privileges: PrivilegeSet,
    /// Where they are needed.
    pub(crate) within: Where,
    /// Whether clients of the memcached port may send it.
    pub(crate) memcached: bool,
    /// Of what its answer may hold a large part.
    pub(crate) sends: Sends,
    /// Whether it may be sent before a login.
    pub(crate) before_login: bool,
    /// A word on what is different here, for the compatibility page.
    pub(crate) note: &'static str,
    pub(crate) run: fn(&mut Context<'_>, &Frame<'_>) -> CommandResult,
}
