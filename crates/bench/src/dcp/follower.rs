//! A connection with a stream of every vBucket, and the positions of these streams.

use std::time::{Duration, Instant};

use client::{Client, Feed, Outgoing};
use model::{Seqno, SnapshotRange, VbId, VbUuid};
use wire::dcp::{
    BufferAck, DcpControl, MarkerFlags, OpenFlags, SnapshotMarker, StreamEnd, StreamFlags,
    StreamRequest, flow_bytes_of,
};
use wire::{Envelope, Frame, Message as _, Opaque, Opcode, Response, Status};

use crate::error::{Cause, Error, broken_stream as broken, refused};

/// Size of the flow-control window for a connection that should receive almost nothing.
pub(super) const CLOSED_WINDOW: u32 = 1;
/// Longest wait of a read.
const TICK: Duration = Duration::from_millis(100);

/// Numbers of received bytes and messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FollowerFigures {
    /// Number of document changes.
    pub(super) changes: u64,
    /// Number of changes in snapshots from the store.
    pub(super) from_disk: u64,
    /// Number of announced snapshots.
    pub(super) snapshots: u64,
    /// Size of all messages in bytes.
    pub(super) bytes: u64,
}

/// Position of a stream.
#[derive(Clone, Copy, Debug, Default)]
struct StreamPosition {
    reached: Seqno,
    wanted: Seqno,
    disk: bool,
}

/// The streams of one connection.
pub(super) struct Follower {
    feed: Feed,
    streams: Streams,
    window: u32,
    timeout: Duration,
}

/// Positions and figures of the streams.
#[derive(Default)]
struct Streams {
    positions: Vec<StreamPosition>,
    /// Number of streams that have not reached their wanted seqno.
    behind: usize,
    /// Number of requested streams that are not granted yet.
    unanswered: usize,
    unacknowledged: usize,
    figures: FollowerFigures,
}

impl Follower {
    /// Opens change streams on a connection, and requests all of them.
    pub(super) fn open(mut client: Client, window: u32, timeout: Duration) -> Result<Self, Error> {
        let Some(vbuckets) = client.key_form().vbuckets else {
            let reason = "--dcp: memcached has no change streams; use couchbase://";
            return Err(Error::usage(reason));
        };
        client.open_streams("settee-bench", OpenFlags(0), window)?;
        let mut follower = Self {
            feed: Feed::new(client),
            streams: Streams {
                positions: vec![StreamPosition::default(); usize::from(vbuckets)],
                ..Streams::default()
            },
            window,
            timeout,
        };
        follower.request_all()?;
        Ok(follower)
    }

    /// Number of streams.
    pub(super) fn streams(&self) -> usize {
        self.streams.positions.len()
    }

    /// Figures of all streams so far.
    pub(super) fn figures(&self) -> FollowerFigures {
        self.streams.figures
    }

    /// Requests all streams, from the beginning and without an end.
    fn request_all(&mut self) -> Result<(), Error> {
        for index in 0..self.streams() {
            let request = StreamRequest {
                flags: StreamFlags(0),
                start: Seqno::ZERO,
                end: Seqno(u64::MAX),
                uuid: VbUuid(0),
                snapshot: SnapshotRange {
                    start: Seqno::ZERO,
                    end: Seqno::ZERO,
                },
                value: b"",
            };
            let envelope = Envelope {
                vbucket: VbId(index as u16),
                opaque: Opaque((index as u32).to_be_bytes()),
                ..Envelope::default()
            };
            self.feed.output().post(&request, &envelope)?;
        }
        self.streams.unanswered = self.streams();
        Ok(self.feed.flush()?)
    }

    /// Sets the size of the flow-control window in bytes; 0 for no limit.
    pub(super) fn set_window(&mut self, window: u32) -> Result<(), Error> {
        let bytes = window.to_string();
        let control = DcpControl {
            name: b"connection_buffer_size",
            value: bytes.as_bytes(),
        };
        self.feed.output().post(&control, &Envelope::default())?;
        self.window = window;
        Ok(self.feed.flush()?)
    }

    /// Reads until every stream is granted.
    pub(super) fn follow_to_grants(&mut self) -> Result<(), Error> {
        self.read_until(|streams| streams.unanswered == 0, &mut |_, _| {})
    }

    /// Reads until every stream has reached its seqno in `wanted`.
    pub(super) fn follow_to(&mut self, wanted: &[(VbId, Seqno)]) -> Result<(), Error> {
        self.follow_to_with(wanted, &mut |_, _| {})
    }

