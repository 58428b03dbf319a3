//! The command table, with one row per opcode, and the commands.

#![expect(
    clippy::unnecessary_wraps,
    reason = "all commands have the signature that their row asks for"
)]

mod audit;
mod bootstrap;
mod collections;
mod command;
mod control;
mod dcp;
mod documents;
mod durable;
mod find;
mod node;
mod observe;
mod page;
mod params;
mod read;
mod refused;
mod replication;
mod return_meta;
mod scan;
mod subdoc;
mod table;
mod vbuckets;
mod with_meta;
mod write;

pub(crate) use command::{Command, PrivilegeScope, Scope, Sends};
pub(crate) use documents::absolute_expiry;
pub(crate) use find::find;
pub use page::opcodes_page;
pub(crate) use refused::reason;
