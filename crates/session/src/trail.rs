//! What a conversation leaves for audits.

use std::sync::Arc;

use audit::{Origin, Stamp};

/// Lines that were not handed on yet, and what many of them have in common.
#[derive(Debug, Default)]
pub(crate) struct Trail {
    pub(crate) lines: Vec<u8>,
    pub(crate) events: u64,
    pub(crate) stamp: Stamp,
    /// The user, and what lines tell of it and of the connection.
    pub(crate) origin: Option<(Name, Origin)>,
    /// Set when the last command was refused since its user may not send it.
    pub(crate) refused: bool,
    /// Why the conversation ends, where that is known.
    pub(crate) ends: Option<&'static str>,
}

/// The name of a user; `None` for a peer that did not log in.
pub(crate) type Name = Option<Arc<str>>;

impl Trail {
    /// Takes a line that was written before.
    pub(crate) fn record_owed(&mut self, line: &[u8]) {
        if !line.is_empty() {
            self.lines.extend_from_slice(line);
            self.events += 1;
        }
    }
}
