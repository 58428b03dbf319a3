//! One connection on which this process is the producer and the node the consumer.
//!
//! ```text
//!   this process                                the node
//!   DCP_OPEN, ADD_STREAM of each vBucket  -->
//!                <-- one DCP_CONTROL after the other, then STREAM_REQ of each vBucket
//!   grants, markers, mutations            -->
//!                <-- BUFFER_ACK; an answer to a marker that asks for one
//! ```
//! The socket blocks. It is read when the flow-control window is full, or an answer is awaited.

use std::net::TcpStream;
use std::time::{Duration, Instant};

use model::{Seqno, VbId, VbUuid};
use wire::dcp::{AddStream, BufferAck, DcpControl, DcpOpen, OpenFlags, StreamFlags, StreamRequest};
use wire::{Decoded, Envelope, Frame, Message as _, Opaque, Opcode, Response, Status, TooLong};

use super::super::follower::{broken, lost};
use super::changes::{Changes, Granted, Snapshot};
use crate::bench::connection::Input;
use crate::client::{ANSWER_LIMITS, Client, ClientError, Link, code_of_status};
use crate::exit::{Failure, Sysexit};

/// Bytes that are read at once.
const INPUT_BYTES: usize = 16 * 1024;
/// Bytes that are collected before they are sent.
pub(super) const CHUNK_BYTES: usize = 128 * 1024;
/// Longest wait for bytes before the clock is looked at.
const TICK: Duration = Duration::from_millis(100);

/// The window of a connection: bytes that may be sent, and bytes that were not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    /// 0 for no limit.
    limit: u64,
    outstanding: u64,
}

impl Window {
    /// How many of `wanted` bytes may be sent now.
    fn free(self, wanted: usize) -> usize {
        if self.limit == 0 {
            return wanted;
        }
        let free = self.limit.saturating_sub(self.outstanding);
        wanted.min(usize::try_from(free).unwrap_or(usize::MAX))
    }
}

/// What the node has said so far.
#[derive(Clone, Copy, Debug, Default)]
struct Heard {
    opened: bool,
    /// Answers to ADD_STREAM.
    added: usize,
    /// Answers to markers: snapshots whose end was acknowledged.
    snapshots: u64,
    window: Window,
}

/// A connection as producer.
pub(super) struct Producer {
    stream: Link<TcpStream>,
    input: Input,
    /// Answers to requests of the node.
    answers: Vec<u8>,
    /// The last message that was sent may lack its end: no answer may come in between.
    in_message: bool,
    /// Messages of streams that were not sent yet.
    output: Vec<u8>,
    /// Streams in the order in which the node asked for them.
    streams: Vec<Granted>,
    /// The stream that gets the next snapshot.
    next: usize,
    heard: Heard,
    uuid: VbUuid,
    timeout: Duration,
}

impl Producer {
    /// Makes the node the consumer of `vbuckets`, each a replica or pending. `run` tells the
    /// connections and histories of one run from those of others.
    pub(super) fn open(
        client: Client,
        vbuckets: &[VbId],
        (run, number): (u32, u32),
        timeout: Duration,
    ) -> Result<Self, Failure> {
        let stream = client.into_stream();
        stream.socket().set_read_timeout(Some(TICK)).map_err(lost)?;
        let mut producer = Self {
            stream,
            input: Input::new(INPUT_BYTES),
            answers: Vec::new(),
            in_message: false,
            output: Vec::with_capacity(2 * CHUNK_BYTES),
            streams: Vec::new(),
            next: 0,
            heard: Heard::default(),
            uuid: VbUuid(u64::from(run) << 16 | 1),
            timeout,
        };
        let name = format!("settee-bench-producer:{run:08x}:{number}");
        let asked = introduction(name.as_bytes(), vbuckets, &mut producer.answers);
        asked.map_err(ClientError::from)?;
        producer.answer()?;
        producer.receive_until(|heard| heard.opened && heard.added == vbuckets.len())?;
        Ok(producer)
    }

    /// Bytes that the node lets this connection send without an acknowledgement; 0 for any number.
    pub(super) fn window_bytes(&self) -> u64 {
        self.heard.window.limit
    }

