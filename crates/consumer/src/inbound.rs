//! The consumer on a connection that a peer opened. Another process (a cluster manager with a proxy) brings the
//! messages of a producer on this connection.
//!
//! ```text
//!   manager: DCP_OPEN, ADD_STREAM ----> Inbound ----> controls, STREAM_REQ ----> producer
//!   producer: markers, changes, ends -> Inbound -> Intake -> replica vBuckets of this node
//! ```
//!
//! It shares `Intake` with the connections that this node opens. A vBucket must be a replica or pending. It has
//! at most one stream, over all connections.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bucket::{ReadySet, Wake, WarmupStage};
use model::{Now, VbId};
use registry::{Progress, Registry, ServedBucket, Stage};
use wire::dcp::{StreamFlags, flow_bytes_of};
use wire::{Frame, Opaque, Opcode, Response, Status};

use crate::controls::{ConsumerOptions, Controls};
use crate::followed::Followed;
use crate::intake::{Intake, IntakeError, PAUSED_LOOK_NS, Pushed, StreamAnswer};
use crate::passive::Violation;
use crate::target::Target;

/// Longest silence of a producer before the connection is closed.
const IDLE_LIMIT: Duration = Duration::from_mins(6);
/// Interval between ticks while acknowledgements are not held back: a due acknowledgement is at most this late.
const ACK_LOOK_NS: u64 = 1_000_000_000;

/// Reason why a message was refused: the status of the answer and a text for the error context.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InboundError(pub Status, pub Option<Cow<'static, str>>);

impl InboundError {
    fn because(status: Status, context: impl Into<Cow<'static, str>>) -> Self {
        Self(status, Some(context.into()))
    }
}

impl From<Status> for InboundError {
    fn from(status: Status) -> Self {
        Self(status, None)
    }
}

/// A stream that the manager requested and that is not yet answered.
#[derive(Clone, Copy, Debug)]
struct Adding {
    opaque: Opaque,
    flags: StreamFlags,
}

/// The consumer's side of one connection.
pub struct Inbound {
    name: Box<str>,
    connection: u64,
    served: Arc<ServedBucket>,
    intake: Intake<Box<Followed>>,
    controls: Controls,
    wishes: ConsumerOptions,
    adding: BTreeMap<VbId, Adding>,
    prepared: Arc<ReadySet>,
    heard_ns: u64,
    /// Whether the connection must be closed.
    broken: bool,
}

/// Parameters of a new consumer.
pub struct Opener<'a> {
    /// Name of the connection.
    pub name: &'a str,
    /// Name of the consumer in topologies of durable writes; empty if it acknowledges no prepares.
    pub consumer: &'a str,
    /// Number of the connection.
    pub connection: u64,
    /// The node that accepted the connection.
    pub node: Arc<Registry>,
    /// The bucket that the consumer fills.
    pub served: Arc<ServedBucket>,
    /// Progress figures, read by statistics.
    pub progress: Arc<Progress>,
    /// Wakes the connection when prepares can be acknowledged.
    pub wake: Arc<dyn Wake>,
}

impl Inbound {
    /// Creates the consumer and appends the first setting to `out`.
    pub fn open(opener: Opener<'_>, now: Now, out: &mut Vec<u8>) -> Self {
        let (served, progress) = (opener.served, opener.progress);
        let prepared = Arc::new(ReadySet::new(opener.wake));
        served.bucket.tell_prepared(&prepared);
        let wishes = ConsumerOptions {
            window_bytes: served.dcp.window_bytes(served.bucket.memory().quota()),
            consumer: opener.consumer.to_owned(),
            bucket_uuid: String::new(),
        };
        let target = Box::new(Followed {
            node: opener.node,
            served: Arc::clone(&served),
            active: None,
            may_block: |work| work(),
        });
        let window = wishes.window_bytes;
        progress.set_stage(Stage::Introducing);
        let mut inbound = Self {
            name: opener.name.into(),
            connection: opener.connection,
            served,
            intake: Intake::new(target, progress, window, now.mono_ns),
            controls: Controls::default(),
            wishes,
            adding: BTreeMap::new(),
            prepared,
            heard_ns: now.mono_ns,
            broken: false,
        };
        inbound.negotiate(out);
        inbound
    }

    fn negotiate(&mut self, out: &mut Vec<u8>) {
        if self.controls.ask(&self.wishes, out).is_err() {
            self.broken = true;
        }
    }

    /// Notes that a message arrived from the producer or the manager.
    pub fn heard(&mut self, now: Now) {
        self.heard_ns = now.mono_ns;
    }

