//! Receiver of a conversation's bytes: it runs the requests and appends the answers.

use std::ops::ControlFlow;
use std::time::Duration;

use bucket::{Purpose, Reservation};
use model::Now;
use wire::{Decoded, Feature, Frame, Magic};

use crate::outcome::CommandOutcome;
use crate::session::Session;

/// Bytes of output at which no further request runs until the peer has taken some of them.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// The same limit during congestion.
const OUTPUT_BYTES_CONGESTED: usize = 64 << 10;
/// Time after which a turn ends, so that other connections get theirs, ns.
const TURN_NS: u64 = 2_000_000;

/// Result of a piece of input.
pub struct Received {
    /// Bytes of the input that were consumed.
    pub consumed: usize,
    /// Next step of the conversation.
    pub verdict: Verdict,
}

/// Next step of a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The rest of the input is an incomplete frame: at least this many bytes are missing.
    NeedInput(usize),
    /// Send the output, then call again with the rest of the input.
    OutputFull,
    /// A request waits: call again with the rest of the input after a wake, or after this time.
    Parked(Duration),
    /// Send the output, then close.
    Close,
}

/// State of one turn over a piece of input.
pub(crate) struct Turn {
    /// Bytes of the input that were consumed.
    pub(crate) consumed: usize,
    /// Number of requests that were run.
    pub(crate) commands: u64,
    pub(crate) now: Now,
    /// Monotonic time after which no further request runs.
    until_ns: u64,
    /// Whether there was congestion at the start of the turn.
    congested: bool,
}

impl Turn {
    fn received(&self, verdict: Verdict) -> Received {
        Received {
            consumed: self.consumed,
            verdict,
        }
    }
}

impl Session {
    /// Settles owed answers, and judges the certificate of the peer. Returns a verdict if no command can run at this
    /// moment.
    fn obstacle(&mut self, congested: bool, now: Now, output: &mut Vec<u8>) -> Option<Verdict> {
        if self.owes() && !self.settle(now, output) {
            return Some(Verdict::Close);
        }
        if let Some(wait) = self.users_wait() {
            return Some(Verdict::Parked(wait));
        }
        if let Some(certificate) = self.login.shown.take()
            && !self.judge_certificate(&certificate)
        {
            return Some(Verdict::Close);
        }
        if !congested || !self.is_authenticated() {
            return None;
        }
        match self.reserve(Purpose::Answer, 0, Duration::ZERO) {
            Reservation::Wait { retry, .. } => Some(Verdict::Parked(retry)),
            _ => None,
        }
    }

    /// Runs every complete request at the start of `input`, and appends the answers to `output`.
    pub fn receive(&mut self, input: &[u8], output: &mut Vec<u8>) -> Received {
        let received = self.run_requests(input, output);
        self.hand_on_trail();
        received
    }

    fn run_requests(&mut self, input: &[u8], output: &mut Vec<u8>) -> Received {
        let now = self.node.clock.now();
        let mut turn = Turn {
            consumed: 0,
            commands: 0,
            now,
            until_ns: now.mono_ns + TURN_NS,
            congested: self.is_congested(),
        };
        if !self.append_pending(output) {
            return turn.received(Verdict::OutputFull);
        }
        if let Some(verdict) = self.obstacle(turn.congested, turn.now, output) {
            return turn.received(verdict);
        }
        self.choose_protocol(input);
        let output_max = if turn.congested {
            OUTPUT_BYTES_CONGESTED
        } else {
            OUTPUT_BYTES_MAX
        };
        let mut prefetched = 0;
        let verdict = loop {
            if turn.consumed >= prefetched {
                prefetched = turn.consumed + self.prefetch_documents(&input[turn.consumed..]);
            }
            let is_full = output.len() >= output_max || self.pending_value.is_some();
            if is_full || turn.now.mono_ns >= turn.until_ns {
                self.info.count_yield();
                break Verdict::OutputFull;
            }
            let rest = &input[turn.consumed..];
            let step = if self.text.is_some() {
                self.text_step(rest, &mut turn, output)
            } else {
                self.binary_step(rest, &mut turn, output)
            };
            if let ControlFlow::Break(verdict) = step {
                break verdict;
            }
        };
        if turn.commands > 0 {
            self.info.count_commands(turn.commands);
        }
        match verdict {
            // Scans are being opened: wait until they are open or have failed.
            Verdict::NeedInput(_) if !self.opening.is_empty() => {
                turn.received(Verdict::Parked(self.owed_limit(turn.now)))
            }
            verdict => turn.received(verdict),
        }
    }

    /// Chooses the protocol of a conversation that may be in text, by its first byte.
    fn choose_protocol(&mut self, input: &[u8]) {
        if let (true, Some(first)) = (self.undecided, input.first()) {
            self.undecided = false;
            self.text = Magic::from_byte(*first).is_none().then(Box::default);
            if self.text.is_some() {
                // An extended attribute marks stale documents.
                self.features.insert(Feature::XATTR);
            }
        }
    }

    /// Runs the first frame of `input`.
    fn binary_step(
        &mut self,
        input: &[u8],
        turn: &mut Turn,
        output: &mut Vec<u8>,
    ) -> ControlFlow<Verdict> {
        let decoded = match &self.incoming {
            None => wire::decode(input, self.limits()),
            Some(value) => Ok(value.decode(input)),
        };
        let (frame, length) = match decoded {
            Ok(Decoded::Incomplete { more }) => {
                return ControlFlow::Break(Verdict::NeedInput(more));
            }
            Ok(Decoded::Frame { frame, consumed }) => (frame, consumed),
            Err(error) => {
                tracing::debug!(connection = self.info.id, %error, "closing");
                self.record_invalid(input, turn.now);
                return ControlFlow::Break(Verdict::Close);
            }
        };
        let began = turn.now;
        let ran = self.run_frame(&frame, turn, output);
        self.record_refused(&input[..length], began);
        let outcome = match ran {
            Ok(outcome) => outcome,
            Err(verdict) => return ControlFlow::Break(verdict),
        };
        self.park = None;
        self.incoming = None;
        turn.consumed += length;
        turn.commands += 1;
        if outcome == CommandOutcome::Close {
            ControlFlow::Break(Verdict::Close)
        } else {
            ControlFlow::Continue(())
        }
    }

    /// Runs a frame.
    ///
    /// # Errors
    /// The verdict if the frame stays in the input, to be run again.
    pub(crate) fn run_frame(
        &mut self,
        frame: &Frame<'_>,
        turn: &mut Turn,
        output: &mut Vec<u8>,
    ) -> Result<CommandOutcome, Verdict> {
        if self.owes() && !self.may_overtake(frame) {
            return Err(Verdict::Parked(self.owed_limit(turn.now)));
        }
        let started_ns = turn.now.mono_ns;
        let outcome = if turn.congested {
            self.execute_under_congestion(frame, turn.now, output)
        } else {
            self.execute(frame, turn.now, output)
        };
        turn.now.mono_ns = self.node.clock.mono_ns();
        match outcome {
            CommandOutcome::Parked(limit) => return Err(Verdict::Parked(limit)),
            CommandOutcome::More => {
                self.info.count_yield();
                return Err(Verdict::OutputFull);
            }
            CommandOutcome::Owed => {}
            CommandOutcome::Next | CommandOutcome::Close => self
                .timings
                .record(frame.header.opcode.0, turn.now.mono_ns - started_ns),
        }
        Ok(outcome)
    }
}
