//! The producer: all streams of one connection, its window, its timers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bucket::{BackfillBuffer, Bucket, ReadySet, Wake};
use engine::dcp::{FlowControl, Keepalive, Pulse, Stream, StreamEnd};
use model::{Now, VbId};
use registry::dcp::{NegotiatedSettings, ProducerFigures, StreamFigures, StreamKey, Totals};
use registry::{Env, ServedBucket, Store};
use wire::dcp::{DcpControl, OpenFlags};
use wire::{FeatureSet, Opaque, Opcode, Status};

use super::control::{self, ControlChange};
use super::filter::Limit;
use super::sink::EventSink;
use super::streams::{OpenStream, StreamTurn, Visited};
use crate::outcome::Refusal;

/// Bytes that one stream sends before other streams get their turn.
const SHARE_BYTES: usize = 64 << 10;
/// Interval between noops unless the consumer sets another.
const NOOP_INTERVAL_NS: u64 = 20 * 1_000_000_000;

/// Prefix of a producer's name in statistics.
pub(super) const PREFIX: &str = "eq_dcpq:";

/// Parameters of a new producer.
pub struct Opening {
    /// Flags from the consumer's DCP_OPEN.
    pub flags: OpenFlags,
    /// Time of the opening.
    pub now: Now,
    /// Longest silence of the consumer.
    pub silence_max: Duration,
    /// The process around the node.
    pub env: Arc<dyn Env>,
}

/// Result of a producer's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Produced {
    /// Nothing to send until a wake, an acknowledgement or the deadline.
    Idle,
    /// There is more to send; other connections go first.
    More,
    /// The consumer has been silent for too long, or the producer is closed.
    Silent,
}

/// Check whether the peer may have a stream with these limits.
pub type StreamCheck<'a> = dyn Fn(Option<&Limit>) -> Result<(), Refusal> + 'a;

/// The producer of a connection.
pub struct Producer {
    pub(super) name: Box<str>,
    pub(super) served: Arc<ServedBucket>,
    env: Arc<dyn Env>,
    pub(super) settings: NegotiatedSettings,
    flow: FlowControl,
    pub(super) keepalive: Keepalive,
    pub(super) ready: Arc<ReadySet>,
    buffer: Arc<BackfillBuffer>,
    pub(super) streams: BTreeMap<StreamKey, Box<OpenStream>>,
    next_vb: VbId,
    /// Offset at which the streams of a vBucket begin, so that each of them comes first in turn.
    rotation: usize,
    totals: Totals,
    created_s: u32,
    pub(super) closed: bool,
}

impl Producer {
    /// Creates a producer without streams. `name` is the consumer's; `wake` is called when there is something
    /// to send.
    pub fn new(
        name: &str,
        served: Arc<ServedBucket>,
        wake: Arc<dyn Wake>,
        opening: Opening,
    ) -> Self {
        let Opening {
            flags,
            now,
            silence_max,
            env,
        } = opening;
        let silence_ns = u64::try_from(silence_max.as_nanos()).unwrap_or(u64::MAX);
        let ready = Arc::new(ReadySet::new(wake));
        let buffer = served.bucket.backfill_buffer(&ready);
        Self {
            name: format!("{PREFIX}{name}").into(),
            served,
            env,
            settings: NegotiatedSettings::of(flags),
            flow: FlowControl::default(),
            keepalive: Keepalive::new(NOOP_INTERVAL_NS, silence_ns, now.mono_ns),
            ready,
            buffer,
            streams: BTreeMap::new(),
            next_vb: VbId(0),
            rotation: 0,
            totals: Totals::default(),
            created_s: now.unix_s(),
            closed: false,
        }
    }

    pub(super) fn bucket(&self) -> &Bucket<Store> {
        &self.served.bucket
    }

    /// Applies a setting of the consumer.
    pub fn control(
        &mut self,
        control: &DcpControl<'_>,
        features: FeatureSet,
    ) -> Result<(), Refusal> {
        if control.name == DcpControl::BUCKET_UUID {
            if control.value == self.served.uuid.as_bytes() {
                return Ok(());
            }
            return Err(Refusal::invalid("this is another bucket of its name"));
        }
        match control::apply(&mut self.settings, control, features)? {
            ControlChange::None => {}
            ControlChange::Noop(on) => self.keepalive.enable(on),
            ControlChange::NoopIntervalNs(interval) => self.keepalive.set_interval(interval),
            ControlChange::Window(bytes) => self.flow.set_window(bytes),
            ControlChange::SequentialBackfills(on) => self.buffer.set_sequential(on),
        }
        Ok(())
    }

    pub(super) fn key(&self, vb: VbId, id: Option<u16>) -> Result<StreamKey, Refusal> {
        if id.is_some() != self.settings.stream_ids {
            return Err(Status::DCP_STREAM_ID_INVALID.into());
        }
        Ok(StreamKey {
            vb,
            id: id.unwrap_or(0),
        })
    }

