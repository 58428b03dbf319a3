//! A row of the command table.

use identity::{Privilege, PrivilegeSet};
use wire::{Frame, Opcode};

use crate::context::Context;
use crate::outcome::CommandResult;

/// Object that a command works on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// A document of the selected bucket.
    Document,
    /// The selected bucket.
    Bucket,
    /// The node alone.
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

/// Place where a user must have a command's privileges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PrivilegeScope {
    /// The collection of the document.
    Document,
    /// At least one collection; the command checks each collection that it concerns.
    Anywhere,
    /// The whole bucket, or the node.
    Whole,
}

/// Kind of a large part in a command's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sends {
    Nothing,
    Document,
    /// A document of a vBucket that is a replica on this node.
    ReplicaDocument,
}

/// A row of the command table.
pub(crate) struct Command {
    pub(crate) opcode: Opcode,
    pub(crate) scope: Scope,
    /// Privileges that are needed, all of them.
    pub(crate) privileges: PrivilegeSet,
    /// Place where they are needed.
    pub(crate) within: PrivilegeScope,
    /// Whether clients of the memcached port may send it.
    pub(crate) memcached: bool,
    /// Kind of a large part in the answer.
    pub(crate) sends: Sends,
    /// Whether the command may be sent before a login.
    pub(crate) before_login: bool,
    /// Remark for the compatibility page on differences to the reference.
    pub(crate) note: &'static str,
    pub(crate) run: fn(&mut Context<'_>, &Frame<'_>) -> CommandResult,
}

impl Command {
    /// Checks whether the command changes a document.
    pub(crate) fn writes(&self) -> bool {
        const WRITES: PrivilegeSet = PrivilegeSet::of(&[
            Privilege::Insert,
            Privilege::Upsert,
            Privilege::Delete,
            Privilege::MetaWrite,
        ]);
        self.scope == Scope::Document && !self.privileges.common(WRITES).is_empty()
    }
}
