//! Connections that carry the changes of a bucket from one node to another: bytes arrive in order or not at all.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bucket::{Bucket, ReadySet};
use consumer::{FilledBucket, Intake, StandingOptions, StandingStreams, Unusable};
use copies::{Gate, Gated};
use model::VbId;
use registry::Progress;
use wire::dcp::StreamFlags;
use wire::{Decoded, Frame, Limits, Magic, Opcode, decode};

use crate::buckets::Deaf;
use crate::bugs::Bug;
use crate::disk::Disk;
use crate::planted::Planted;
use crate::producer::Producer;

/// Time without bytes after which a connection is given up.
pub(crate) const SILENCE_MS: u64 = 1_500;
/// Interval between two connections.
const BACKOFF_MS: u64 = 100;
const RETRY: Duration = Duration::from_millis(50);
const WINDOW_BYTES: u32 = 1 << 20;

/// Bytes in transit, of the connection `number` of a consumer.
#[derive(Clone)]
pub(crate) struct Bytes {
    pub(crate) number: u64,
    /// Number of messages that this side of the connection sent before.
    pub(crate) place: u64,
    pub(crate) frames: Vec<u8>,
}

/// Counts of messages that one side sent and received.
#[derive(Clone, Copy, Default)]
pub(crate) struct Places {
    sent: u64,
    got: u64,
}

/// Result of received bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Got {
    Next,
    Again,
    Gap,
}

impl Places {
    pub(crate) fn got(&mut self, place: u64) -> Got {
        if place < self.got {
            return Got::Again;
        }
        if place > self.got {
            return Got::Gap;
        }
        self.got += 1;
        Got::Next
    }

    pub(crate) fn send(&mut self, number: u64, frames: Vec<u8>) -> Bytes {
        let place = self.sent;
        self.sent += 1;
        Bytes {
            number,
            place,
            frames,
        }
    }
}

type Streams = StandingStreams<Box<Gated<Planted>>>;

/// The consumer's side.
pub(crate) struct Link {
    pub(crate) number: u64,
    pub(crate) places: Places,
    pub(crate) heard_ms: u64,
    /// Time at which a broken connection is made again.
    pub(crate) broken_until_ms: Option<u64>,
    streams: Streams,
    prepared: Arc<ReadySet>,
    turned: RefCell<Vec<VbId>>,
}

impl Link {
    pub(crate) fn new(
        (bucket, gate): (&Arc<Bucket<Disk>>, &Arc<Gate>),
        (peer, bug): (u16, Option<Bug>),
        number: u64,
        now_ms: u64,
    ) -> Self {
        let began_ns = now_ms * 1_000_000;
        let target = Box::new(Gated {
            target: Planted {
                filled: FilledBucket(Arc::clone(bucket)),
                bug,
            },
            gate: Arc::clone(gate),
            peer,
        });
        let progress = Arc::new(Progress::new(bucket.vbuckets()));
        let mut intake = Intake::new(target, progress, WINDOW_BYTES, began_ns);
        intake.agree_on_sync_writes(true);
        let wishes = StandingOptions {
            flags: StreamFlags::ACTIVE_ONLY,
            retry: RETRY,
            poll: None,
        };
        let prepared = Arc::new(ReadySet::new(Arc::new(Deaf)));
        bucket.tell_prepared(&prepared);
        Self {
            number,
            places: Places::default(),
            heard_ms: now_ms,
            broken_until_ms: None,
            streams: StandingStreams::new(intake, wishes, began_ns),
            prepared,
            turned: RefCell::default(),
        }
    }

    pub(crate) fn turn(&self, vb: VbId) {
        self.turned.borrow_mut().push(vb);
    }

    /// Sends pending messages.
    pub(crate) fn speak(&mut self, now_ms: u64, out: &mut Vec<u8>) {
        if self.broken_until_ms.is_some() {
            return;
        }
        self.streams.advance(now_ms * 1_000_000);
        for vb in self.turned.take() {
            self.streams.turn(vb, out);
        }
        while let Some(vb) = self.prepared.next(VbId(0)) {
            self.streams.intake().acknowledge_prepares(vb, out);
        }
        self.streams.ask_due(out);
    }

    /// Takes bytes of the producer.
    pub(crate) fn take(
        &mut self,
        bytes: &[u8],
        now_ms: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), Unusable> {
        self.heard_ms = now_ms;
        self.streams.advance(now_ms * 1_000_000);
        for frame in frames(bytes) {
            if frame.header.magic != Magic::ClientResponse {
                self.streams.pushed(&frame, out)?;
            } else if frame.header.opcode == Opcode::DCP_STREAM_REQ {
                self.streams.answered(&frame, out)?;
            }
        }
        self.streams.intake().acknowledge(now_ms * 1_000_000, out);
        Ok(())
    }

    pub(crate) fn breaks(&mut self, now_ms: u64) {
        self.broken_until_ms = Some(now_ms + BACKOFF_MS);
    }
}

/// The producer's side.
pub(crate) struct Served {
    pub(crate) number: u64,
    pub(crate) places: Places,
    pub(crate) heard_ms: u64,
    pub(crate) producer: Producer,
}

impl Served {
    pub(crate) fn take(&mut self, bytes: &[u8], now_ms: u64, out: &mut Vec<u8>) {
        self.heard_ms = now_ms;
        for frame in frames(bytes) {
            self.producer.request(&frame, out);
        }
    }
}

/// Connections of other nodes to a bucket of this node, by node.
pub(crate) type AllServed = BTreeMap<usize, Served>;

pub(crate) fn frames(bytes: &[u8]) -> impl Iterator<Item = Frame<'_>> {
    let mut done = 0;
    std::iter::from_fn(
        move || match decode(&bytes[done..], Limits::AUTHENTICATED) {
            Ok(Decoded::Frame { frame, consumed }) => {
                done += consumed;
                Some(frame)
            }
            Ok(Decoded::Incomplete { .. }) => None,
            Err(error) => panic!("{error}"),
        },
    )
}
