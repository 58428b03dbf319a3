//! A connection, and how it comes to the thread that serves it and leaves it.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use mio::net::TcpStream;
use registry::timings::Timings;
use registry::{Addresses, ConnectionInfo, Held, Mailbox};
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
    /// Where it is over TLS. Then what is unsent is sealed.
    pub(super) tls: Option<Box<Seal>>,
    /// Input that was read but not consumed: part of a frame, or what waits behind a parked
    /// request or a full output.
    pub(super) backlog: Vec<u8>,
    /// Output that the socket did not take, and how much of it was sent since.
    pub(super) unsent: Vec<u8>,
    pub(super) sent: usize,
    /// How much both are.
    pub(super) held: Held,
    /// Its streams are deferred by congestion.
    pub(super) streams_deferred: bool,
    pub(super) next: NextAction,
    /// What it waits for has an end then: room, its peer, the last answer to be read.
    pub(super) until: Option<Instant>,
    /// When a peer that does not read is given up.
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
    /// A connection from another worker, whose socket is in no poll.
    Moved(Box<Connection>),
}

impl Connection {
    /// Begins anew with a socket of which nothing is known yet.
    fn begin_elsewhere(&mut self) {
        // It may bring input along; and the mail that told of an owed answer may have been read.
        self.next = if !self.backlog.is_empty() || self.session.owes() {
            NextAction::Backlog
        } else if self.session.is_dcp() {
            NextAction::Produce
        } else {
            NextAction::Read
        };
        self.until = None;
        // Its peer may have ended what it sends without closing the socket, which is no event.
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

    /// What arrived, as a connection of this thread; `None` if its peer is gone.
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
            held: Held::nothing(&node.buffers, &info),
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

    /// Leaves this thread, whose list of sockets it has left already. Mail that comes meanwhile is
    /// found in the next one.
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
    /// Serves one connection in the thread that calls it.
    pub(in crate::net) alone: fn(Arrival, Arc<NetState>, WorkerContext) -> io::Result<()>,
}