    pub(super) fn unsubscribe_unless_used(&self, vb: VbId) {
        if self.streams.range(range_of(vb)).next().is_none() {
            self.bucket().unsubscribe(vb, &self.ready);
        }
    }

    /// Closes a stream at the consumer's request.
    pub fn close_stream(&mut self, vb: VbId, id: Option<u16>) -> Result<(), Refusal> {
        let key = self.key(vb, id)?;
        if !self.streams.contains_key(&key) {
            return Err(Status::KEY_ENOENT.into());
        }
        if self.settings.end_on_close {
            self.end(key, StreamEnd::Closed);
        } else {
            self.remove(key);
        }
        Ok(())
    }

    /// Ends the streams for which the peer has lost the privilege.
    pub(crate) fn end_unless(&mut self, may: &StreamCheck<'_>) {
        let lost = self.streams.iter();
        let lost = lost.filter(|(_, entry)| may(entry.limit.as_deref()).is_err());
        let lost: Vec<StreamKey> = lost.map(|(key, _)| *key).collect();
        for key in lost {
            self.end(key, StreamEnd::LostPrivileges);
        }
    }

    /// Makes a stream send its end; it is removed after that.
    fn end(&mut self, key: StreamKey, end: StreamEnd) {
        if let Some(entry) = self.streams.get_mut(&key) {
            entry.backfill = None;
            entry.stream.finish(end);
            self.ready.mark(key.vb);
        }
    }

    fn remove(&mut self, key: StreamKey) {
        if let Some(mut entry) = self.streams.remove(&key) {
            entry.release(key.vb, &self.served.bucket);
            self.unsubscribe_unless_used(key.vb);
        }
    }

    /// Takes a flow-control acknowledgement of the consumer.
    pub fn acknowledge(&mut self, bytes: u32) {
        if !self.flow.acknowledge(bytes) {
            tracing::debug!(name = &*self.name, bytes, "more acknowledged than was sent");
        }
    }

    /// Records that the consumer sent something.
    pub fn heard(&mut self, now: Now) {
        self.keepalive.heard(now.mono_ns);
    }

    /// Takes the consumer's answer to a message; `false` if the answer is a reason to close the connection.
    pub fn answered(&mut self, opcode: Opcode, status: Status, opaque: Opaque) -> bool {
        let of_stream = |entry: &(&StreamKey, &mut Box<OpenStream>)| entry.1.opaque == opaque;
        match status {
            Status::SUCCESS => {
                if opcode == Opcode::DCP_NOOP {
                    self.keepalive.answered();
                    return true;
                }
                let acknowledges: fn(&mut Stream) -> bool = match opcode {
                    Opcode::DCP_SET_VBUCKET_STATE => Stream::state_acknowledged,
                    Opcode::DCP_SNAPSHOT_MARKER => Stream::snapshot_acknowledged,
                    _ => return true,
                };
                let found = self
                    .streams
                    .iter_mut()
                    .filter(of_stream)
                    .find_map(|(key, entry)| acknowledges(&mut entry.stream).then_some(key.vb));
                if let Some(vb) = found {
                    self.ready.mark(vb);
                }
                true
            }
            // With these statuses the consumer has no such stream.
            Status::NOT_MY_VBUCKET
            | Status::KEY_ENOENT
            | Status::KEY_EEXISTS
            | Status::DCP_STREAM_NOT_FOUND
            | Status::OPAQUE_NO_MATCH => {
                let found = self.streams.iter_mut().find(of_stream).map(|(key, _)| *key);
                if let Some(key) = found {
                    self.remove(key);
                }
                true
            }
            _ => false,
        }
    }

    /// Returns the name of the replica that acknowledges prepares of the vBucket.
    pub fn replica_of(&self, vb: VbId) -> Result<String, Refusal> {
        let name = &self.settings.consumer_name;
        if !self.settings.sync_writes || name.is_empty() {
            let reason = "the consumer did not say that it replicates sync writes";
            return Err(Refusal::invalid(reason));
        }
        if self.streams.range(range_of(vb)).next().is_none() {
            return Err(if self.settings.new_statuses {
                Status::DCP_STREAM_NOT_FOUND.into()
            } else {
                Status::KEY_ENOENT.into()
            });
        }
        Ok(name.clone())
    }

    /// Sends a bounded amount of what is ready, as far as there is room.
    pub fn produce(&mut self, now: Now, sink: &mut impl EventSink) -> Produced {
        if self.closed {
            return Produced::Silent;
        }
        match self.keepalive.poll(now.mono_ns) {
            Pulse::Nothing => {}
            Pulse::Noop => {
                if sink.noop() {
                    self.keepalive.answered();
                }
            }
            Pulse::Silent => return Produced::Silent,
        }
        let limit = sink.bytes() + self.settings.priority.turn_bytes();
        let mut followed = VbSet::default();
        while sink.bytes() < limit && !sink.ends_turn() {
            if !self.flow.has_room() {
                return Produced::Idle;
            }
            let Some(vb) = self.ready.next(self.next_vb) else {
                return Produced::Idle;
            };
            if followed.contains(vb) {
                // Send what was taken from it first. Meanwhile more changes arrive, and the next visit
                // disturbs their writers only once for all of them.
                self.ready.mark_quietly(vb);
                break;
            }
            self.next_vb = VbId(vb.0 + 1);
            let visited = self.visit(vb, now, limit, sink);
            if visited != Visited::Idle {
                // No wake is needed: this connection continues by itself.
                self.ready.mark_quietly(vb);
            }
            if visited != Visited::Unfinished {
                followed.insert(vb);
            }
        }
        Produced::More
    }

