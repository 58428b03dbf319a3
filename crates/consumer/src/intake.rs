//! Streams on the side of the consumer: processes every message of a producer.
//!
//! Both kinds of consumers use it: the one that connects to an active node (`replication`), and the one on a
//! connection that a peer opened (`inbound`). They handle wrong messages differently, so errors are returned as
//! values.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Document, FailoverLog, Seqno, VbId};
use registry::Progress;
use wire::dcp::{
    BufferAck, SeqnoAcknowledged, SetVbucketState, SnapshotMarker, StreamEnd, StreamFlags,
    StreamRequest, flow_bytes_of, parse_rollback,
};
use wire::response::FailoverEntries;
use wire::{Envelope, Frame, Message, Opaque, Opcode, RawParts, Response, Status, encode_raw};

use crate::changes::{document_of, event_document_of, resolved_of};
use crate::passive::{Passive, SnapshotProgress, Violation};
use crate::rollbacks::Rollbacks;
use crate::stream_ask::{AfterRollback, StreamAsk};
use crate::target::{NotTaken, Resolved, Target};
use crate::window::Window;

/// Bit that marks the opaque of a stream. Below it are 15 bits of a generation, which distinguish the streams of
/// one vBucket, and 16 bits of the vBucket.
const STREAM: u32 = 1 << 31;

/// Interval between two checks for memory while acknowledgements are held back.
pub(crate) const PAUSED_LOOK_NS: u64 = 100_000_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StreamPhase {
    Closed,
    Asked(StreamAsk),
    Reading(Passive),
}

/// A change in a stream.
enum StreamChange<'a> {
    Document(Document),
    Decision(Resolved<'a>),
}

#[derive(Clone, Copy, Debug)]
struct VbStream {
    generation: u16,
    flags: StreamFlags,
    /// Seqno of the last prepare that this stream acknowledged.
    acked: Seqno,
    phase: StreamPhase,
}

impl VbStream {
    fn opaque(self, vb: VbId) -> Opaque {
        let generation = u32::from(self.generation & 0x7fff) << 16;
        Opaque((STREAM | generation | u32::from(vb.0)).to_be_bytes())
    }
}

/// Reason why a message was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IntakeError {
    /// The vBucket has no stream.
    NoStream(VbId),
    /// The vBucket has another stream than the message belongs to.
    OtherStream(VbId),
    /// The producer broke the protocol. The vBucket is unchanged.
    Violation(VbId, Violation),
    /// The vBucket is not a replica.
    NotFollowing(VbId),
    /// A commit or abort came without its prepare: the vBucket must start from zero.
    Incomplete(VbId),
    /// The vBucket could not apply the message.
    Stuck(VbId, String),
}

/// Result of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pushed {
    /// The message was applied to the vBucket.
    Taken,
    /// The message ended the stream of the vBucket.
    Ended(VbId),
}

/// Result of a stream request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamAnswer {
    /// The producer granted the stream.
    Granted,
    /// The producer asked for a rollback; the stream was requested again from another position.
    Again,
    /// The producer refused the stream.
    Refused(Status),
}

/// All streams of one connection and its flow-control window. `T` dereferences to the [`Target`].
pub struct Intake<T> {
    target: T,
    progress: Arc<Progress>,
    streams: Vec<VbStream>,
    window: Window,
    sync_writes: bool,
    paused: bool,
    /// Whether rollbacks are refused.
    fixed: bool,
    rollbacks: Rollbacks,
}

impl<T: Deref<Target: Target>> Intake<T> {
    /// Creates an intake without streams.
    pub fn new(target: T, progress: Arc<Progress>, window_bytes: u32, now_ns: u64) -> Self {
        let stream = VbStream {
            generation: 0,
            flags: StreamFlags::default(),
            acked: Seqno::ZERO,
            phase: StreamPhase::Closed,
        };
        Self {
            streams: vec![stream; usize::from(target.vbuckets())],
            target,
            progress,
            window: Window::new(window_bytes, now_ns),
            sync_writes: false,
            paused: false,
            fixed: false,
            rollbacks: Rollbacks::default(),
        }
    }

