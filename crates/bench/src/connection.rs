//! One connection of the load: a non-blocking socket to each node of the bucket, with its outstanding requests,
//! partly read input and partly written output.

use std::collections::VecDeque;
use std::io::{self, Write};

use client::{Input, Link};
use mio::net::TcpStream;
use model::VbId;
use wire::Opaque;

use crate::error::{Error, lost};
use crate::verify::Memory;
use crate::workload::{Operation, PlannedRequest};

/// Smallest and largest size of a new receive buffer.
const INPUT_BYTES: std::ops::RangeInclusive<usize> = 16 * 1024..=256 * 1024;

/// A request that waits for its answer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// The request.
    pub(crate) request: PlannedRequest,
    /// Time at which it was due, in nanoseconds since the start of the job.
    pub(crate) intended_ns: u64,
}

/// An operation to send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// The operation.
    pub(crate) operation: Operation,
    /// The vBucket of its key.
    pub(crate) vbucket: VbId,
    /// Time at which it is due, in nanoseconds since the start of the job.
    pub(crate) intended_ns: u64,
}

/// A socket to one node.
#[derive(Debug)]
pub(crate) struct Socket {
    /// The stream, registered for reading and writing, edge-triggered.
    stream: Link<TcpStream>,
    /// Requests that wait for their answers, oldest first.
    pub(crate) pending: VecDeque<Pending>,
    /// Bytes read and not yet consumed.
    pub(crate) input: Input,
    output: Vec<u8>,
    sent: usize,
}

/// One connection. Answers to requests for a key arrive in the order of execution, even if the key moves to
/// another node.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// Number among all connections to this server, from 1.
    pub(crate) number: u32,
    /// The newest revisions that the connection has seen.
    pub(crate) memory: Memory,
    /// Number of requests in the current job.
    pub(crate) issued: u64,
    /// Sockets by node number.
    pub(crate) sockets: Vec<Option<Socket>>,
    /// Requests that no node has executed, to be sent again.
    pub(crate) again: Vec<Due>,
    /// Time at which they are sent again.
    pub(crate) again_ns: u64,
    /// Number of the map by which outstanding requests were sent.
    map: u64,
    versions: u64,
}

impl Socket {
    /// Creates a socket for a stream without outstanding requests.
    ///
    /// `depth` requests will be outstanding; their answers take about `answer_bytes` each.
    pub(crate) fn new(stream: Link<TcpStream>, depth: usize, answer_bytes: usize) -> Self {
        let input_bytes = depth.saturating_mul(answer_bytes);
        let input_bytes = input_bytes.clamp(*INPUT_BYTES.start(), *INPUT_BYTES.end());
        Self {
            stream,
            pending: VecDeque::with_capacity(depth),
            input: Input::new(input_bytes),
            output: Vec::new(),
            sent: 0,
        }
    }

    /// Writes as much as the socket accepts. The rest follows when it becomes writable.
    fn flush(&mut self) -> io::Result<()> {
        while self.sent < self.output.len() {
            match self.stream.write(&self.output[self.sent..]) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => self.sent += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.output.clear();
        self.sent = 0;
        match self.stream.flush() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Reads once; returns `true` if there may be more to read.
    fn fill(&mut self) -> io::Result<bool> {
        let before = self.input.unread_bytes();
        let filled = self.input.fill_ready(&mut self.stream)?;
        // TLS returns one record at a time; there may be more.
        Ok(filled || (self.stream.is_sealed() && self.input.unread_bytes() > before))
    }
}

impl Connection {
    /// Creates a connection without sockets.
    pub(crate) fn new(number: u32) -> Self {
        Self {
            number,
            ..Self::default()
        }
    }

    /// Adds the socket to a node.
    pub(crate) fn add(&mut self, node: usize, socket: Socket) {
        if self.sockets.len() <= node {
            self.sockets.resize_with(node + 1, || None);
        }
        self.sockets[node] = Some(socket);
    }

    /// Returns the socket to a node, if there is one.
    pub(crate) fn socket(&mut self, node: usize) -> Option<&mut Socket> {
        self.sockets.get_mut(node)?.as_mut()
    }

    /// Number of requests that wait for answers or are to be sent again.
    pub(crate) fn outstanding(&self) -> usize {
        let sockets = self.sockets.iter().flatten();
        self.again.len() + sockets.map(|socket| socket.pending.len()).sum::<usize>()
    }

    /// Switches to another map once no request of the old one is outstanding: until then two nodes could execute
    /// requests for the same key. Returns whether requests may be sent.
    pub(crate) fn follows(&mut self, map: u64) -> bool {
        if self.map != map && self.outstanding() == self.again.len() {
            self.map = map;
        }
        self.map == map
    }

    /// Adds an outstanding request to a node with a socket. `encode` appends its frame to the output. It is sent
    /// at `now_ns`.
    pub(crate) fn issue(
        &mut self,
        node: usize,
        due: Due,
        now_ns: u64,
        encode: impl FnOnce(&PlannedRequest, &mut Vec<u8>),
    ) {
        self.versions += 1;
        let request = PlannedRequest {
            operation: due.operation,
            vbucket: due.vbucket,
            opaque: Opaque((self.versions as u32).to_be_bytes()),
            writer: self.number,
            version: self.versions,
            late_ns: now_ns.saturating_sub(due.intended_ns),
        };
        if let Some(socket) = self.socket(node) {
            encode(&request, &mut socket.output);
            socket.pending.push_back(Pending {
                request,
                intended_ns: due.intended_ns,
            });
        }
    }

    /// Writes as much as the sockets accept. The rest follows when they become writable.
    pub(crate) fn flush(&mut self) -> Result<(), Error> {
        let mut sockets = self.sockets.iter_mut().flatten();
        let flushed = sockets.try_for_each(Socket::flush);
        flushed.map_err(|source| lost(self.number, &source))
    }

    /// Reads once from a node; returns `true` if there may be more to read. If one of several nodes closes a
    /// connection without outstanding requests, the node has left.
    pub(crate) fn fill(&mut self, node: usize) -> Result<bool, Error> {
        let is_one_of_several = self.sockets.len() > 1;
        let Some(socket) = self.socket(node) else {
            return Ok(false);
        };
        match socket.fill() {
            Ok(more) => Ok(more),
            Err(_) if is_one_of_several && socket.pending.is_empty() => {
                self.sockets[node] = None;
                Ok(false)
            }
            Err(source) => Err(lost(self.number, &source)),
        }
    }
}
