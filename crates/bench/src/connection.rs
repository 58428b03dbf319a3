//! One non-blocking connection: what is outstanding, what is half read, what is half written.

use std::collections::VecDeque;
use std::io::{self, Write};

use client::{Input, Link};
use mio::net::TcpStream;
use wire::Opaque;

use crate::verify::Memory;
use crate::workload::{Operation, Request};

/// Least and most bytes of a fresh receive buffer.
const INPUT_BYTES: std::ops::RangeInclusive<usize> = 16 * 1024..=256 * 1024;

/// A request whose answer is awaited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// The request.
    pub(crate) request: Request,
    /// When it was to be sent, in nanoseconds since the start of the job.
    pub(crate) intended_ns: u64,
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Connection {
    /// The socket; registered for reading and writing, edge-triggered.
    pub(crate) stream: Link<TcpStream>,
    /// Number among all connections to this server, from 1.
    pub(crate) number: u32,
    /// Requests whose answers are awaited, oldest first.
    pub(crate) pending: VecDeque<Pending>,
    /// Bytes read and not yet consumed.
    pub(crate) input: Input,
    /// The newest revisions that the connection knows of.
    pub(crate) memory: Memory,
    /// Requests that were made in the current job.
    pub(crate) issued: u64,
    output: Vec<u8>,
    sent: usize,
    versions: u64,
}

impl Connection {
    /// Takes over a socket on which nothing is outstanding.
    ///
    /// `depth` requests will be outstanding; their answers take about `answer_bytes` each.
    pub(crate) fn new(
        stream: Link<TcpStream>,
        number: u32,
        depth: usize,
        answer_bytes: usize,
    ) -> Self {
        let input_bytes = depth.saturating_mul(answer_bytes);
        let input_bytes = input_bytes.clamp(*INPUT_BYTES.start(), *INPUT_BYTES.end());
        Self {
            stream,
            number,
            pending: VecDeque::with_capacity(depth),
            input: Input::new(input_bytes),
            memory: Memory::default(),
            issued: 0,
            output: Vec::new(),
            sent: 0,
            versions: 0,
        }
    }

    /// Notes a request as outstanding; `encode` appends its frame to the output. It is sent at
    /// `now_ns`, and was to be sent at `intended_ns`.
    pub(crate) fn issue(
        &mut self,
        operation: Operation,
        intended_ns: u64,
        now_ns: u64,
        encode: impl FnOnce(&Request, &mut Vec<u8>),
    ) {
        self.versions += 1;
        self.issued += 1;
        let request = Request {
            operation,
            opaque: Opaque((self.versions as u32).to_be_bytes()),
            writer: self.number,
            version: self.versions,
            late_ns: now_ns.saturating_sub(intended_ns),
        };
        encode(&request, &mut self.output);
        self.pending.push_back(Pending {
            request,
            intended_ns,
        });
    }

    /// Writes as much as the socket takes; the rest follows when it becomes writable.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
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

    /// Reads once; `true` if there may be more to read.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        let before = self.input.unread_bytes();
        let filled = self.input.fill_ready(&mut self.stream)?;
        // TLS gives one record at a time; there may be others.
        Ok(filled || (self.stream.is_sealed() && self.input.unread_bytes() > before))
    }
}