    /// Handles ADD_STREAM. The answer follows once the producer has answered.
    pub fn add_stream(
        &mut self,
        vb: VbId,
        opaque: Opaque,
        flags: StreamFlags,
        out: &mut Vec<u8>,
    ) -> Result<(), InboundError> {
        if flags.without(StreamFlags::ALL).0 != 0 {
            return Err(InboundError::because(Status::EINVAL, "unknown flags"));
        }
        if self.served.bucket.warmup().stage() != WarmupStage::Done {
            return Err(Status::ETMPFAIL.into());
        }
        if self.served.follower().is_some_and(|one| one.follows()) {
            let reason = "the bucket follows another node by itself";
            return Err(InboundError::because(Status::NOT_SUPPORTED, reason));
        }
        if self.intake.target().position(vb).is_none() {
            return Err(Status::NOT_MY_VBUCKET.into());
        }
        // A stream whose claim was revoked is useless.
        if !self.served.claims.holds(vb, self.connection) {
            self.intake.close(vb);
            self.adding.remove(&vb);
        }
        if !self.served.claims.claim(vb, self.connection) {
            return Err(Status::KEY_EEXISTS.into());
        }
        self.adding.insert(vb, Adding { opaque, flags });
        if self.controls.is_done() {
            self.ask(vb, flags, out);
        }
        Ok(())
    }

    fn ask(&mut self, vb: VbId, flags: StreamFlags, out: &mut Vec<u8>) {
        if !self.intake.ask(vb, flags, out) {
            self.lose(vb, Status::NOT_MY_VBUCKET, out);
        }
    }

    /// Handles CLOSE_STREAM.
    pub fn close_stream(&mut self, vb: VbId, out: &mut Vec<u8>) -> Result<(), InboundError> {
        let asked = self.adding.contains_key(&vb);
        if !asked && self.intake.is_closed(vb) {
            return Err(self.no_stream().into());
        }
        self.lose(vb, Status::ETMPFAIL, out);
        Ok(())
    }

    /// Closes the stream of the vBucket; answers an ADD_STREAM that waits for it with `status`.
    fn lose(&mut self, vb: VbId, status: Status, out: &mut Vec<u8>) {
        self.intake.close(vb);
        self.served.claims.release(vb, self.connection);
        if let Some(adding) = self.adding.remove(&vb) {
            Response::new(Opcode::DCP_ADD_STREAM, adding.opaque, status).encode(out);
        }
    }

    fn no_stream(&self) -> Status {
        if self.controls.new_statuses() {
            Status::DCP_STREAM_NOT_FOUND
        } else {
            Status::KEY_ENOENT
        }
    }

    fn other_stream(&self) -> Status {
        if self.controls.new_statuses() {
            Status::OPAQUE_NO_MATCH
        } else {
            Status::KEY_EEXISTS
        }
    }

