//! The replica's side of a connection: bytes in, bytes out. No socket, no waiting, no clock.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Document, FailoverLog, Seqno, VbId};
use wire::dcp::{
    BufferAck, EndReason, SeqnoAcknowledged, SnapshotMarker, StreamEnd, StreamFlags, StreamRequest,
    flow_bytes_of, parse_rollback,
};
use wire::request::GetAllVbSeqnos;
use wire::response::{FailoverEntries, VbSeqnos};
use wire::{
    Decoded, Envelope, Frame, Limits, Magic, Message, Opaque, Opcode, Response, Status, decode,
    encode_raw,
};

use super::changes::{document_of, resolved_of};
use super::passive::{Passive, Took, Violation};
use super::progress::{Progress, Stage};
use super::setup::{Introduction, NOOP_INTERVAL_S, Setup};
use super::target::{NotTaken, Target};
use super::window::Window;

/// A connection on which nothing was heard for this long is dead: the producer sends no-ops.
const SILENCE_NS: u64 = 3 * NOOP_INTERVAL_S as u64 * SECOND_NS;
const SECOND_NS: u64 = 1_000_000_000;
/// When to ask again for a stream that was refused or ended for now.
const RETRY_NS: u64 = SECOND_NS;
/// How often the active's seqnos are asked for.
const SEQNOS_NS: u64 = 2 * SECOND_NS;
/// Marks the opaque of a stream; below it are 15 bits that tell streams of a vBucket apart, and
/// the vBucket.
const STREAM: u32 = 1 << 31;
const SEQNOS: Opaque = Opaque([0, 0, 0xff, 0xff]);

/// Why a connection is given up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Broken {
    /// It could not be set up.
    Refused(String),
    /// The producer broke the protocol.
    Violation(Option<VbId>, Violation),
    /// A vBucket here could not follow.
    Stuck(VbId, String),
    /// Nothing was heard for too long.
    Silent,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(reason) => f.write_str(reason),
            Self::Violation(Some(vb), violation) => write!(f, "{vb}: {violation}"),
            Self::Violation(None, violation) => violation.fmt(f),
            Self::Stuck(vb, reason) => write!(f, "{vb}: {reason}"),
            Self::Silent => f.write_str("the active node was silent for too long"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// To be asked for from this time on.
    Idle {
        from_ns: u64,
    },
    /// Asked for; `dropped` histories were left out.
    Asked {
        start: Seqno,
        dropped: usize,
    },
    Reading(Passive),
}

#[derive(Clone, Copy, Debug)]
struct Stream {
    generation: u16,
    /// The prepare up to which this stream acknowledged.
    acked: Seqno,
    phase: Phase,
}

impl Stream {
    fn opaque(self, vb: VbId) -> Opaque {
        let generation = u32::from(self.generation & 0x7fff) << 16;
        Opaque((STREAM | generation | u32::from(vb.0)).to_be_bytes())
    }
}

/// A connection to the active node.
pub(super) struct Consumer<'a, T> {
    target: &'a T,
    about: &'a Introduction,
    progress: Arc<Progress>,
    setup: Setup,
    streams: Vec<Stream>,
    window: Window,
    now_ns: u64,
    heard_ns: u64,
    seqnos_ns: u64,
    paused: bool,
    /// Some stream may have to be asked for at this time.
    retry_ns: u64,
}

