//! Bytes in, bytes out.

use std::time::Duration;

use wire::Decoded;

use crate::congestion::{self, Congestion};
use crate::outcome::CommandOutcome;
use crate::session::Session;

/// Output beyond which nothing more is run until the peer took some of it.
const OUTPUT_BYTES_MAX: usize = 1 << 20;
/// The same while connections hold much altogether.
const OUTPUT_BYTES_CONGESTED: usize = 64 << 10;
/// Commands run in one turn before other connections get theirs.
const COMMANDS_PER_TURN: u64 = 2048;

fn output_max(congestion: Congestion) -> usize {
    match congestion {
        Congestion::None => OUTPUT_BYTES_MAX,
        Congestion::High | Congestion::Full => OUTPUT_BYTES_CONGESTED,
    }
}

/// What became of a piece of input.
pub struct Received {
    /// Bytes of it that are done with.
    pub consumed: usize,
    /// How the conversation goes on.
    pub verdict: Verdict,
}

/// How the conversation goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// What is left of the input is no whole frame: at least so many bytes are missing.
    NeedInput(usize),
    /// Send the output, then call again with what is left.
    OutputFull,
    /// A request waits for something: call again with what is left once woken, or after this
    /// long.
    Parked(Duration),
    /// Send the output, then close.
    Close,
}

impl Session {
    /// Runs every whole frame at the start of `input`, and appends the answers to `output`.
    pub fn receive(&mut self, input: &[u8], output: &mut Vec<u8>) -> Received {
        let mut consumed = 0;
        let mut commands = 0;
        let mut now = self.node.clock.now();
        if self.owes() && !self.settle(now, output) {
            return Received {
                consumed,
                verdict: Verdict::Close,
            };
        }
        let congestion = Congestion::of(&self.node.buffers, self.bucket.as_deref());
        if congestion == Congestion::Full && self.is_authenticated() {
            let verdict = Verdict::Parked(congestion::RETRY_INTERVAL);
            return Received { consumed, verdict };
        }
        let output_max = output_max(congestion);
        let mut prefetched = 0;
        let verdict = loop {
            if consumed >= prefetched {
                prefetched = consumed + self.prefetch_documents(&input[consumed..]);
            }
            if output.len() >= output_max || commands >= COMMANDS_PER_TURN {
                self.info.count_yield();
                break Verdict::OutputFull;
            }
            match wire::decode(&input[consumed..], self.limits()) {
                Ok(Decoded::Incomplete { more }) => break Verdict::NeedInput(more),
                Ok(Decoded::Frame {
                    frame,
                    consumed: length,
                }) => {
                    if self.owes() && !self.may_overtake(&frame) {
                        break Verdict::Parked(self.owed_limit(now));
                    }
                    let started_ns = now.mono_ns;
                    let outcome = if congestion == Congestion::None {
                        self.execute(&frame, now, output)
                    } else {
                        self.execute_under_congestion(&frame, now, output)
                    };
                    now.mono_ns = self.node.clock.mono_ns();
                    match outcome {
                        CommandOutcome::Parked(limit) => break Verdict::Parked(limit),
                        CommandOutcome::More => {
                            self.info.count_yield();
                            break Verdict::OutputFull;
                        }
                        _ => {}
                    }
                    self.park = None;
                    if outcome != CommandOutcome::Owed {
                        self.timings
                            .record(frame.header.opcode.0, now.mono_ns - started_ns);
                    }
                    consumed += length;
                    commands += 1;
                    if outcome == CommandOutcome::Close {
                        break Verdict::Close;
                    }
                }
                Err(error) => {
                    tracing::debug!(connection = self.info.id, %error, "closing");
                    break Verdict::Close;
                }
            }
        };
        if commands > 0 {
            self.info.count_commands(commands);
        }
        Received { consumed, verdict }
    }
}