    /// Snapshots whose end the node has acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.heard.snapshots
    }

    /// Collects a snapshot for the next stream in turn.
    pub(super) fn push(
        &mut self,
        changes: &mut Changes,
        snapshot: Snapshot,
    ) -> Result<(), Failure> {
        let stream = &mut self.streams[self.next];
        let encoded = changes.snapshot(stream, snapshot, &mut self.output);
        encoded.map_err(ClientError::from)?;
        self.next = (self.next + 1) % self.streams.len();
        Ok(())
    }

    /// Bytes that were collected and not sent yet.
    pub(super) fn unsent(&self) -> usize {
        self.output.len()
    }

    /// Sends what was collected, as far as the window allows at a time.
    pub(super) fn send(&mut self) -> Result<(), Failure> {
        let output = std::mem::take(&mut self.output);
        let mut sent = 0;
        while sent < output.len() {
            let free = self.heard.window.free(output.len() - sent);
            if free == 0 {
                self.in_message = sent > 0;
                let full = self.heard.window.outstanding;
                self.receive_until(|heard| heard.window.outstanding < full)?;
                continue;
            }
            let written = std::io::Write::write_all(&mut self.stream, &output[sent..sent + free]);
            written.map_err(lost)?;
            self.heard.window.outstanding += free as u64;
            sent += free;
        }
        self.output = output;
        self.output.clear();
        self.in_message = false;
        self.answer()
    }

    /// Waits until so many snapshots are acknowledged since the connection was opened.
    pub(super) fn await_acknowledged(&mut self, snapshots: u64) -> Result<(), Failure> {
        self.receive_until(|heard| heard.snapshots >= snapshots)
    }

    fn receive_until(&mut self, done: impl Fn(&Heard) -> bool) -> Result<(), Failure> {
        let mut heard = Instant::now();
        while !done(&self.heard) {
            if self.receive()? {
                heard = Instant::now();
            } else if heard.elapsed() > self.timeout {
                let reason = format!("the consumer says nothing for {:?}", self.timeout);
                return Err(Failure::new(Sysexit::Unavailable, reason));
            }
        }
        Ok(())
    }

    /// Reads once and takes all messages; whether anything came.
    fn receive(&mut self) -> Result<bool, Failure> {
        let before = self.input.bytes().len();
        self.input.fill(&mut self.stream).map_err(lost)?;
        let came = self.input.bytes().len() > before;
        let mut consumed = 0;
        let missing = loop {
            let bytes = &self.input.bytes()[consumed..];
            let decoded = wire::decode(bytes, ANSWER_LIMITS);
            match decoded.map_err(|error| broken(&error.to_string()))? {
                Decoded::Incomplete { more } => break more,
                Decoded::Frame {
                    frame,
                    consumed: length,
                } => {
                    consumed += length;
                    let mut taker = Taker {
                        heard: &mut self.heard,
                        streams: &mut self.streams,
                        answers: &mut self.answers,
                        uuid: self.uuid,
                    };
                    taker.take(&frame)?;
                }
            }
        };
        self.input.consume(consumed);
        self.input.make_room(missing);
        self.answer()?;
        Ok(came)
    }

    fn answer(&mut self) -> Result<(), Failure> {
        if !self.in_message && !self.answers.is_empty() {
            std::io::Write::write_all(&mut self.stream, &self.answers).map_err(lost)?;
            self.answers.clear();
        }
        Ok(())
    }
}

/// The requests that make the node a consumer.
fn introduction(name: &[u8], vbuckets: &[VbId], out: &mut Vec<u8>) -> Result<(), TooLong> {
    let open = DcpOpen {
        flags: OpenFlags(0),
        name,
        value: b"",
    };
    open.encode(&Envelope::default(), out)?;
    for &vbucket in vbuckets {
        let envelope = Envelope {
            vbucket,
            ..Envelope::default()
        };
        let flags = StreamFlags(0);
        AddStream { flags }.encode(&envelope, out)?;
    }
    Ok(())
}

/// What a message of the node changes.
struct Taker<'a> {
    heard: &'a mut Heard,
    streams: &'a mut Vec<Granted>,
    answers: &'a mut Vec<u8>,
    uuid: VbUuid,
}