    /// Does the same, and passes key and value of every mutation to `on_mutation`.
    pub(super) fn follow_to_with(
        &mut self,
        wanted: &[(VbId, Seqno)],
        on_mutation: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Error> {
        self.streams.want(wanted);
        self.read_until(|streams| streams.behind == 0, on_mutation)
    }

    fn read_until(
        &mut self,
        done: impl Fn(&Streams) -> bool,
        on_mutation: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Error> {
        let mut heard = Instant::now();
        while !done(&self.streams) {
            if self.read(on_mutation)? {
                heard = Instant::now();
            } else if heard.elapsed() > self.timeout {
                let reason = format!("the streams stand still for {:?}", self.timeout);
                return Err(Error::new(Cause::Unavailable, reason));
            }
        }
        Ok(())
    }

    /// Reads once with a short wait, and processes all messages. Passes key and value of every mutation to
    /// `on_mutation`. Returns whether any message arrived.
    pub(super) fn read(
        &mut self,
        on_mutation: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<bool, Error> {
        let streams = &mut self.streams;
        let came = self
            .feed
            .receive(TICK, |frame, out| streams.take(frame, out, on_mutation))?;
        self.acknowledge()?;
        self.feed.flush()?;
        Ok(came)
    }

    fn acknowledge(&mut self) -> Result<(), Error> {
        let unacknowledged = &mut self.streams.unacknowledged;
        if self.window == 0 || *unacknowledged < self.window as usize / 2 {
            return Ok(());
        }
        let bytes = u32::try_from(*unacknowledged).unwrap_or(u32::MAX);
        *unacknowledged -= bytes as usize;
        let ack = BufferAck { bytes };
        Ok(self.feed.output().post(&ack, &Envelope::default())?)
    }
}

impl Streams {
    fn want(&mut self, wanted: &[(VbId, Seqno)]) {
        self.behind = 0;
        for (vb, seqno) in wanted {
            if let Some(position) = self.positions.get_mut(usize::from(vb.0)) {
                position.wanted = *seqno;
                self.behind += usize::from(position.reached < *seqno);
            }
        }
    }

    fn take(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Outgoing,
        on_mutation: &mut impl FnMut(&[u8], &[u8]),
    ) -> Result<(), Error> {
        self.unacknowledged += flow_bytes_of(frame);
        let header = frame.header;
        if header.magic.is_client_response() {
            return self.take_answer(frame);
        }
        if !header.magic.is_client_request() {
            return Ok(());
        }
        self.figures.bytes += frame.wire_bytes() as u64;
        match header.opcode {
            Opcode::DCP_NOOP => {
                let answer = Response::new(Opcode::DCP_NOOP, header.opaque, Status::SUCCESS);
                out.answer(&answer);
                Ok(())
            }
            Opcode::DCP_MUTATION => {
                on_mutation(frame.key, frame.value);
                self.change(frame)
            }
            Opcode::DCP_DELETION | Opcode::DCP_EXPIRATION => self.change(frame),
            Opcode::DCP_SNAPSHOT_MARKER => self.snapshot(frame),
            Opcode::DCP_STREAM_END => Err(ended(frame)),
            Opcode::DCP_SYSTEM_EVENT | Opcode::DCP_SEQNO_ADVANCED => self.reach(frame),
            _ => Ok(()),
        }
    }

    fn take_answer(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        if frame.status() != Status::SUCCESS {
            return Err(refused(frame.header.opcode, frame.status()));
        }
        if frame.header.opcode == Opcode::DCP_STREAM_REQ {
            self.unanswered = self.unanswered.saturating_sub(1);
        }
        Ok(())
    }

    fn position(&mut self, frame: &Frame<'_>) -> Result<&mut StreamPosition, Error> {
        let index = u32::from_be_bytes(frame.header.opaque.0) as usize;
        let position = self.positions.get_mut(index);
        position.ok_or_else(|| broken("a message of an unknown stream"))
    }

    fn change(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        self.figures.changes += 1;
        let from_disk = self.position(frame)?.disk;
        self.figures.from_disk += u64::from(from_disk);
        self.reach(frame)
    }

    fn reach(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        let seqno = seqno_of(frame)?;
        let position = self.position(frame)?;
        if seqno <= position.reached {
            return Err(broken("seqnos do not ascend"));
        }
        let arrives = position.reached < position.wanted && seqno >= position.wanted;
        position.reached = seqno;
        self.behind -= usize::from(arrives);
        Ok(())
    }

    fn snapshot(&mut self, frame: &Frame<'_>) -> Result<(), Error> {
        self.figures.snapshots += 1;
        let marker = SnapshotMarker::read(frame).map_err(|error| broken(&error.to_string()))?;
        self.position(frame)?.disk = marker.flags.contains(MarkerFlags::DISK);
        Ok(())
    }
}

/// Returns the seqno at the start of the extras.
fn seqno_of(frame: &Frame<'_>) -> Result<Seqno, Error> {
    let first = frame.extras.first_chunk();
    let first = first.ok_or_else(|| broken("a change without a seqno"))?;
    Ok(Seqno(u64::from_be_bytes(*first)))
}

/// Returns the error for a stream end: streams without an end should not end.
fn ended(frame: &Frame<'_>) -> Error {
    match StreamEnd::read(frame) {
        Ok(end) => broken(&format!("a stream ended: {}", end.reason.name())),
        Err(error) => broken(&error.to_string()),
    }
}
