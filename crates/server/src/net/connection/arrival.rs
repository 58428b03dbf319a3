//! A connection, and its moves between the threads that serve it.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use mio::net::TcpStream;
use registry::timings::Timings;
use registry::{Addresses, ConnectionBytes, ConnectionInfo, Mailbox};
use session::{Door, Session};

use super::seal::Seal;
use super::state::{NextAction, ServedBy, SocketState};
use crate::net::state::NetState;
use crate::net::worker_pool::WorkerPool;

/// A connection.
pub(crate) struct Connection {
    pub(in crate::net) stream: TcpStream,
    pub(in crate::net) session: Session,
    pub(in crate::net) info: Arc<ConnectionInfo>,
    pub(in crate::net) mailbox: Arc<Mailbox>,
    /// TLS of the connection, if it has TLS. Then `unsent` holds sealed records.
    pub(super) tls: Option<Box<Seal>>,
    /// Input that was read but not consumed: part of a frame, or input behind a parked request or a full output.
    pub(super) backlog: Vec<u8>,
    /// Output that the socket did not take, and the number of its bytes that were sent since.
    pub(super) unsent: Vec<u8>,
    pub(super) sent: usize,
    /// Memory that backlog and output hold.
    pub(super) held: ConnectionBytes,
    /// True if congestion defers the streams.
    pub(super) streams_deferred: bool,
    pub(super) next: NextAction,
    /// Time limit of the current wait: for memory, for the peer, or until the last answer is read.
    pub(super) until: Option<Instant>,
    /// Time at which a peer that does not read is disconnected.
    pub(super) unread_until: Option<Instant>,
    pub(super) socket: SocketState,
}

/// A connection that a worker is to serve.
pub(crate) enum Arrival {
    /// A socket that was just accepted.
    New {
        stream: std::net::TcpStream,
        door: Door,
    },
    /// A connection from another worker; its socket is in no poll.
    Moved(Box<Connection>),
}

impl Connection {
    /// Resets the state of the socket for a new thread: the poll of that thread knows nothing of it.
    fn begin_elsewhere(&mut self) {
        // Input may be left, and the mail about a decided owed answer may have been taken already.
        let answers = self.session.owes() || self.session.is_in_long_answer();
        self.next = if !self.backlog.is_empty() || answers {
            NextAction::Backlog
        } else if self.session.is_dcp() {
            NextAction::Produce
        } else {
            NextAction::Read
        };
        self.until = None;
        // A peer may end its sending over TLS without closing the socket; that makes no event.
        let readable = self.tls.as_ref().is_some_and(|tls| tls.is_closed());
        self.socket = SocketState {
            readable,
            ..SocketState::default()
        };
    }

    pub(in crate::net) fn end(mut self, node: &NetState) {
        self.session.end();
        node.connections.forget(self.info.id);
    }

    /// Makes a connection of this thread out of an arrival; `None` if the peer is gone.
    pub(in crate::net) fn admitted(
        arrival: Arrival,
        node: &Arc<NetState>,
        context: &WorkerContext,
    ) -> Option<Self> {
        let (stream, door) = match arrival {
            Arrival::New { stream, door } => (stream, door),
            Arrival::Moved(mut connection) => {
                connection.begin_elsewhere();
                connection.session.move_to(&context.timings);
                return Some(*connection);
            }
        };
        let mailbox = Arc::new(Mailbox::default());
        let tls = match door {
            Door::Tls => Some(Seal::of_connection(node)?),
            Door::Plain | Door::Classic => None,
        };
        let (Ok(peer), Ok(local)) = (stream.peer_addr(), stream.local_addr()) else {
            node.connections.give_up();
            return None;
        };
        let addresses = Addresses {
            peer,
            local,
            tls: tls.is_some(),
        };
        let info = node.connections.register(addresses, &mailbox);
        let timings = Arc::clone(&context.timings);
        let session = Session::new(Arc::clone(&node.registry), Arc::clone(&info), timings, door);
        let until = tls.is_some().then(|| Instant::now() + node.waits.handshake);
        let next = match tls {
            Some(_) => NextAction::Shake,
            None => NextAction::Read,
        };
        Some(Self {
            stream: TcpStream::from_std(stream),
            held: ConnectionBytes::nothing(&node.buffers, &info),
            streams_deferred: false,
            session,
            info,
            mailbox,
            tls,
            backlog: Vec::new(),
            unsent: Vec::new(),
            sent: 0,
            next,
            until,
            unread_until: None,
            socket: SocketState::default(),
        })
    }

    /// Moves the connection to another thread. It has left the poll of this thread already. The next thread finds mail
    /// that comes meanwhile.
    pub(in crate::net) fn move_to(
        self,
        served_by: ServedBy,
        node: &Arc<NetState>,
        context: WorkerContext,
    ) {
        let id = self.info.id;
        let arrival = Arrival::Moved(Box::new(self));
        match served_by {
            ServedBy::Worker(worker) => {
                context.pool.count_move();
                if let Err(Arrival::Moved(connection)) = context.pool.hand_over(worker, arrival) {
                    // The node stops.
                    connection.end(node);
                }
            }
            ServedBy::OwnThread => {
                let there = Arc::clone(node);
                let context = WorkerContext {
                    served_by,
                    ..context
                };
                let started = node.own_threads.start(move || {
                    if let Err(error) = (context.alone)(arrival, there, context) {
                        tracing::error!(%error, "a connection cannot be served");
                    }
                });
                if let Err(error) = started {
                    tracing::error!(%error, "a connection has no thread");
                    node.connections.forget(id);
                }
            }
        }
    }
}

/// The context of a serving thread.
#[derive(Clone)]
pub(in crate::net) struct WorkerContext {
    pub(in crate::net) served_by: ServedBy,
    pub(in crate::net) pool: Arc<WorkerPool<Arrival>>,
    pub(in crate::net) timings: Arc<Timings>,
    /// Serves one connection in the calling thread.
    pub(in crate::net) alone: fn(Arrival, Arc<NetState>, WorkerContext) -> io::Result<()>,
}
