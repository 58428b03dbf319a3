//! One non-blocking connection: what is outstanding, what is half read, what is half written.

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use mio::net::TcpStream;
use wire::Opaque;

use super::verify::Memory;
use super::workload::{Kind, Request};
use crate::client::Link;

/// Least and most bytes of a fresh read buffer; it grows to the longest answer.
const INPUT_BYTES: std::ops::RangeInclusive<usize> = 16 * 1024..=256 * 1024;

/// A request whose answer is awaited.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    /// The request.
    pub(crate) request: Request,
    /// When it was to be sent, in nanoseconds since the start of the job.
    pub(crate) intended_ns: u64,
}

/// Bytes that were read and not yet consumed.
#[derive(Debug)]
pub(crate) struct Input {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Input {
    pub(crate) fn new(expected: usize) -> Self {
        let bytes = expected.clamp(*INPUT_BYTES.start(), *INPUT_BYTES.end());
        Self {
            buffer: vec![0; bytes],
            start: 0,
            end: 0,
        }
    }

    /// What can be decoded.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Forgets the first `count` bytes.
    pub(crate) fn consume(&mut self, count: usize) {
        self.start += count;
        debug_assert!(self.start <= self.end);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Makes room for an answer of which `more` bytes are missing, and for others behind it.
    pub(crate) fn make_room(&mut self, more: usize) {
        if self.buffer.len() - self.end >= more.max(self.buffer.len() / 2) {
            return;
        }
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.buffer.len() - self.end < more {
            self.buffer.resize((self.end + more).next_power_of_two(), 0);
        }
    }

    /// Reads once. `false`: nothing more is there for now, or will be without an event.
    pub(crate) fn fill(&mut self, stream: &mut impl Read) -> io::Result<bool> {
        let space = &mut self.buffer[self.end..];
        let wanted = space.len();
        debug_assert!(wanted > 0, "make_room comes first");
        match stream.read(space) {
            Ok(0) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "the server closed it",
            )),
            Ok(count) => {
                self.end += count;
                Ok(count == wanted)
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(true),
            Err(error) => Err(error),
        }
    }
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
    /// What the connection knows to be stored.
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
        Self {
            stream,
            number,
            pending: VecDeque::with_capacity(depth),
            input: Input::new(depth.saturating_mul(answer_bytes)),
            memory: Memory::default(),
            issued: 0,
            output: Vec::new(),
            sent: 0,
            versions: 0,
        }
    }

    /// Notes a request as outstanding; `encode` appends its frame to the output. It is sent now,
    /// and was to be sent at some time before.
    pub(crate) fn issue(
        &mut self,
        operation: (Kind, u64),
        (intended_ns, now_ns): (u64, u64),
        encode: impl FnOnce(&Request, &mut Vec<u8>),
    ) {
        self.versions += 1;
        self.issued += 1;
        let request = Request {
            kind: operation.0,
            key: operation.1,
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
    ///
    /// # Errors
    /// The connection broke.
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
    ///
    /// # Errors
    /// The connection broke or was closed.
    pub(crate) fn fill(&mut self) -> io::Result<bool> {
        let before = self.input.bytes().len();
        let more = self.input.fill(&mut self.stream)?;
        // One record comes at a time; there may be others.
        Ok(more || (self.stream.is_sealed() && self.input.bytes().len() > before))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_grows_and_keeps_what_is_unread() {
        let mut source: &[u8] = &(0..=255).cycle().take(50_000).collect::<Vec<u8>>();
        let expected = source.to_vec();
        let mut input = Input::new(0);
        assert!(
            input.fill(&mut source).unwrap(),
            "a full buffer: there may be more"
        );
        assert_eq!(input.bytes(), &expected[..16_384]);
        input.consume(10_000);
        input.make_room(40_000 - (16_384 - 10_000));
        while input.bytes().len() < 40_000 {
            input.fill(&mut source).unwrap();
        }
        assert_eq!(input.bytes(), &expected[10_000..]);
        input.consume(40_000);
        assert!(input.bytes().is_empty());
        input.make_room(1);
        let closed = input.fill(&mut source).unwrap_err();
        assert_eq!(closed.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn a_full_buffer_always_gets_room() {
        let mut input = Input::new(0);
        let mut endless = io::repeat(7);
        for _ in 0..5 {
            input.make_room(1);
            input.fill(&mut endless).unwrap();
        }
        assert!(input.bytes().len() > 16_384);
    }
}
