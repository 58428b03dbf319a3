//! A connection on which this process is the producer and the node is the consumer.
//!
//! ```text
//!   this process                                the node
//!   DCP_OPEN, ADD_STREAM of each vBucket  -->
//!                <-- one DCP_CONTROL after the other, then STREAM_REQ of each vBucket
//!   grants, markers, mutations            -->
//!                <-- BUFFER_ACK; an answer to a marker that asks for one
//! ```
//! The socket is blocking. It is read when the flow-control window is full or an answer is expected.

use std::time::{Duration, Instant};

use client::{Client, ClientError, Feed, Outgoing};
use model::{Seqno, VbId, VbUuid};
use wire::dcp::{AddStream, BufferAck, DcpControl, DcpOpen, OpenFlags, StreamFlags, StreamRequest};
use wire::{Envelope, Frame, Malformed, Message as _, Opaque, Opcode, Response, Status};

use super::changes::{Granted, MutationEncoder, SnapshotPlan};
use crate::error::{Cause, Error, broken_stream as broken, refused};

/// Number of bytes that are collected for one write.
pub(super) const CHUNK_BYTES: usize = 128 * 1024;
/// Longest wait of a read.
const TICK: Duration = Duration::from_millis(100);

/// The flow-control window of a connection: its size, and the bytes that are not acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct FlowWindow {
    /// Size of the window in bytes; 0 for no limit.
    limit: u64,
    outstanding: u64,
}

impl FlowWindow {
    /// Returns how many of `wanted` bytes may be sent.
    fn free(self, wanted: usize) -> usize {
        if self.limit == 0 {
            return wanted;
        }
        let free = self.limit.saturating_sub(self.outstanding);
        wanted.min(usize::try_from(free).unwrap_or(usize::MAX))
    }
}

/// Answers of the node so far.
#[derive(Clone, Copy, Debug, Default)]
struct ConsumerProgress {
    opened: bool,
    /// Number of answers to ADD_STREAM.
    added: usize,
    /// Number of answers to markers: snapshots with an acknowledged end.
    snapshots: u64,
    window: FlowWindow,
}

/// A connection on which this process is the producer.
pub(super) struct BenchProducer {
    /// The connection. Messages posted here are answers to requests of the node.
    feed: Feed,
    /// Whether the last message may be sent only in part, so that no answer may follow yet.
    in_message: bool,
    /// Stream messages that are not sent yet.
    output: Vec<u8>,
    /// Index of the stream for the next snapshot.
    next: usize,
    consumer: Consumer,
    timeout: Duration,
}

/// State of the node as consumer.
struct Consumer {
    /// Streams in the order of the node's requests.
    streams: Vec<Granted>,
    progress: ConsumerProgress,
    /// UUID of the history for new streams.
    uuid: VbUuid,
}

impl BenchProducer {
    /// Makes the node the consumer of `vbuckets`, which must be replica or pending. `run` distinguishes the
    /// connections and histories of this run from those of others.
    pub(super) fn open(
        client: Client,
        vbuckets: &[VbId],
        run: u32,
        number: u32,
        timeout: Duration,
    ) -> Result<Self, Error> {
        let mut producer = Self {
            feed: Feed::new(client),
            in_message: false,
            output: Vec::with_capacity(2 * CHUNK_BYTES),
            next: 0,
            consumer: Consumer {
                streams: Vec::new(),
                progress: ConsumerProgress::default(),
                uuid: VbUuid(u64::from(run) << 16 | 1),
            },
            timeout,
        };
        let name = format!("settee-bench-producer:{run:08x}:{number}");
        introduce(name.as_bytes(), vbuckets, producer.feed.output())?;
        producer.answer()?;
        producer.receive_until(|progress| progress.opened && progress.added == vbuckets.len())?;
        Ok(producer)
    }

    /// Size of the flow-control window in bytes; 0 for no limit.
    pub(super) fn window_bytes(&self) -> u64 {
        self.consumer.progress.window.limit
    }

    /// Number of snapshots whose end the node has acknowledged.
    pub(super) fn acknowledged(&self) -> u64 {
        self.consumer.progress.snapshots
    }