    /// Processes an answer; returns `false` if the connection must be closed.
    pub fn answered(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> bool {
        let (opcode, opaque) = (frame.header.opcode, frame.header.opaque);
        match opcode {
            Opcode::DCP_CONTROL if self.controls.is_done() => frame.status() == Status::SUCCESS,
            Opcode::DCP_CONTROL => {
                if !self.controls.expects(opcode, opaque) {
                    return false;
                }
                if let Err(reason) = self.controls.answered(frame.status()) {
                    tracing::debug!(name = &*self.name, reason, "closing");
                    return false;
                }
                self.negotiate(out);
                if self.controls.is_done() {
                    self.negotiated(out);
                }
                true
            }
            Opcode::DCP_STREAM_REQ => self.stream_answered(frame, out),
            _ => true,
        }
    }

    fn negotiated(&mut self, out: &mut Vec<u8>) {
        let agreed = self.controls.sync_writes();
        self.intake.agree_on_sync_writes(agreed);
        self.intake.progress().set_stage(Stage::Streaming);
        for (vb, adding) in self.adding.clone() {
            self.ask(vb, adding.flags, out);
        }
    }

    fn stream_answered(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> bool {
        match self.intake.answered(frame, out) {
            Ok(None | Some((_, StreamAnswer::Again))) => true,
            Ok(Some((vb, StreamAnswer::Granted))) => {
                if let Some(adding) = self.adding.remove(&vb) {
                    let opaque = self.intake.opaque(vb);
                    let added = Response {
                        extras: &opaque.0,
                        ..Response::new(Opcode::DCP_ADD_STREAM, adding.opaque, Status::SUCCESS)
                    };
                    added.encode(out);
                }
                true
            }
            Ok(Some((vb, StreamAnswer::Refused(status)))) => {
                self.lose(vb, status, out);
                true
            }
            Err(IntakeError::Violation(vb, violation)) => {
                tracing::debug!(vb = vb.0, %violation, "closing");
                false
            }
            Err(wrong) => {
                let (vb, status) = self.judge(&wrong);
                self.lose(vb, status, out);
                true
            }
        }
    }

    /// Processes a message of a stream.
    ///
    /// # Errors
    /// The message was not applied; the status goes to the producer.
    pub fn pushed(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), InboundError> {
        let vb = frame.vbucket();
        if !self.intake.is_closed(vb) && !self.served.claims.holds(vb, self.connection) {
            self.intake.close(vb);
        }
        match self.intake.pushed(frame, out) {
            Ok(Pushed::Taken) => Ok(()),
            Ok(Pushed::Ended(vb)) => {
                self.served.claims.release(vb, self.connection);
                Ok(())
            }
            Err(wrong) => {
                let (vb, status) = self.judge(&wrong);
                let harmless = matches!(
                    wrong,
                    IntakeError::NoStream(_)
                        | IntakeError::OtherStream(_)
                        | IntakeError::Violation(_, Violation::OldMarker | Violation::OutOfOrder)
                );
                // A message is missing, so no later message of the stream may be applied.
                if !harmless {
                    self.lose(vb, status, out);
                }
                if matches!(wrong, IntakeError::Incomplete(_))
                    && self.intake.begin_anew(vb).is_err()
                {
                    self.broken = true;
                }
                Err(match wrong {
                    IntakeError::Violation(_, violation) => {
                        InboundError::because(status, violation.to_string())
                    }
                    IntakeError::Stuck(_, reason) => InboundError::because(status, reason),
                    _ => status.into(),
                })
            }
        }
    }

    /// Closes the stream of a message that was refused before it reached its stream: no later message may be applied.
    pub fn missed(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) {
        let vb = frame.vbucket();
        if flow_bytes_of(frame) > 0 && frame.header.opaque == self.intake.opaque(vb) {
            self.lose(vb, Status::EINVAL, out);
        }
    }

    fn judge(&self, wrong: &IntakeError) -> (VbId, Status) {
        match *wrong {
            IntakeError::NoStream(vb) | IntakeError::Incomplete(vb) => (vb, self.no_stream()),
            IntakeError::OtherStream(vb) => (vb, self.other_stream()),
            IntakeError::NotFollowing(vb) => (vb, Status::NOT_MY_VBUCKET),
            IntakeError::Violation(vb, Violation::Unexpected | Violation::Malformed)
            | IntakeError::Stuck(vb, _) => (vb, Status::EINVAL),
            IntakeError::Violation(vb, _) => (vb, Status::ERANGE),
        }
    }

    /// Does the periodic work: acknowledges prepares and bytes, resizes the window. Returns `false` if the
    /// connection must be closed.
    pub fn tick(&mut self, now: Now, out: &mut Vec<u8>) -> bool {
        let silence = Duration::from_nanos(now.mono_ns.saturating_sub(self.heard_ns));
        let limit = self.served.dcp.settings.read().idle_timeout;
        if self.broken || silence > limit.unwrap_or(IDLE_LIMIT) {
            return false;
        }
        if !self.controls.is_done() {
            return true;
        }
        while let Some(vb) = self.prepared.next(VbId(0)) {
            self.intake.acknowledge_prepares(vb, out);
        }
        let bytes = self
            .served
            .dcp
            .window_bytes(self.served.bucket.memory().quota());
        if bytes != self.wishes.window_bytes {
            self.wishes.window_bytes = bytes;
            self.intake.window().resize(bytes);
            Controls::resize(bytes, out);
        }
        self.intake.acknowledge(now.mono_ns, out);
        true
    }

    /// Longest time until the next call of [`Inbound::tick`] if no wake comes earlier.
    pub fn within(&mut self) -> Duration {
        let ns = if self.intake.is_paused() {
            PAUSED_LOOK_NS
        } else {
            ACK_LOOK_NS
        };
        Duration::from_nanos(ns)
    }
}

impl Drop for Inbound {
    /// Releases the claims and statistics of the closed connection.
    fn drop(&mut self) {
        self.intake.progress().set_stage(Stage::Stopped);
        self.served.claims.release_all(self.connection);
        self.served.dcp.leave_consumer(&self.name, self.connection);
    }
}