impl Taker<'_> {
    fn take(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        let header = frame.header;
        if header.magic.is_client_response() {
            return self.take_answer(frame);
        }
        if !header.magic.is_client_request() {
            return Ok(());
        }
        match header.opcode {
            Opcode::DCP_CONTROL => self.take_control(frame),
            Opcode::DCP_STREAM_REQ => self.grant(frame),
            Opcode::DCP_BUFFER_ACK => {
                let ack = BufferAck::parse(frame).map_err(|error| broken(&error.to_string()))?;
                let outstanding = &mut self.heard.window.outstanding;
                *outstanding = outstanding.saturating_sub(ack.bytes.into());
                Ok(())
            }
            Opcode::DCP_CLOSE_STREAM => Err(broken("the consumer closed a stream")),
            _ => Ok(()),
        }
    }

    fn take_answer(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        let opcode = frame.header.opcode;
        let status = frame.status();
        if status != Status::SUCCESS {
            let reason = format!("{}: {}", opcode.name(), status.description());
            return Err(Failure::new(code_of_status(status), reason));
        }
        match opcode {
            Opcode::DCP_OPEN => self.heard.opened = true,
            Opcode::DCP_ADD_STREAM => self.heard.added += 1,
            Opcode::DCP_SNAPSHOT_MARKER => self.heard.snapshots += 1,
            _ => {}
        }
        Ok(())
    }

    /// Every setting is agreed to; that of the window counts.
    fn take_control(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        let control = DcpControl::parse(frame).map_err(|error| broken(&error.to_string()))?;
        if control.name == b"connection_buffer_size" {
            let bytes = control.number();
            let bytes = bytes.ok_or_else(|| broken("a window that is not a number"))?;
            self.heard.window.limit = bytes.into();
        }
        self.respond(frame.header.opaque, Opcode::DCP_CONTROL, &[]);
        Ok(())
    }

    /// A stream goes on where the node's vBucket stands.
    fn grant(&mut self, frame: &Frame<'_>) -> Result<(), Failure> {
        let request = StreamRequest::parse(frame).map_err(|error| broken(&error.to_string()))?;
        let uuid = if request.uuid == VbUuid(0) {
            self.uuid
        } else {
            request.uuid
        };
        let log = [uuid.0.to_be_bytes(), Seqno::ZERO.0.to_be_bytes()].concat();
        self.respond(frame.header.opaque, Opcode::DCP_STREAM_REQ, &log);
        self.streams.push(Granted {
            vb: frame.vbucket(),
            opaque: frame.header.opaque,
            last: request.start,
        });
        Ok(())
    }

    fn respond(&mut self, opaque: Opaque, opcode: Opcode, value: &[u8]) {
        let response = Response {
            value,
            ..Response::new(opcode, opaque, Status::SUCCESS)
        };
        response.encode(self.answers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_limits_what_is_sent() {
        let window = |limit, outstanding| Window { limit, outstanding };
        assert_eq!(window(0, 1 << 40).free(100), 100, "no flow control");
        assert_eq!(window(1000, 0).free(100), 100);
        assert_eq!(window(1000, 950).free(100), 50);
        assert_eq!(window(1000, 1000).free(100), 0);
        assert_eq!(window(1000, 1001).free(100), 0, "a window that shrank");
    }

    #[test]
    fn what_the_consumer_asks_is_granted() {
        let (mut heard, mut streams, mut answers) = (Heard::default(), Vec::new(), Vec::new());
        let mut asked = Vec::new();
        let envelope = |vb, opaque| Envelope {
            vbucket: VbId(vb),
            opaque: Opaque(opaque),
            ..Envelope::default()
        };
        let control = DcpControl {
            name: b"connection_buffer_size",
            value: b"4096",
        };
        control.encode(&envelope(0, [6; 4]), &mut asked).unwrap();
        let request = StreamRequest {
            flags: StreamFlags(0),
            start: Seqno(12),
            end: Seqno(u64::MAX),
            uuid: VbUuid(99),
            snapshot: model::SnapshotRange {
                start: Seqno(12),
                end: Seqno(12),
            },
            value: b"",
        };
        request.encode(&envelope(3, [7; 4]), &mut asked).unwrap();
        let mut at = 0;
        while let Ok(Decoded::Frame { frame, consumed }) = wire::decode(&asked[at..], ANSWER_LIMITS)
        {
            at += consumed;
            let mut taker = Taker {
                heard: &mut heard,
                streams: &mut streams,
                answers: &mut answers,
                uuid: VbUuid(1),
            };
            taker.take(&frame).unwrap();
        }
        assert_eq!(heard.window.limit, 4096);
        let granted = Granted {
            vb: VbId(3),
            opaque: Opaque([7; 4]),
            last: Seqno(12),
        };
        assert_eq!(streams, [granted]);
        let log = [99_u64.to_be_bytes(), [0; 8]].concat();
        assert!(answers.ends_with(&log), "the history goes on");
    }
}
