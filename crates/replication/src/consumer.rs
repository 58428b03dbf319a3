//! The replica's side of a connection to its active node: bytes in, bytes out. No socket, no waiting, no clock.

use std::sync::Arc;
use std::time::Duration;

use consumer::{Intake, NOOP_INTERVAL_S, StandingStreams, Target, Violation, send};
use model::VbId;
use registry::{NotThere, Progress, REGISTER, Stage, USERS};
use wire::request::GetAllVbSeqnos;
use wire::response::VbSeqnos;
use wire::{Envelope, Frame, Opaque, Opcode, RawParts, Status, encode_raw};

use super::broken::Broken;
use super::dialogue::{Dialogue, Opening};
use super::missed::Missed;
use super::setup::Introduction;

/// Silence after which a connection is dead, even in the middle of a message: the producer sends no-ops.
const SILENCE: Duration = Duration::from_secs(3 * NOOP_INTERVAL_S as u64);
const SECOND_NS: u64 = 1_000_000_000;
/// Interval between two requests for the seqnos of the active node.
const SEQNOS_NS: u64 = 2 * SECOND_NS;
const SEQNOS: Opaque = Opaque([0, 0, 0xff, 0xff]);
const REGISTRATION: Opaque = Opaque([0, 0, 0xff, 0xfe]);
const ROSTER: Opaque = Opaque([0, 0, 0xff, 0xfd]);

/// A connection to the active node.
pub(super) struct Consumer<'a, T> {
    opening: Opening<'a>,
    progress: Arc<Progress>,
    streams: StandingStreams<&'a T>,
    now_ns: u64,
    heard_ns: u64,
    /// Time of the next request for the seqnos; `u64::MAX` for a consumer that does not register.
    seqnos_ns: u64,
    /// Whether the nodes or users of the active node may have changed.
    news: bool,
    /// Whether a request for users is not answered yet.
    asks_users: bool,
    users: Missed,
    settings: Missed,
}