    /// Visits the streams of a vBucket once; returns how far they came.
    fn visit(&mut self, vb: VbId, now: Now, limit: usize, sink: &mut impl EventSink) -> Visited {
        let mut keys: Vec<StreamKey> = Vec::new();
        keys.extend(self.streams.range(range_of(vb)).map(|(key, _)| *key));
        if keys.len() > 1 {
            self.rotation = self.rotation.wrapping_add(1);
            let first = self.rotation % keys.len();
            keys.rotate_left(first);
        }
        let mut visited = Visited::Idle;
        for key in keys {
            let limit = limit.min(sink.bytes() + SHARE_BYTES);
            let name = cursor_name(&self.name, key);
            let Some(entry) = self.streams.get_mut(&key) else {
                continue;
            };
            let mut turn = StreamTurn {
                bucket: &self.served.bucket,
                env: &*self.env,
                buffer: &self.buffer,
                agreed: &self.settings,
                oso: self.served.dcp.settings.read().oso,
                flow: &mut self.flow,
                totals: &mut self.totals,
                sink: &mut *sink,
                now_ns: now.mono_ns,
            };
            match entry.drive(key, &name, limit, &mut turn) {
                Visited::Idle => {}
                Visited::Waits if visited == Visited::Unfinished => {}
                more @ (Visited::Waits | Visited::Unfinished) => visited = more,
                Visited::Over => self.remove(key),
            }
        }
        visited
    }

    /// Returns the time at which [`Producer::produce`] must be called without a wake, in monotonic nanoseconds.
    pub fn deadline_ns(&self) -> Option<u64> {
        self.keepalive.deadline_ns()
    }

    /// Ends all streams without a message, and stops producing.
    pub fn close(&mut self) {
        self.closed = true;
        while let Some((&key, _)) = self.streams.first_key_value() {
            self.remove(key);
        }
    }

    /// Returns figures for statistics.
    pub fn figures(&self, now: Now) -> ProducerFigures {
        let silent_ns = now.mono_ns.saturating_sub(self.keepalive.last_heard_ns());
        let window_full = !self.flow.has_room();
        let streams = self.streams.iter().map(|(key, entry)| StreamFigures {
            key: *key,
            opaque: entry.opaque,
            stream: entry.stream.figures(),
            items_remaining: 0,
            backfilling: entry.backfill.is_some(),
        });
        ProducerFigures {
            name: self.name.to_string(),
            settings: self.settings.clone(),
            created_s: self.created_s,
            last_receive_s: now
                .unix_s()
                .saturating_sub((silent_ns / 1_000_000_000) as u32),
            paused: window_full || self.ready.is_empty(),
            window_full,
            totals: self.totals,
            window: self.flow.window(),
            outstanding: self.flow.outstanding(),
            acknowledged: self.flow.acknowledged(),
            noop_enabled: self.keepalive.is_enabled(),
            noop_wait: self.keepalive.awaits_answer(),
            noop_interval_s: self.keepalive.interval_ns() / 1_000_000_000,
            backfill_bytes: self.buffer.bytes(),
            backfill_full: self.buffer.is_full(),
            backfill_bytes_max: self.bucket().backfill_bytes_max(),
            backfills_active: self.buffer.active(),
            backfills_pending: self.buffer.pending(),
            streams: streams.collect(),
        }
    }
}

/// A set of vBuckets whose newest changes the turn has taken.
#[derive(Default)]
struct VbSet([u64; 16]);

impl VbSet {
    fn contains(&self, vb: VbId) -> bool {
        let word = self.0.get(usize::from(vb.0) / 64);
        word.is_some_and(|word| word & 1 << (vb.0 % 64) != 0)
    }

    fn insert(&mut self, vb: VbId) {
        if let Some(word) = self.0.get_mut(usize::from(vb.0) / 64) {
            *word |= 1 << (vb.0 % 64);
        }
    }
}

fn range_of(vb: VbId) -> std::ops::RangeInclusive<StreamKey> {
    StreamKey { vb, id: 0 }..=StreamKey { vb, id: u16::MAX }
}

/// Returns the name of a stream's cursor.
pub(super) fn cursor_name(producer: &str, key: StreamKey) -> std::borrow::Cow<'_, str> {
    if key.id == 0 {
        producer.into()
    } else {
        format!("{producer}:{}", key.id).into()
    }
}
