//! The connections of a worker, and the choice of the node for each request.

use std::io;
use std::net::TcpStream;

use client::{Link, Nodes};
use mio::{Interest, Registry, Token};
use model::VbId;

use crate::connection::{Connection, Due, Socket};
use crate::error::{Cause, Error};
use crate::plan::Plan;

/// Bytes of an answer to a read, without the value: header and flags.
const ANSWER_OVERHEAD_BYTES: usize = wire::HEADER_BYTES + 4;
/// Limit of node numbers in a token: token = connection * limit + node.
const NODES_MAX: usize = 1 << 16;
/// Pause before a request that no node executed is sent again, while the map is unchanged.
pub(crate) const AGAIN_NS: u64 = 5_000_000;

/// All connections of a worker.
#[derive(Debug)]
pub(crate) struct Connections {
    pub(crate) all: Vec<Connection>,
    pub(crate) routes: Routes,
    /// Connections with requests to be sent again.
    pub(crate) waiting: Vec<usize>,
}

/// The nodes and the map by which requests are sent.
#[derive(Debug)]
pub(crate) struct Routes {
    nodes: Nodes,
    /// Number of the map.
    map: u64,
    registry: Registry,
    depth: usize,
    answer_bytes: usize,
}

impl Connections {
    /// Creates connections from open sockets; `first` is the number of the first connection.
    pub(crate) fn new(
        sockets: Vec<Vec<(usize, Link<TcpStream>)>>,
        first: u32,
        nodes: Nodes,
        registry: Registry,
        plan: &Plan,
    ) -> io::Result<Self> {
        let routes = Routes {
            nodes,
            map: 0,
            registry,
            depth: plan.depth,
            answer_bytes: plan.sizes.most + ANSWER_OVERHEAD_BYTES,
        };
        let mut all = Vec::with_capacity(sockets.len());
        for (index, (sockets, number)) in sockets.into_iter().zip(first..).enumerate() {
            let mut connection = Connection::new(number);
            for (node, socket) in sockets {
                connection.add(node, routes.take_over(socket, index, node)?);
            }
            all.push(connection);
        }
        Ok(Self {
            all,
            routes,
            waiting: Vec::new(),
        })
    }

    /// Notes a request that no node executed; it is sent again at `again_ns`.
    pub(crate) fn send_again(&mut self, index: usize, due: Due, again_ns: u64) {
        let connection = &mut self.all[index];
        if connection.again.is_empty() {
            self.waiting.push(index);
        }
        connection.again.push(due);
        connection.again_ns = again_ns;
    }
}

impl Routes {
    /// Number of the newest map.
    pub(crate) fn map(&self) -> u64 {
        self.map
    }

    /// Returns the node of a vBucket; `None` if there is none.
    pub(crate) fn owner(&self, vbucket: VbId) -> Option<usize> {
        self.nodes.owner(vbucket)
    }

    /// Processes the map in a refusal; returns whether it is newer.
    pub(crate) fn learn(&mut self, map: &[u8], named_by: usize) -> bool {
        let is_newer = self.nodes.learn(map, named_by);
        self.map += u64::from(is_newer);
        is_newer
    }

    /// Connects to a node for a connection.
    pub(crate) fn connect(&mut self, index: usize, node: usize) -> Result<Socket, Error> {
        let socket = self.nodes.open(node)?.into_stream();
        let taken = self.take_over(socket, index, node);
        let failed = |error| Error::new(Cause::Machine, format!("load generator: {error}"));
        taken.map_err(failed)
    }

    fn take_over(&self, socket: Link<TcpStream>, index: usize, node: usize) -> io::Result<Socket> {
        socket.socket().set_nonblocking(true)?;
        let mut stream = socket.map(mio::net::TcpStream::from_std);
        let interest = Interest::READABLE | Interest::WRITABLE;
        let token = Token(index * NODES_MAX + node % NODES_MAX);
        self.registry
            .register(stream.socket_mut(), token, interest)?;
        Ok(Socket::new(stream, self.depth, self.answer_bytes))
    }
}

/// Returns connection and node of a token.
pub(crate) fn connection_of(token: Token) -> (usize, usize) {
    (token.0 / NODES_MAX, token.0 % NODES_MAX)
}