    /// Collects a snapshot for the next stream in turn.
    pub(super) fn push(
        &mut self,
        changes: &mut MutationEncoder,
        snapshot: SnapshotPlan,
    ) -> Result<(), Error> {
        let streams = &mut self.consumer.streams;
        let stream = &mut streams[self.next];
        let encoded = changes.snapshot(stream, snapshot, &mut self.output);
        encoded.map_err(ClientError::from)?;
        self.next = (self.next + 1) % streams.len();
        Ok(())
    }

    /// Number of collected bytes that are not sent yet.
    pub(super) fn unsent(&self) -> usize {
        self.output.len()
    }

    /// Sends the collected bytes, as far as the window allows.
    pub(super) fn send(&mut self) -> Result<(), Error> {
        let output = std::mem::take(&mut self.output);
        let mut sent = 0;
        while sent < output.len() {
            let free = self.consumer.progress.window.free(output.len() - sent);
            if free == 0 {
                self.in_message = sent > 0;
                let full = self.consumer.progress.window.outstanding;
                self.receive_until(|progress| progress.window.outstanding < full)?;
                continue;
            }
            self.feed.send(&output[sent..sent + free])?;
            self.consumer.progress.window.outstanding += free as u64;
            sent += free;
        }
        self.output = output;
        self.output.clear();
        self.in_message = false;
        self.answer()
    }

    /// Waits until `snapshots` snapshots are acknowledged since the connection was opened.
    pub(super) fn await_acknowledged(&mut self, snapshots: u64) -> Result<(), Error> {
        self.receive_until(|progress| progress.snapshots >= snapshots)
    }

    fn receive_until(&mut self, done: impl Fn(&ConsumerProgress) -> bool) -> Result<(), Error> {
        let mut heard = Instant::now();
        while !done(&self.consumer.progress) {
            if self.receive()? {
                heard = Instant::now();
            } else if heard.elapsed() > self.timeout {
                let reason = format!("the consumer says nothing for {:?}", self.timeout);
                return Err(Error::new(Cause::Unavailable, reason));
            }
        }
        Ok(())
    }

    /// Reads once and processes all messages; returns whether any arrived.
    fn receive(&mut self) -> Result<bool, Error> {
        let consumer = &mut self.consumer;
        let came = self
            .feed
            .receive(TICK, |frame, out| consumer.take(frame, out))?;
        self.answer()?;
        Ok(came)
    }

    fn answer(&mut self) -> Result<(), Error> {
        if !self.in_message {
            self.feed.flush()?;
        }
        Ok(())
    }
}

/// Sends the requests that make the node a consumer.
fn introduce(name: &[u8], vbuckets: &[VbId], out: &mut Outgoing) -> Result<(), ClientError> {
    let open = DcpOpen {
        flags: OpenFlags(0),
        name,
        value: b"",
    };
    out.post(&open, &Envelope::default())?;
    for &vbucket in vbuckets {
        let envelope = Envelope {
            vbucket,
            ..Envelope::default()
        };
        let flags = StreamFlags(0);
        out.post(&AddStream { flags }, &envelope)?;
    }
    Ok(())
}

impl Consumer {
    fn take(&mut self, frame: &Frame<'_>, out: &mut Outgoing) -> Result<(), Error> {
        let header = frame.header;
        if header.magic.is_client_response() {
            return self.take_answer(frame);
        }
        if !header.magic.is_client_request() {
            return Ok(());
        }
        match header.opcode {
            Opcode::DCP_CONTROL => self.take_control(frame, out),
            Opcode::DCP_STREAM_REQ => self.grant(frame, out),
            Opcode::DCP_BUFFER_ACK => {
                let ack = BufferAck::parse(frame).map_err(malformed)?;
                let outstanding = &mut self.progress.window.outstanding;
                *outstanding = outstanding.saturating_sub(ack.bytes.into());
                Ok(())
            }
            Opcode::DCP_CLOSE_STREAM => Err(broken("the consumer closed a stream")),
            _ => Ok(()),
        }
    }