    /// The target that the streams fill.
    pub fn target(&self) -> &T::Target {
        &self.target
    }

    /// Progress figures of the connection.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Sets whether the producer sends prepares.
    pub fn agree_on_sync_writes(&mut self, agreed: bool) {
        self.sync_writes = agreed;
    }

    /// Refuses every stream that would need a rollback.
    pub fn never_go_back(&mut self) {
        self.fixed = true;
    }

    /// Whether acknowledgements are held back, since memory is short.
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// The flow-control window of the connection.
    pub fn window(&mut self) -> &mut Window {
        &mut self.window
    }

    fn stream(&self, vb: VbId) -> Option<VbStream> {
        self.streams.get(usize::from(vb.0)).copied()
    }

    fn flags(&self, vb: VbId) -> StreamFlags {
        self.stream(vb)
            .map_or(StreamFlags::default(), |stream| stream.flags)
    }

    /// Whether the vBucket has no stream, neither requested nor granted.
    pub fn is_closed(&self, vb: VbId) -> bool {
        self.stream(vb)
            .is_none_or(|stream| stream.phase == StreamPhase::Closed)
    }

    /// Returns the opaque of the newest stream of a vBucket.
    pub fn opaque(&self, vb: VbId) -> Opaque {
        self.stream(vb)
            .map_or(Opaque::default(), |stream| stream.opaque(vb))
    }

    /// Acknowledges processed bytes. While memory is short it acknowledges nothing, so that the producer reaches
    /// the end of its window. Messages up to there are still applied.
    pub fn acknowledge(&mut self, now_ns: u64, out: &mut Vec<u8>) {
        self.rollbacks.log(now_ns);
        if !self.target.has_memory() {
            if !self.paused {
                self.paused = true;
                Progress::add(&self.progress.pauses, 1);
            }
            return;
        }
        self.paused = false;
        while let Some(bytes) = self.window.take(now_ns) {
            Progress::add(&self.progress.acked_bytes, bytes.into());
            send(&BufferAck { bytes }, &Envelope::default(), out);
        }
    }

    /// Returns the time when [`Self::acknowledge`] has something to do, if nothing happens before.
    pub fn due_ns(&self, now_ns: u64) -> u64 {
        if self.paused {
            now_ns.saturating_add(PAUSED_LOOK_NS)
        } else {
            self.window.due_ns().min(self.rollbacks.due_ns())
        }
    }

    /// Acknowledges the prepares of the vBucket if there are new ones. Call it whenever there may be.
    pub fn acknowledge_prepares(&mut self, vb: VbId, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(usize::from(vb.0)) else {
            return;
        };
        if !self.sync_writes || !matches!(stream.phase, StreamPhase::Reading(_)) {
            return;
        }
        let prepared = self.target.high_prepared(vb);
        if prepared <= stream.acked {
            return;
        }
        stream.acked = prepared;
        let envelope = of_stream(vb, stream.opaque(vb));
        send(&SeqnoAcknowledged { prepared }, &envelope, out);
    }

    /// Requests a stream from the position of the vBucket; returns `false` if it is not a replica.
    pub fn ask(&mut self, vb: VbId, flags: StreamFlags, out: &mut Vec<u8>) -> bool {
        self.target.renew_if_damaged(vb);
        self.ask_on(vb, flags, out)
    }

    fn ask_on(&mut self, vb: VbId, flags: StreamFlags, out: &mut Vec<u8>) -> bool {
        let Some(position) = self.target.position(vb) else {
            return false;
        };
        let Some(stream) = self.streams.get_mut(usize::from(vb.0)) else {
            return false;
        };
        stream.flags = flags;
        let ask = StreamAsk::of(&position);
        self.request(vb, ask, &ask.request(&position, flags), out);
        true
    }

    fn request(
        &mut self,
        vb: VbId,
        ask: StreamAsk,
        request: &StreamRequest<'_>,
        out: &mut Vec<u8>,
    ) {
        let stream = &mut self.streams[usize::from(vb.0)];
        stream.generation = stream.generation.wrapping_add(1);
        stream.phase = StreamPhase::Asked(ask);
        let envelope = of_stream(vb, stream.opaque(vb));
        send(request, &envelope, out);
    }