impl<'a, T: Target> Consumer<'a, T> {
    /// Begins the conversation.
    pub(super) fn new(
        target: &'a T,
        about: &'a Introduction,
        progress: Arc<Progress>,
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Result<Self, Broken> {
        let stream = Stream {
            generation: 0,
            acked: Seqno::ZERO,
            phase: Phase::Idle { from_ns: now_ns },
        };
        let consumer = Self {
            target,
            about,
            progress,
            setup: Setup::new(about),
            streams: vec![stream; usize::from(target.vbuckets())],
            window: Window::new(about.window_bytes, now_ns),
            now_ns,
            heard_ns: now_ns,
            seqnos_ns: now_ns,
            paused: false,
            retry_ns: now_ns,
        };
        consumer.ask_setup(out)?;
        Ok(consumer)
    }

    fn ask_setup(&self, out: &mut Vec<u8>) -> Result<(), Broken> {
        let asked = self.setup.ask(self.about, out);
        asked.map_err(|error| Broken::Refused(error.to_string()))
    }

    /// Takes every whole frame at the start of `input`; gives how many bytes are done with.
    ///
    /// # Errors
    /// The connection is to be closed; what was taken before stays.
    pub(super) fn receive(
        &mut self,
        input: &[u8],
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Result<usize, Broken> {
        self.heard_ns = now_ns;
        self.now_ns = now_ns;
        let mut done = 0;
        loop {
            match decode(&input[done..], Limits::AUTHENTICATED) {
                Ok(Decoded::Frame { frame, consumed }) => {
                    done += consumed;
                    self.frame(&frame, out)?;
                }
                Ok(Decoded::Incomplete { .. }) => break,
                Err(error) => return Err(Broken::Refused(error.to_string())),
            }
        }
        self.tick(now_ns, out)?;
        Ok(done)
    }

    /// What time alone calls for: acknowledgements, streams to ask for again, a look whether
    /// the producer is still there. To be called at least every 100 ms.
    ///
    /// # Errors
    /// As [`Consumer::receive`].
    pub(super) fn tick(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), Broken> {
        self.now_ns = now_ns;
        if now_ns.saturating_sub(self.heard_ns) > SILENCE_NS {
            return Err(Broken::Silent);
        }
        if !self.setup.is_done() {
            return Ok(());
        }
        if now_ns >= self.retry_ns {
            self.ask_streams(out);
        }
        if now_ns >= self.seqnos_ns {
            self.seqnos_ns = now_ns.saturating_add(SEQNOS_NS);
            let envelope = Envelope {
                opaque: SEQNOS,
                ..Envelope::default()
            };
            let question = GetAllVbSeqnos {
                state: None,
                collection: None,
            };
            send(&question, &envelope, out);
        }
        self.acknowledge(out);
        Ok(())
    }

    /// While memory is short nothing is acknowledged, and the producer runs into the end of
    /// its window; what it sent until then is taken.
    fn acknowledge(&mut self, out: &mut Vec<u8>) {
        if !self.target.has_room() {
            if !self.paused {
                self.paused = true;
                Progress::add(&self.progress.pauses, 1);
            }
            return;
        }
        self.paused = false;
        while let Some(bytes) = self.window.take(self.now_ns) {
            Progress::add(&self.progress.acked_bytes, bytes.into());
            send(&BufferAck { bytes }, &Envelope::default(), out);
        }
    }

    /// Tells how far the vBucket has prepares, if that is news. To be called when it may be.
    pub(super) fn acknowledge_prepares(&mut self, vb: VbId, out: &mut Vec<u8>) {
        let Some(stream) = self.streams.get_mut(usize::from(vb.0)) else {
            return;
        };
        if !self.setup.sync_writes() || !matches!(stream.phase, Phase::Reading(_)) {
            return;
        }
        let prepared = self.target.high_prepared(vb);
        if prepared <= stream.acked {
            return;
        }
        stream.acked = prepared;
        let envelope = Envelope {
            vbucket: vb,
            opaque: stream.opaque(vb),
            ..Envelope::default()
        };
        send(&SeqnoAcknowledged { prepared }, &envelope, out);
    }

    fn ask_streams(&mut self, out: &mut Vec<u8>) {
        self.retry_ns = u64::MAX;
        for index in 0..self.target.vbuckets() {
            match self.streams[usize::from(index)].phase {
                Phase::Idle { from_ns } if from_ns <= self.now_ns => {
                    self.ask_stream(VbId(index), 0, out);
                }
                Phase::Idle { from_ns } => self.retry_ns = self.retry_ns.min(from_ns),
                Phase::Asked { .. } | Phase::Reading(_) => {}
            }
        }
    }

    /// Asks for a stream from where the vBucket stands, with its newest history but `dropped`.
    fn ask_stream(&mut self, vb: VbId, dropped: usize, out: &mut Vec<u8>) {
        let Some(position) = self.target.position(vb) else {
            // It may become a replica again.
            return self.rest(vb);
        };
        let entries = position.log.entries();
        let uuid = match entries.get(dropped) {
            Some(entry) if dropped > 0 => entry.uuid,
            _ => position.asked_uuid(),
        };
        let request = StreamRequest {
            flags: StreamFlags::default(),
            start: position.high,
            end: Seqno(u64::MAX),
            uuid,
            snapshot: position.asked_snapshot(),
            value: b"",
        };
        let Some(stream) = self.streams.get_mut(usize::from(vb.0)) else {
            return;
        };
        stream.generation = stream.generation.wrapping_add(1);
        let start = position.high;
        stream.phase = Phase::Asked { start, dropped };
        let envelope = Envelope {
            vbucket: vb,
            opaque: stream.opaque(vb),
            ..Envelope::default()
        };
        send(&request, &envelope, out);
    }

    /// The stream is not there for now.
    fn rest(&mut self, vb: VbId) {
        let from_ns = self.now_ns.saturating_add(RETRY_NS);
        self.retry_ns = self.retry_ns.min(from_ns);
        if let Some(stream) = self.streams.get_mut(usize::from(vb.0)) {
            if matches!(stream.phase, Phase::Reading(_)) {
                self.progress.streams.fetch_sub(1, Ordering::Relaxed);
            }
            stream.phase = Phase::Idle { from_ns };
        }
    }

    fn frame(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        match frame.header.magic {
            Magic::ClientResponse | Magic::AltClientResponse => self.answer(frame, out),
            Magic::ClientRequest | Magic::AltClientRequest => self.pushed(frame, out),
            // The map of the cluster changed, which is no news here.
            Magic::ServerRequest => Ok(()),
            Magic::ServerResponse => Err(Broken::Violation(None, Violation::Unexpected)),
        }
    }

    fn answer(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        let (opcode, opaque) = (frame.header.opcode, frame.header.opaque);
        if !self.setup.is_done() {
            if !self.setup.expects(opcode, opaque) {
                return Err(Broken::Violation(None, Violation::Unexpected));
            }
            let told = self.setup.answered(frame.status(), frame.value);
            if let Some(told) = told.map_err(Broken::Refused)? {
                self.target.registered(told);
            }
            if self.setup.is_done() {
                self.progress.set_stage(Stage::Streaming);
                return self.tick(self.now_ns, out);
            }
            return self.ask_setup(out);
        }
        match opcode {
            Opcode::DCP_STREAM_REQ => {
                let Some(vb) = self.stream_of(opaque) else {
                    return Ok(());
                };
                self.stream_answer(vb, frame, out)
            }
            Opcode::GET_ALL_VB_SEQNOS if frame.status() == Status::SUCCESS => {
                let malformed = |_| Broken::Violation(None, Violation::Malformed);
                let seqnos = VbSeqnos::parse(frame.value).map_err(malformed)?;
                for (vb, seqno) in seqnos.iter() {
                    self.progress.set_peer_seqno(vb, seqno);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The vBucket of a stream that is not of the past.
    fn stream_of(&self, opaque: Opaque) -> Option<VbId> {
        let vb = VbId(u32::from_be_bytes(opaque.0) as u16);
        let stream = self.streams.get(usize::from(vb.0))?;
        (stream.opaque(vb) == opaque).then_some(vb)
    }

    fn stream_answer(
        &mut self,
        vb: VbId,
        frame: &Frame<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        let Phase::Asked { start, dropped } = self.streams[usize::from(vb.0)].phase else {
            return Err(Broken::Violation(Some(vb), Violation::Unexpected));
        };
        let malformed = |_| Broken::Violation(Some(vb), Violation::Malformed);
        match frame.status() {
            Status::SUCCESS => {
                let entries = FailoverEntries::parse(frame.value).map_err(malformed)?;
                let log = FailoverLog::from_entries(entries.iter().collect());
                let log = log.ok_or(Broken::Violation(Some(vb), Violation::Malformed))?;
                match self.target.adopt(vb, log) {
                    Ok(()) => {
                        let phase = Phase::Reading(Passive::new(start));
                        self.streams[usize::from(vb.0)].phase = phase;
                        Progress::add(&self.progress.streams, 1);
                        // The active node may have forgotten what it was told.
                        self.streams[usize::from(vb.0)].acked = Seqno::ZERO;
                        self.acknowledge_prepares(vb, out);
                        Ok(())
                    }
                    Err(why) => self.not_taken(vb, why, out),
                }
            }
            Status::ROLLBACK => {
                let to = parse_rollback(frame.value).map_err(malformed)?;
                self.roll_back(vb, (start, dropped), to, out)
            }
            // Another node may be active for it, it may be loading, an old stream may be ending.
            status => {
                tracing::debug!(vb = vb.0, %status, "a stream was refused");
                self.rest(vb);
                Ok(())
            }
        }
    }

    /// A history of which nothing is here (it began where this node ends) is no reason to lose
    /// everything: the one before it is tried first.
    fn roll_back(
        &mut self,
        vb: VbId,
        (start, dropped): (Seqno, usize),
        to: Seqno,
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        let log = self.target.position(vb).map(|position| position.log);
        let entries = log.as_ref().map_or(&[][..], FailoverLog::entries);
        let began_here = entries
            .get(dropped)
            .is_some_and(|entry| entry.seqno == start);
        if to == Seqno::ZERO && began_here && entries.len() > dropped + 1 {
            self.ask_stream(vb, dropped + 1, out);
            return Ok(());
        }
        tracing::info!(vb = vb.0, from = start.0, to = to.0, "rolling back");
        let rolled = self.target.roll_back(vb, to);
        rolled.map_err(|reason| Broken::Stuck(vb, reason))?;
        Progress::add(&self.progress.rollbacks, 1);
        self.ask_stream(vb, 0, out);
        Ok(())
    }

    fn pushed(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        let opcode = frame.header.opcode;
        if opcode == Opcode::DCP_NOOP {
            Response::new(opcode, frame.header.opaque, Status::SUCCESS).encode(out);
            return Ok(());
        }
        let bytes = flow_bytes_of(frame);
        self.window.dealt_with(bytes);
        Progress::add(&self.progress.bytes, bytes as u64);
        // What was under way when a stream was closed is of no use any more.
        let Some(vb) = self.stream_of(frame.header.opaque) else {
            return Ok(());
        };
        let Phase::Reading(passive) = self.streams[usize::from(vb.0)].phase else {
            return Err(Broken::Violation(Some(vb), Violation::Unexpected));
        };
        if frame.vbucket() != vb {
            return Err(Broken::Violation(Some(vb), Violation::Malformed));
        }
        let malformed = |_| Broken::Violation(Some(vb), Violation::Malformed);
        match opcode {
            Opcode::DCP_SNAPSHOT_MARKER => {
                let marker = SnapshotMarker::parse(frame).map_err(malformed)?;
                self.marker(vb, passive, &marker, out)
            }
            Opcode::DCP_MUTATION | Opcode::DCP_DELETION | Opcode::DCP_EXPIRATION => {
                let document = document_of(frame)
                    .map_err(|violation| Broken::Violation(Some(vb), violation))?;
                self.change(vb, passive, document, out)
            }
            Opcode::DCP_PREPARE if self.setup.sync_writes() => {
                let document = document_of(frame)
                    .map_err(|violation| Broken::Violation(Some(vb), violation))?;
                self.change(vb, passive, document, out)
            }
            Opcode::DCP_COMMIT | Opcode::DCP_ABORT if self.setup.sync_writes() => {
                let resolved = resolved_of(frame)
                    .map_err(|violation| Broken::Violation(Some(vb), violation))?;
                let taken = |target: &T| target.decide(vb, &resolved);
                self.take((vb, passive), resolved.at, taken, out)
            }
            Opcode::DCP_STREAM_END => {
                let StreamEnd { reason } = StreamEnd::parse(frame).map_err(malformed)?;
                self.ended(vb, reason);
                Ok(())
            }
            // Agreed on nothing that would bring any other message.
            _ => Err(Broken::Violation(Some(vb), Violation::Unexpected)),
        }
    }

    fn marker(
        &mut self,
        vb: VbId,
        mut passive: Passive,
        marker: &SnapshotMarker,
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        let violation = |violation| Broken::Violation(Some(vb), violation);
        passive.marker(marker).map_err(violation)?;
        match self.target.begin(vb, marker) {
            Ok(()) => {
                self.streams[usize::from(vb.0)].phase = Phase::Reading(passive);
                self.progress.raise_peer_seqno(vb, marker.range.end);
                Ok(())
            }
            Err(why) => self.not_taken(vb, why, out),
        }
    }

    fn change(
        &mut self,
        vb: VbId,
        passive: Passive,
        document: Document,
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        let seqno = document.seqno();
        self.take(
            (vb, passive),
            seqno,
            |target| target.apply(vb, document),
            out,
        )
    }

    fn take(
        &mut self,
        (vb, mut passive): (VbId, Passive),
        seqno: Seqno,
        taken: impl FnOnce(&T) -> Result<(), NotTaken>,
        out: &mut Vec<u8>,
    ) -> Result<(), Broken> {
        let violation = |violation| Broken::Violation(Some(vb), violation);
        let took = passive.change(seqno).map_err(violation)?;
        if let Err(why) = taken(self.target) {
            return self.not_taken(vb, why, out);
        }
        let stream = &mut self.streams[usize::from(vb.0)];
        stream.phase = Phase::Reading(passive);
        if took == (Took::End { ack: true }) {
            let opaque = stream.opaque(vb);
            Response::new(Opcode::DCP_SNAPSHOT_MARKER, opaque, Status::SUCCESS).encode(out);
        }
        Progress::add(&self.progress.changes, 1);
        Ok(())
    }

    fn ended(&mut self, vb: VbId, reason: EndReason) {
        tracing::debug!(vb = vb.0, %reason, "a stream ended");
        self.rest(vb);
    }

    fn not_taken(&mut self, vb: VbId, why: NotTaken, out: &mut Vec<u8>) -> Result<(), Broken> {
        match why {
            NotTaken::Refused(reason) => Err(Broken::Stuck(vb, reason)),
            NotTaken::NotReplica | NotTaken::Incomplete => {
                let stream = &mut self.streams[usize::from(vb.0)];
                let envelope = Envelope {
                    vbucket: vb,
                    opaque: stream.opaque(vb),
                    ..Envelope::default()
                };
                // From here on its messages are of the past.
                stream.generation = stream.generation.wrapping_add(1);
                let parts: [&[u8]; 3] = [&[]; 3];
                let closed = encode_raw(Opcode::DCP_CLOSE_STREAM, &envelope, parts, out);
                closed.expect("a frame without parts");
                if why == NotTaken::Incomplete {
                    tracing::warn!(
                        vb = vb.0,
                        "a decision came without its prepare; beginning anew"
                    );
                    let rolled = self.target.roll_back(vb, Seqno::ZERO);
                    rolled.map_err(|reason| Broken::Stuck(vb, reason))?;
                    Progress::add(&self.progress.rollbacks, 1);
                }
                self.rest(vb);
                Ok(())
            }
        }
    }
}

fn send<'m, M: Message<'m>>(message: &M, envelope: &Envelope<'_>, out: &mut Vec<u8>) {
    let sent = message.encode(envelope, out);
    sent.expect("a message of fixed parts fits a frame");
}