    fn take_answer(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        let opcode = frame.header.opcode;
        if frame.status() != Status::SUCCESS {
            return Err(refused(opcode, frame.status()));
        }
        match opcode {
            Opcode::DCP_OPEN => self.progress.opened = true,
            Opcode::DCP_ADD_STREAM => self.progress.added += 1,
            Opcode::DCP_SNAPSHOT_MARKER => self.progress.snapshots += 1,
            _ => {}
        }
        Ok(())
    }

    /// Accepts every setting; applies only the size of the window.
    fn take_control(&mut self, frame: &Frame<'_>, out: &mut Outgoing) -> Result<(), Error> {
        let control = DcpControl::parse(frame).map_err(malformed)?;
        if control.name == b"connection_buffer_size" {
            let bytes = control.number();
            let bytes = bytes.ok_or_else(|| broken("a window that is not a number"))?;
            self.progress.window.limit = bytes.into();
        }
        respond(frame.header.opaque, Opcode::DCP_CONTROL, &[], out);
        Ok(())
    }

    /// Grants a stream from the position of the node's vBucket.
    fn grant(&mut self, frame: &Frame<'_>, out: &mut Outgoing) -> Result<(), Error> {
        let request = StreamRequest::parse(frame).map_err(malformed)?;
        let uuid = if request.uuid == VbUuid(0) {
            self.uuid
        } else {
            request.uuid
        };
        let log = [uuid.0.to_be_bytes(), Seqno::ZERO.0.to_be_bytes()].concat();
        respond(frame.header.opaque, Opcode::DCP_STREAM_REQ, &log, out);
        self.streams.push(Granted {
            vb: frame.vbucket(),
            opaque: frame.header.opaque,
            last: request.start,
        });
        Ok(())
    }
}

fn respond(opaque: Opaque, opcode: Opcode, value: &[u8], out: &mut Outgoing) {
    out.answer(&Response {
        value,
        ..Response::new(opcode, opaque, Status::SUCCESS)
    });
}

fn malformed(error: Malformed) -> Error {
    broken(&error.to_string())
}

#[cfg(test)]
mod tests {
    use client::Input;

    use super::*;

    #[test]
    fn window_limits_sent_bytes() {
        let window = |limit, outstanding| FlowWindow { limit, outstanding };
        assert_eq!(window(0, 1 << 40).free(100), 100, "no flow control");
        assert_eq!(window(1000, 0).free(100), 100);
        assert_eq!(window(1000, 950).free(100), 50);
        assert_eq!(window(1000, 1000).free(100), 0);
        assert_eq!(window(1000, 1001).free(100), 0, "a window that shrank");
    }

    #[test]
    fn producer_grants_settings_and_streams_of_consumer() {
        let mut consumer = Consumer {
            streams: Vec::new(),
            progress: ConsumerProgress::default(),
            uuid: VbUuid(1),
        };
        let (mut asked, mut answers) = (Outgoing::default(), Outgoing::default());
        let envelope = |vb, opaque| Envelope {
            vbucket: VbId(vb),
            opaque: Opaque(opaque),
            ..Envelope::default()
        };
        let control = DcpControl {
            name: b"connection_buffer_size",
            value: b"4096",
        };
        asked.post(&control, &envelope(0, [6; 4])).unwrap();
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
        asked.post(&request, &envelope(3, [7; 4])).unwrap();
        let (mut input, mut bytes) = (Input::new(1_024), asked.bytes());
        while input.unread_bytes() < asked.bytes().len() {
            input.fill(&mut bytes).unwrap();
        }
        while let Some(frame) = input.next().unwrap() {
            consumer.take(&frame, &mut answers).unwrap();
        }
        assert_eq!(consumer.progress.window.limit, 4096);
        let granted = Granted {
            vb: VbId(3),
            opaque: Opaque([7; 4]),
            last: Seqno(12),
        };
        assert_eq!(consumer.streams, [granted]);
        let log = [99_u64.to_be_bytes(), [0; 8]].concat();
        assert!(answers.bytes().ends_with(&log), "the history goes on");
    }
}
