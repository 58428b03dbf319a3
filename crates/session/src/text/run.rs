//! Conversion of text requests to frames.

use std::ops::ControlFlow;

use model::Cas;
use value::VALUE_BYTES_MAX;
use wire::request::{Arithmetic, Direction};
use wire::text::{Retrieval, TextDecoded, TextRequest, TextStore, TextStoreMode, decode_text};
use wire::{Frame, Limits, Opcode, RawParts};

use super::TextConversation;
use super::conversation::Form;
use crate::outcome::CommandOutcome;
use crate::receive::{Turn, Verdict};
use crate::session::Session;

/// A CAS that no document has; 0 would match any document.
const CAS_OF_NONE: Cas = Cas(1);

/// Result of a request: its outcome, or the verdict if no request can run at this moment.
pub(super) type RunResult = Result<CommandOutcome, Verdict>;

/// Returns the CAS of a frame for the CAS that a peer sent.
pub(super) fn cas_of(named: u64) -> Cas {
    if named == 0 { CAS_OF_NONE } else { Cas(named) }
}

/// Returns flags and expiry as the extras of a store.
pub(super) fn store_extras(flags: u32, expiry: u32) -> [u8; 8] {
    let mut extras = [0; 8];
    extras[..4].copy_from_slice(&flags.to_be_bytes());
    extras[4..].copy_from_slice(&expiry.to_be_bytes());
    extras
}

/// Returns the extras of a counter request.
pub(super) fn count_extras(delta: u64, initial: u64, expiry: u32) -> [u8; 20] {
    let mut extras = [0; 20];
    extras[..8].copy_from_slice(&delta.to_be_bytes());
    extras[8..16].copy_from_slice(&initial.to_be_bytes());
    extras[16..].copy_from_slice(&expiry.to_be_bytes());
    extras
}

pub(super) fn about(opcode: Opcode, key: &[u8]) -> Frame<'_> {
    let parts = RawParts {
        key,
        ..RawParts::default()
    };
    Frame::request(opcode, Cas(0), parts)
}

pub(super) fn with_extras<'a>(opcode: Opcode, extras: &'a [u8], key: &'a [u8]) -> Frame<'a> {
    let value = &[];
    Frame::request(opcode, Cas(0), RawParts { extras, key, value })
}

impl TextConversation {
    /// Sets the form of the answer to a storage command.
    fn expect_store(&mut self, store: &TextStore<'_>) {
        let with_cas = matches!(store.mode, TextStoreMode::Cas(_));
        self.expect(Form::Store { with_cas }, store.noreply);
        self.keep_key(store.key);
    }
}

impl Session {
    /// Returns the maximum size of the peer's values, in bytes.
    fn text_value_bytes_max(&self) -> usize {
        if self.is_authenticated() {
            VALUE_BYTES_MAX
        } else {
            Limits::UNAUTHENTICATED.body_bytes_max as usize
        }
    }

