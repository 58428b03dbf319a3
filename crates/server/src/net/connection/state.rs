//! States of a connection: its socket, its next action, the thread that serves it.

use std::time::{Duration, Instant};

/// Readiness of a socket. Events are edge-triggered, so each flag holds until a call would block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SocketState {
    /// True if there may be something to read.
    pub(super) readable: bool,
    /// True if there may be room to write.
    pub(super) writable: bool,
    /// True if the peer sends nothing more. Earlier bytes may still be unread.
    pub(super) read_closed: bool,
}

/// Next action of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    /// Continue the TLS handshake; no data is sent before its end.
    Shake,
    Read,
    /// Run the backlog.
    Backlog,
    /// Run more of the backlog after other connections had their turn.
    Again,
    Park(Duration),
    /// Read again after this time: the flusher has to free quota first.
    Backoff(Duration),
    /// Wait for memory for the `more` missing bytes of a large request.
    AwaitMemory {
        more: usize,
        since: Instant,
    },
    /// Drop this many further bytes of a refused request.
    Skip(usize),
    /// Send more of the streams, after reading all available input.
    Produce,
    /// Close once the peer has read all output.
    Linger,
    /// Send nothing more, and drop further input.
    Drain,
    Close,
}

impl NextAction {
    /// Checks whether the connection may move to another thread before this action.
    pub(super) fn may_move(&self) -> bool {
        matches!(
            self,
            Self::Read | Self::Produce | Self::Again | Self::Backlog
        )
    }
}

/// The thread that serves a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::net) enum ServedBy {
    Worker(usize),
    /// A thread for this connection alone.
    OwnThread,
}

/// Result of a connection's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::net) enum TurnResult {
    /// Wait for an event of the socket, for mail, or until this time.
    Wait(Option<Instant>),
    /// Take another turn after other connections.
    Again,
    Ended,
    Moves(ServedBy),
}
