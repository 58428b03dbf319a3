//! Audit events of a conversation.

use std::sync::Arc;

use audit::{Origin, Stamp};

/// Lines that were not submitted yet, with their common parts.
#[derive(Debug, Default)]
pub(crate) struct PendingAuditLines {
    pub(crate) lines: Vec<u8>,
    pub(crate) events: u64,
    pub(crate) stamp: Stamp,
    /// User, and the parts of lines about the user and the connection.
    pub(crate) origin: Option<(Name, Origin)>,
    /// Whether the last command was refused for missing privileges.
    pub(crate) refused: bool,
    /// Reason for the end of the conversation, if it is known.
    pub(crate) ends: Option<&'static str>,
}

/// The name of a user; `None` for a peer that did not log in.
pub(crate) type Name = Option<Arc<str>>;

impl PendingAuditLines {
    /// Adds a line that was written earlier.
    pub(crate) fn record_owed(&mut self, line: &[u8]) {
        if !line.is_empty() {
            self.lines.extend_from_slice(line);
            self.events += 1;
        }
    }
}