    /// Closes the stream; its messages under way are ignored. Returns whether there was one.
    pub fn close(&mut self, vb: VbId) -> bool {
        let Some(stream) = self.streams.get_mut(usize::from(vb.0)) else {
            return false;
        };
        if matches!(stream.phase, StreamPhase::Reading(_)) {
            self.progress.streams.fetch_sub(1, Ordering::Relaxed);
        }
        let was_open = stream.phase != StreamPhase::Closed;
        stream.phase = StreamPhase::Closed;
        stream.generation = stream.generation.wrapping_add(u16::from(was_open));
        was_open
    }

    /// Closes the stream, and tells the producer to close it.
    pub fn close_there(&mut self, vb: VbId, out: &mut Vec<u8>) {
        let envelope = of_stream(vb, self.opaque(vb));
        self.close(vb);
        let closed = encode_raw(
            Opcode::DCP_CLOSE_STREAM,
            &envelope,
            RawParts::default(),
            out,
        );
        closed.expect("a frame without parts");
    }

    /// Empties the vBucket.
    pub fn begin_anew(&mut self, vb: VbId) -> Result<(), IntakeError> {
        tracing::warn!(
            vb = vb.0,
            "a decision came without its prepare; beginning anew"
        );
        let emptied = self.target.begin_anew(vb);
        self.went_back(vb, emptied)
    }

    fn go_back(&mut self, vb: VbId, to: Seqno) -> Result<(), IntakeError> {
        let from = self.target.position(vb).map_or(to, |at| at.high);
        tracing::debug!(vb = vb.0, from = from.0, to = to.0, "rolling back");
        let rolled = self.target.roll_back(vb, to);
        self.went_back(vb, rolled)?;
        self.rollbacks.note(from.0.saturating_sub(to.0));
        Ok(())
    }

    fn went_back(&self, vb: VbId, rolled: Result<(), NotTaken>) -> Result<(), IntakeError> {
        rolled.map_err(|why| not_taken(vb, why))?;
        Progress::add(&self.progress.rollbacks, 1);
        Ok(())
    }

    /// Returns the vBucket whose stream the answer belongs to; `None` if that stream was closed.
    fn asked(&self, opaque: Opaque) -> Option<VbId> {
        let vb = VbId(u32::from_be_bytes(opaque.0) as u16);
        let stream = self.stream(vb)?;
        (stream.opaque(vb) == opaque && stream.phase != StreamPhase::Closed).then_some(vb)
    }

