//! States of a connection: its socket, its next action, the thread that serves it.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use registry::timings::Timings;

use super::Arrival;
use crate::net::state::NetState;
use crate::net::worker_pool::WorkerPool;

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
    /// Others must hold less before the rest of a large request is read.
    AwaitRoom(usize),
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

/// The context of a serving thread.
#[derive(Clone)]
pub(in crate::net) struct WorkerContext {
    pub(in crate::net) served_by: ServedBy,
    pub(in crate::net) pool: Arc<WorkerPool<Arrival>>,
    pub(in crate::net) timings: Arc<Timings>,
    /// Serves one connection in the thread that calls it.
    pub(in crate::net) alone: fn(Arrival, Arc<NetState>, WorkerContext) -> io::Result<()>,
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