impl<'a, T: Target> Consumer<'a, T> {
    /// Starts the conversation.
    pub(super) fn new(
        target: &'a T,
        about: &'a Introduction,
        progress: Arc<Progress>,
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Result<Self, Broken> {
        let intake = Intake::new(
            target,
            Arc::clone(&progress),
            about.wishes.window_bytes,
            now_ns,
        );
        let registers = !about.about.is_empty();
        Ok(Self {
            opening: Opening::begin(about, out)?,
            progress,
            streams: StandingStreams::new(intake, about.streams, now_ns),
            now_ns,
            heard_ns: now_ns,
            seqnos_ns: if registers { now_ns } else { u64::MAX },
            news: false,
            asks_users: false,
            users: Missed::new("users"),
            settings: Missed::new("settings"),
        })
    }

    /// Processes every whole frame at the start of `input`; returns the number of bytes consumed.
    ///
    /// # Errors
    /// The connection must be closed. Messages processed so far stay applied.
    pub(super) fn receive(
        &mut self,
        input: &[u8],
        now_ns: u64,
        out: &mut Vec<u8>,
    ) -> Result<usize, Broken> {
        self.heard_ns = now_ns;
        self.now_ns = now_ns;
        self.streams.advance(now_ns);
        let done = self.frames(input, out)?;
        self.tick(now_ns, out)?;
        Ok(done)
    }

    /// Returns the time until [`Self::tick`] is due, if nothing happens before.
    pub(super) fn due_in(&self) -> Duration {
        let silent_ns = self
            .heard_ns
            .saturating_add(self.silence().as_nanos() as u64);
        let due_ns = if self.opening.is_done() {
            silent_ns.min(self.streams.due_ns()).min(self.seqnos_ns)
        } else {
            silent_ns
        };
        Duration::from_nanos(due_ns.saturating_sub(self.now_ns))
    }

    /// Longest silence of the producer.
    fn silence(&self) -> Duration {
        self.streams.target().idle_timeout().unwrap_or(SILENCE)
    }

    /// Does the periodic work: acknowledges bytes, requests missing streams, detects a dead producer. Call it when
    /// [`Self::due_in`] has passed.
    ///
    /// # Errors
    /// As [`Consumer::receive`].
    pub(super) fn tick(&mut self, now_ns: u64, out: &mut Vec<u8>) -> Result<(), Broken> {
        self.now_ns = now_ns;
        self.streams.advance(now_ns);
        let silence = Duration::from_nanos(now_ns.saturating_sub(self.heard_ns));
        if silence > self.silence() {
            return Err(Broken::Silent);
        }
        if !self.opening.is_done() {
            return Ok(());
        }
        self.streams.ask_due(out);
        if now_ns >= self.seqnos_ns {
            self.seqnos_ns = now_ns.saturating_add(SEQNOS_NS);
            for vb in self.streams.target().damaged() {
                self.streams.turn(vb, out);
            }
            let envelope = Envelope {
                opaque: SEQNOS,
                ..Envelope::default()
            };
            let question = GetAllVbSeqnos {
                state: None,
                collection: None,
            };
            send(&question, &envelope, out);
            self.news = true;
        }
        if self.news && !self.asks_users {
            self.news = false;
            self.register_again(out);
            self.ask_users(out);
        }
        self.streams.intake().acknowledge(now_ns, out);
        Ok(())
    }

    /// Registers again. This also restores the registration if the active node lost it, and fetches the other replicas.
    fn register_again(&self, out: &mut Vec<u8>) {
        say(REGISTRATION, REGISTER, &self.opening.about().about, out);
    }

    /// Requests the users of the active node, unless they are equal to those of this node.
    fn ask_users(&mut self, out: &mut Vec<u8>) {
        if let Some(question) = self.streams.target().users_question() {
            self.asks_users = true;
            say(ROSTER, USERS, &question, out);
        }
    }

    /// Stores the users of the active node. If that fails, the documents are still replicated.
    fn receive_users(&mut self, status: Status, told: &[u8]) {
        self.asks_users = false;
        let taken = match status {
            Status::SUCCESS => self.streams.target().take_users(told),
            Status::EACCESS => Err("only a full administrator is told of them".to_owned()),
            other => Err(format!("{}: {}", other.description(), told.escape_ascii())),
        };
        self.users.note(&self.opening.about().bucket, taken);
    }

    /// Processes the answer to a registration. If its settings cannot be kept, the documents are still replicated.
    fn registered(&mut self, answer: &[u8]) -> Result<(), Broken> {
        let registered = self.streams.target().registered(answer);
        let settings = registered.map_err(|why| match why {
            NotThere::Elsewhere(host, port) => Broken::Elsewhere(host, port),
            NotThere::Refused(reason) => Broken::Refused(reason),
        })?;
        self.settings.note(&self.opening.about().bucket, settings);
        Ok(())
    }

    /// Acknowledges the prepares of the vBucket if there are new ones. Call it whenever there may be.
    pub(super) fn acknowledge_prepares(&mut self, vb: VbId, out: &mut Vec<u8>) {
        self.streams.intake().acknowledge_prepares(vb, out);
    }

    /// Restarts the stream of a vBucket whose role or producer changed. All are requested once the connection is set up.
    pub(super) fn turn(&mut self, vb: VbId, out: &mut Vec<u8>) {
        if self.opening.is_done() {
            self.streams.turn(vb, out);
        }
    }
}

/// Sends a setting that is short enough for a frame.
fn say(opaque: Opaque, key: &[u8], value: &str, out: &mut Vec<u8>) {
    let envelope = Envelope {
        opaque,
        ..Envelope::default()
    };
    let parts = RawParts {
        key,
        value: value.as_bytes(),
        ..RawParts::default()
    };
    let sent = encode_raw(Opcode::IOCTL_SET, &envelope, parts, out);
    sent.expect("a registration, which was sent before, or a number");
}

impl<T: Target> Dialogue for Consumer<'_, T> {
    fn notified(&mut self) {
        self.news = true;
    }

    fn answer(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        let (opcode, opaque) = (frame.header.opcode, frame.header.opaque);
        if !self.opening.is_done() {
            if let Some(told) = self.opening.answered(frame)? {
                self.registered(told)?;
            }
            if self.opening.is_done() {
                let agreed = self.opening.sync_writes();
                self.streams.intake().agree_on_sync_writes(agreed);
                self.progress.set_stage(Stage::Streaming);
                return self.tick(self.now_ns, out);
            }
            return self.opening.ask(out);
        }
        match opcode {
            Opcode::DCP_STREAM_REQ => Ok(self.streams.answered(frame, out)?),
            Opcode::GET_ALL_VB_SEQNOS if frame.status() == Status::SUCCESS => {
                let malformed = |_| Broken::Violation(None, Violation::Malformed);
                let seqnos = VbSeqnos::parse(frame.value).map_err(malformed)?;
                for (vb, seqno) in seqnos.iter() {
                    self.progress.set_peer_seqno(vb, seqno);
                }
                Ok(())
            }
            Opcode::IOCTL_SET if opaque == REGISTRATION && frame.status() == Status::SUCCESS => {
                self.registered(frame.value)
            }
            Opcode::IOCTL_SET if opaque == ROSTER => {
                self.receive_users(frame.status(), frame.value);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn pushed(&mut self, frame: &Frame<'_>, out: &mut Vec<u8>) -> Result<(), Broken> {
        Ok(self.streams.pushed(frame, out)?)
    }
}