    /// Processes the answer to a stream request; `None` if the request was given up.
    pub fn answered(
        &mut self,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Option<(VbId, StreamAnswer)>, IntakeError> {
        let Some(vb) = self.asked(frame.header.opaque) else {
            return Ok(None);
        };
        let phase = self.stream(vb).map(|stream| stream.phase);
        let Some(StreamPhase::Asked(asked)) = phase else {
            return Err(IntakeError::Violation(vb, Violation::Unexpected));
        };
        let malformed = |_| IntakeError::Violation(vb, Violation::Malformed);
        let answered = match frame.status() {
            Status::SUCCESS if asked.goes_back => {
                self.close_there(vb, out);
                self.go_back(vb, asked.start)?;
                self.ask_again(vb, out)?;
                StreamAnswer::Again
            }
            Status::SUCCESS => {
                let entries = FailoverEntries::parse(frame.value).map_err(malformed)?;
                let log = FailoverLog::from_entries(entries.iter().collect());
                let log = log.ok_or(IntakeError::Violation(vb, Violation::Malformed))?;
                let adopted = self.target.adopt(vb, log);
                adopted.map_err(|why| not_taken(vb, why))?;
                let stream = &mut self.streams[usize::from(vb.0)];
                stream.phase = StreamPhase::Reading(Passive::new(asked.start));
                // The active node may have restarted and lost earlier acknowledgements.
                stream.acked = Seqno::ZERO;
                Progress::add(&self.progress.streams, 1);
                self.acknowledge_prepares(vb, out);
                StreamAnswer::Granted
            }
            Status::ROLLBACK if !self.fixed => {
                let to = parse_rollback(frame.value).map_err(malformed)?;
                self.roll_back(vb, asked, to, out)?;
                StreamAnswer::Again
            }
            // The producer may not be active for the vBucket, may still load it, or may still end an old stream.
            status => {
                tracing::debug!(vb = vb.0, %status, "a stream was refused");
                self.close(vb);
                StreamAnswer::Refused(status)
            }
        };
        Ok(Some((vb, answered)))
    }

    fn roll_back(
        &mut self,
        vb: VbId,
        asked: StreamAsk,
        to: Seqno,
        out: &mut Vec<u8>,
    ) -> Result<(), IntakeError> {
        let Some(position) = self.target.position(vb) else {
            return Err(IntakeError::NotFollowing(vb));
        };
        match asked.after_rollback(&position, to) {
            AfterRollback::Ask(ask) => {
                let request = ask.request(&position, self.flags(vb));
                self.request(vb, ask, &request, out);
                Ok(())
            }
            AfterRollback::GoBack(to) => {
                self.go_back(vb, to)?;
                self.ask_again(vb, out)
            }
        }
    }

    /// Requests a stream from where the vBucket is after a rollback.
    fn ask_again(&mut self, vb: VbId, out: &mut Vec<u8>) -> Result<(), IntakeError> {
        if self.ask_on(vb, self.flags(vb), out) {
            Ok(())
        } else {
            Err(IntakeError::NotFollowing(vb))
        }
    }

    /// Processes a message of a stream. Its bytes are acknowledged in every case.
    ///
    /// # Errors
    /// The message was not applied; nothing changed.
    pub fn pushed(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<Pushed, IntakeError> {
        let bytes = flow_bytes_of(frame);
        self.window.dealt_with(bytes);
        Progress::add(&self.progress.bytes, bytes as u64);
        let vb = frame.vbucket();
        let Some(stream) = self.stream(vb) else {
            return Err(IntakeError::NoStream(vb));
        };
        let StreamPhase::Reading(passive) = stream.phase else {
            return Err(if stream.phase == StreamPhase::Closed {
                IntakeError::NoStream(vb)
            } else if stream.opaque(vb) == frame.header.opaque {
                IntakeError::Violation(vb, Violation::Unexpected)
            } else {
                IntakeError::OtherStream(vb)
            });
        };
        if stream.opaque(vb) != frame.header.opaque {
            return Err(IntakeError::OtherStream(vb));
        }
        self.read(frame, passive, out)
    }

    fn read(
        &mut self,
        frame: &Frame<'_>,
        passive: Passive,
        out: &mut Vec<u8>,
    ) -> Result<Pushed, IntakeError> {
        let vb = frame.vbucket();
        let malformed = |_| IntakeError::Violation(vb, Violation::Malformed);
        let violation = |violation| IntakeError::Violation(vb, violation);
        let change = match frame.header.opcode {
            Opcode::DCP_SNAPSHOT_MARKER => {
                let marker = SnapshotMarker::parse(frame).map_err(malformed)?;
                self.marker(vb, passive, &marker)?;
                return Ok(Pushed::Taken);
            }
            Opcode::DCP_MUTATION | Opcode::DCP_DELETION | Opcode::DCP_EXPIRATION => {
                StreamChange::Document(document_of(frame).map_err(violation)?)
            }
            Opcode::DCP_PREPARE if self.sync_writes => {
                StreamChange::Document(document_of(frame).map_err(violation)?)
            }
            Opcode::DCP_SYSTEM_EVENT => {
                StreamChange::Document(event_document_of(frame).map_err(violation)?)
            }
            Opcode::DCP_COMMIT | Opcode::DCP_ABORT if self.sync_writes => {
                StreamChange::Decision(resolved_of(frame).map_err(violation)?)
            }
            Opcode::DCP_STREAM_END => {
                let StreamEnd { reason } = StreamEnd::parse(frame).map_err(malformed)?;
                tracing::debug!(vb = vb.0, %reason, "a stream ended");
                self.close(vb);
                return Ok(Pushed::Ended(vb));
            }
            Opcode::DCP_SET_VBUCKET_STATE => {
                let SetVbucketState { state } = SetVbucketState::parse(frame).map_err(malformed)?;
                self.hand_over(vb, passive, state)?;
                let (opcode, opaque) = (frame.header.opcode, frame.header.opaque);
                Response::new(opcode, opaque, Status::SUCCESS).encode(out);
                return Ok(Pushed::Taken);
            }
            // No other message was agreed on.
            _ => return Err(violation(Violation::Unexpected)),
        };
        self.take(vb, passive, change, out)?;
        Ok(Pushed::Taken)
    }

    fn marker(
        &mut self,
        vb: VbId,
        mut passive: Passive,
        marker: &SnapshotMarker,
    ) -> Result<(), IntakeError> {
        let violation = |violation| IntakeError::Violation(vb, violation);
        passive.marker(marker).map_err(violation)?;
        let begun = self.target.begin(vb, marker);
        begun.map_err(|why| not_taken(vb, why))?;
        self.streams[usize::from(vb.0)].phase = StreamPhase::Reading(passive);
        self.progress.raise_peer_seqno(vb, marker.range.end);
        Ok(())
    }

    fn take(
        &mut self,
        vb: VbId,
        mut passive: Passive,
        change: StreamChange<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), IntakeError> {
        let seqno = match &change {
            StreamChange::Document(document) => document.seqno(),
            StreamChange::Decision(decision) => decision.at,
        };
        let took = passive.change(seqno);
        let took = took.map_err(|violation| IntakeError::Violation(vb, violation))?;
        let taken = match change {
            StreamChange::Document(document) => self.target.apply(vb, document),
            StreamChange::Decision(decision) => self.target.decide(vb, &decision),
        };
        taken.map_err(|why| not_taken(vb, why))?;
        let stream = &mut self.streams[usize::from(vb.0)];
        stream.phase = StreamPhase::Reading(passive);
        if took == (SnapshotProgress::End { ack: true }) {
            let opaque = stream.opaque(vb);
            Response::new(Opcode::DCP_SNAPSHOT_MARKER, opaque, Status::SUCCESS).encode(out);
        }
        Progress::add(&self.progress.changes, 1);
        Ok(())
    }

    /// Handles a takeover. The stream must have asked for it, and all snapshots must be complete.
    fn hand_over(
        &self,
        vb: VbId,
        passive: Passive,
        state: model::VbState,
    ) -> Result<(), IntakeError> {
        let flags = self.flags(vb);
        let expected = matches!(state, model::VbState::Pending | model::VbState::Active);
        if !flags.contains(StreamFlags::TAKEOVER) || !expected {
            return Err(IntakeError::Violation(vb, Violation::Unexpected));
        }
        if !passive.is_between_snapshots() {
            return Err(IntakeError::Violation(vb, Violation::MarkerInSnapshot));
        }
        let taken = self.target.take_over(vb, state);
        taken.map_err(|why| not_taken(vb, why))
    }
}

fn not_taken(vb: VbId, why: NotTaken) -> IntakeError {
    match why {
        NotTaken::NotReplica => IntakeError::NotFollowing(vb),
        NotTaken::Incomplete => IntakeError::Incomplete(vb),
        NotTaken::Refused(reason) => IntakeError::Stuck(vb, reason),
    }
}

fn of_stream(vb: VbId, opaque: Opaque) -> Envelope<'static> {
    Envelope {
        vbucket: vb,
        opaque,
        ..Envelope::default()
    }
}

/// Appends a message whose parts always fit into a frame.
pub fn send<'m, M: Message<'m>>(message: &M, envelope: &Envelope<'_>, out: &mut Vec<u8>) {
    let sent = message.encode(envelope, out);
    sent.expect("a message of fixed parts fits a frame");
}