    /// Splits the first request off `input`, a text that begins at `place`.
    pub(crate) fn decode_text<'a>(
        &self,
        input: &'a [u8],
        place: wire::text::TextPlace,
    ) -> Result<TextDecoded<'a>, wire::text::TextError> {
        decode_text(input, place, self.text_value_bytes_max())
    }

    /// Runs the first request of `input`.
    pub(crate) fn text_step(
        &mut self,
        input: &[u8],
        turn: &mut Turn,
        output: &mut Vec<u8>,
    ) -> ControlFlow<Verdict> {
        // The form of an owed answer is kept until the answer is written.
        if self.owes() {
            return ControlFlow::Break(Verdict::Parked(self.owed_limit(turn.now)));
        }
        let Some(text) = &mut self.text else {
            return ControlFlow::Break(Verdict::Close);
        };
        if text.skip > 0 {
            let skipped = text.skip.min(input.len());
            text.skip -= skipped;
            turn.consumed += skipped;
            return if text.skip > 0 {
                ControlFlow::Break(Verdict::NeedInput(1))
            } else {
                ControlFlow::Continue(())
            };
        }
        let place = text.place;
        match self.decode_text(input, place) {
            Ok(TextDecoded::Incomplete { more }) => ControlFlow::Break(Verdict::NeedInput(more)),
            Ok(TextDecoded::AwaitsValue { request, more }) => {
                if let Some(text) = &mut self.text {
                    match &request {
                        TextRequest::Store(store) => text.expect_store(store),
                        TextRequest::Meta(meta) => text.expect_meta(meta, meta.key, &[]),
                        _ => {}
                    }
                }
                ControlFlow::Break(Verdict::NeedInput(more))
            }
            Ok(TextDecoded::Request {
                request,
                consumed,
                place,
            }) => {
                let began = turn.now;
                let ran = self.run_text(&request, turn, output);
                self.record_refused(first_line(&input[..consumed]), began);
                let outcome = match ran {
                    Ok(outcome) => outcome,
                    Err(verdict) => return ControlFlow::Break(verdict),
                };
                if let Some(text) = &mut self.text {
                    text.place = place;
                }
                self.park = None;
                turn.consumed += consumed;
                turn.commands += 1;
                if outcome == CommandOutcome::Close {
                    return ControlFlow::Break(Verdict::Close);
                }
                ControlFlow::Continue(())
            }
            Err(error) => {
                self.record_invalid(first_line(input), turn.now);
                output.extend_from_slice(error.line().as_bytes());
                output.extend_from_slice(b"\r\n");
                ControlFlow::Break(Verdict::Close)
            }
        }
    }

    fn broke_off(&self) -> bool {
        self.text.as_ref().is_some_and(|text| text.broke_off())
    }

    fn run_text(
        &mut self,
        request: &TextRequest<'_>,
        turn: &mut Turn,
        out: &mut Vec<u8>,
    ) -> RunResult {
        match request {
            TextRequest::Key(..) if self.broke_off() => Ok(CommandOutcome::Next),
            TextRequest::Key(retrieval, key) => self.retrieve(*retrieval, key, turn, out),
            TextRequest::EndOfKeys => {
                let broke_off = self.broke_off();
                self.expect(Form::Silent, false);
                if broke_off {
                    return Ok(CommandOutcome::Next);
                }
                say(out, "END")
            }
            TextRequest::Store(store) => self.run_store(store, turn, out),
            TextRequest::Delete { key, noreply } => {
                self.expect(Form::Delete, *noreply);
                if let Some(text) = &mut self.text {
                    text.keep_key(key);
                }
                self.run_frame(&about(Opcode::DELETE, key), turn, out)
            }
            TextRequest::Count {
                direction,
                key,
                delta,
                noreply,
            } => {
                let opcode = match direction {
                    Direction::Increment => Opcode::INCREMENT,
                    Direction::Decrement => Opcode::DECREMENT,
                };
                self.expect(Form::Count, *noreply);
                let extras = count_extras(*delta, 0, Arithmetic::DO_NOT_CREATE);
                self.run_frame(&with_extras(opcode, &extras, key), turn, out)
            }
            TextRequest::Touch {
                key,
                expiry,
                noreply,
            } => {
                self.expect(Form::Touch, *noreply);
                let extras = expiry.to_be_bytes();
                self.run_frame(&with_extras(Opcode::TOUCH, &extras, key), turn, out)
            }

            TextRequest::Stats { group } => self.text_stats(group, turn, out),
            TextRequest::Version => {
                self.expect(Form::Version, false);
                self.run_frame(&about(Opcode::VERSION, &[]), turn, out)
            }
            TextRequest::FlushAll { delay, noreply } => {
                self.expect(Form::Flush, *noreply);
                let extras = u32::try_from(*delay).unwrap_or(u32::MAX).to_be_bytes();
                self.run_frame(&with_extras(Opcode::FLUSH, &extras, &[]), turn, out)
            }
            TextRequest::Verbosity { noreply: true } => Ok(CommandOutcome::Next),
            // The log level is set when the node starts.
            TextRequest::Verbosity { noreply: false } => say(out, "OK"),
            TextRequest::Quit => {
                self.expect(Form::Silent, false);
                self.run_frame(&about(Opcode::QUIT, &[]), turn, out)
            }
            TextRequest::MetaNoop => {
                self.expect(Form::MetaNoop, false);
                self.run_frame(&about(Opcode::NOOP, &[]), turn, out)
            }
            TextRequest::Meta(meta) => self.run_meta(meta, turn, out),
            TextRequest::Refused { line, skip } => {
                if let Some(text) = &mut self.text {
                    text.skip = *skip;
                }
                say(out, line)
            }
        }
    }

    pub(super) fn expect(&mut self, form: Form, noreply: bool) {
        if let Some(text) = &mut self.text {
            text.expect(form, noreply);
        }
    }

    /// Runs a retrieval of one key. A missing document has no answer.
    fn retrieve(
        &mut self,
        retrieval: Retrieval,
        key: &[u8],
        turn: &mut Turn,
        out: &mut Vec<u8>,
    ) -> RunResult {
        let with_cas = retrieval.with_cas;
        self.expect(Form::Value { with_cas }, false);
        if let Some(text) = &self.text {
            text.refused.set(None);
        }
        let Some(expiry) = retrieval.expiry else {
            return self.run_frame(&about(Opcode::GETKQ, key), turn, out);
        };
        if let Some(text) = &mut self.text {
            text.keep_key(key);
        }
        let extras = expiry.to_be_bytes();
        self.run_frame(&with_extras(Opcode::GATQ, &extras, key), turn, out)
    }

    fn run_store(
        &mut self,
        store: &TextStore<'_>,
        turn: &mut Turn,
        out: &mut Vec<u8>,
    ) -> RunResult {
        if !self.is_authenticated() {
            return self.log_in_by_text(store.value, turn, out);
        }
        if let Some(text) = &mut self.text {
            text.expect_store(store);
        }
        let (opcode, cas) = match store.mode {
            TextStoreMode::Set => (Opcode::SET, Cas(0)),
            TextStoreMode::Add => (Opcode::ADD, Cas(0)),
            TextStoreMode::Replace => (Opcode::REPLACE, Cas(0)),
            TextStoreMode::Append => (Opcode::APPEND, Cas(0)),
            TextStoreMode::Prepend => (Opcode::PREPEND, Cas(0)),
            TextStoreMode::Cas(cas) => (Opcode::SET, cas_of(cas)),
        };
        let extras = store_extras(store.flags, store.expiry);
        let joins = matches!(opcode, Opcode::APPEND | Opcode::PREPEND);
        let parts = RawParts {
            extras: if joins { &[] } else { &extras },
            key: store.key,
            value: store.value,
        };
        self.run_frame(&Frame::request(opcode, cas, parts), turn, out)
    }

    /// Logs in: a storage command before the login has user and password as its value.
    fn log_in_by_text(&mut self, value: &[u8], turn: &mut Turn, out: &mut Vec<u8>) -> RunResult {
        self.expect(Form::Login, false);
        let end = value.iter().position(|byte| *byte == b' ');
        let (user, password) = value.split_at(end.unwrap_or(value.len()));
        let password = password.strip_prefix(b" ").unwrap_or_default();
        let payload = [b"\0", user, b"\0", password].concat();
        let parts = RawParts {
            extras: &[],
            key: b"PLAIN",
            value: &payload,
        };
        let frame = Frame::request(Opcode::SASL_AUTH, Cas(0), parts);
        self.run_frame(&frame, turn, out)
    }
}

/// Returns the part of a request that may be logged: never its value, which may be a password.
fn first_line(input: &[u8]) -> &[u8] {
    let end = input.iter().position(|byte| *byte == b'\n');
    &input[..end.unwrap_or(input.len())]
}

/// Appends a line that no command makes.
#[expect(clippy::unnecessary_wraps, reason = "it stands where a frame is run")]
pub(super) fn say(out: &mut Vec<u8>, line: &str) -> RunResult {
    out.extend_from_slice(line.as_bytes());
    out.extend_from_slice(b"\r\n");
    Ok(CommandOutcome::Next)
}
