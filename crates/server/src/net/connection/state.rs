//! States of a connection: its socket, its next action, the thread that serves it.

use std::time::{Duration, Instant};

/// Readiness of a socket. Events are edge-triggered, so each flag holds until a call would block.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SocketState {
    /// There may be something to read.
    pub(super) readable: bool,
    /// There may be room to write.
    pub(super) writable: bool,
    /// The peer sends nothing more; what it sent before may still lie there.
    pub(super) read_closed: bool,
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextAction {
    /// Nothing is said before the handshake of TLS is over.
    Shake,
    Read,
    /// Run what is in the backlog.
    Backlog,
    /// There is more in the backlog; others go first.
    Again,
    Park(Duration),
    /// Read again after this long: the flusher has to free quota first.
    Backoff(Duration),
    /// The rest of a large request, so many bytes, waits for memory.
    AwaitMemory {
        more: usize,
        since: Instant,
    },
    /// So much of a request that was refused is still to come, and is dropped.
    Skip(usize),
    /// The streams have more to send; whatever can be read goes first.
    Produce,
    /// Close once the peer has read what was sent.
    Linger,
    /// Nothing is sent any more, and what still comes is dropped.
    Drain,
    Close,
}

impl NextAction {
    /// Whether a connection may leave its thread before it.
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

/// How a connection's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::net) enum TurnResult {
    /// Its next turn comes with news of the socket, with mail, or at this time.
    Wait(Option<Instant>),
    /// It could go on; others first.
    Again,
    Ended,
    Moves(ServedBy),
}
