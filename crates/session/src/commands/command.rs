//! What a row of the command table says.

use identity::Role;
use wire::{Frame, Opcode};

use crate::context::Context;
use crate::outcome::{CommandOutcome, Refusal};

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

/// What a user must be allowed to do, in the protocol's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Privilege {
    Read,
    Insert,
    Upsert,
    Delete,
    SimpleStats,
    DcpProducer,
    DcpConsumer,
    RangeScan,
    NodeSupervisor,
    Administrator,
}

/// One row.
pub(crate) struct Command {
    pub(crate) opcode: Opcode,
    pub(crate) scope: Scope,
    /// All of them are needed. The administrator has all.
    pub(crate) privileges: &'static [Privilege],
    /// Whether [`Role::Memcached`] may send it.
    pub(crate) memcached: bool,
    /// Whether its answer may hold a large part of a document.
    pub(crate) sends_documents: bool,
    /// Whether it may be sent before a login.
    pub(crate) before_login: bool,
    /// A word on what is different here, for the compatibility page.
    pub(crate) note: &'static str,
    pub(crate) run: fn(&mut Context<'_>, &Frame<'_>) -> Result<CommandOutcome, Refusal>,
}

impl Command {
    /// Whether a peer in this role may send it.
    pub(crate) fn allows(&self, role: Role) -> bool {
        match role {
            Role::Admin => true,
            Role::Memcached => self.memcached,
        }
    }
}
