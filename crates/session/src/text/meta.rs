//! Commands of the meta protocol as frames. Some need several frames; the last one answers.

use model::{Cas, STALE};
use wire::request::{Arithmetic, PathFlags};
use wire::text::{MetaMode, MetaRequest, MetaVerb};
use wire::{Frame, Opcode, RawParts, Status};

use super::TextConversation;
use super::conversation::{Counting, Form, MISSING, MISSING_OR_CHANGED, MetaForm};
use super::run::{RunResult, about, cas_of, count_extras, say, store_extras, with_extras};
use crate::commands::absolute_expiry;
use crate::outcome::CommandOutcome;
use crate::receive::{Turn, Verdict};
use crate::session::Session;

/// Attempts at a change while others change the same document.
const TRIES: usize = 8;
/// Frame info that makes a change of a document's part keep the expiry.
const PRESERVE_TTL: &[u8] = &[0x50];

/// Appends the spec that marks a document as stale.
fn stale_spec(out: &mut Vec<u8>) {
    out.extend_from_slice(&[
        Opcode::SUBDOC_DICT_UPSERT.0,
        PathFlags::XATTR.0,
        0,
        STALE.len() as u8,
    ]);
    out.extend_from_slice(&4_u32.to_be_bytes());
    out.extend_from_slice(STALE);
    out.extend_from_slice(b"true");
}

impl TextConversation {
    /// Sets the form of the answer to a meta command.
    pub(super) fn expect_meta(
        &mut self,
        meta: &MetaRequest<'_>,
        key: &[u8],
        holds: &'static [Status],
    ) {
        self.keep_key(meta.key);
        if meta.options.base64 {
            self.decoded_key.extend_from_slice(key);
        }
        self.flags.clear();
        self.flags.extend_from_slice(meta.flags.bytes());
        let form = MetaForm {
            verb: meta.verb,
            quiet: meta.options.quiet,
            value: meta.options.value,
            with_cas: meta.options.cas.is_some() && meta.options.mode != MetaMode::Add,
            brings: meta.value.len(),
            holds,
            recache: meta.options.recache,
            stub: None,
            asks_cas: false,
        };
        self.expect(Form::Meta(form), false);
        let cas = meta.options.cas.map_or(Cas::ANY, Cas);
        self.counting = Counting {
            cas,
            expiry: meta.options.expiry,
        };
    }
}

impl Session {
    /// Runs a command of the meta protocol.
    pub(super) fn run_meta(
        &mut self,
        meta: &MetaRequest<'_>,
        turn: &mut Turn,
        out: &mut Vec<u8>,
    ) -> RunResult {
        let mut place = [0; 250];
        let key = if meta.options.base64 {
            use base64::Engine as _;
            let engine = base64::engine::general_purpose::STANDARD;
            match engine.decode_slice(meta.key, &mut place) {
                Ok(length) if length > 0 => &place[..length],
                _ => return say(out, "CLIENT_ERROR error decoding key"),
            }
        } else {
            meta.key
        };
        let holds = match meta.verb {
            _ if meta.options.vivify.is_none() => &[],
            MetaVerb::Get if self.may_win(turn) => MISSING_OR_CHANGED,
            MetaVerb::Set if meta.options.mode == MetaMode::Append => MISSING,
            _ => &[],
        };
        if let Some(text) = &mut self.text {
            text.expect_meta(meta, key, holds);
        }
        match meta.verb {
            MetaVerb::Get if !holds.is_empty() => self.meta_get_or_make(meta, key, turn, out),
            MetaVerb::Get | MetaVerb::Debug => self.meta_get(meta, key, turn, out),
            MetaVerb::Set => self.meta_set(meta, key, turn, out),
            MetaVerb::Delete if meta.options.invalidate => {
                self.meta_invalidate(meta, key, turn, out)
            }
            MetaVerb::Delete => {
                let cas = meta.options.cas.map_or(Cas(0), cas_of);
                let parts = RawParts {
                    key,
                    ..RawParts::default()
                };
                let frame = Frame::request(Opcode::DELETE, cas, parts);
                self.run_frame(&frame, turn, out)
            }
            MetaVerb::Arithmetic => {
                let opcode = if meta.options.mode == MetaMode::Decrement {
                    Opcode::DECREMENT
                } else {
                    Opcode::INCREMENT
                };
                let extras = count_extras(
                    meta.options.delta.unwrap_or(1),
                    meta.options.initial,
                    meta.options.vivify.unwrap_or(Arithmetic::DO_NOT_CREATE),
                );
                self.run_frame(&with_extras(opcode, &extras, key), turn, out)
            }
        }
    }

    /// Whether one more client can be told to recompute a document.
    fn may_win(&self, turn: &Turn) -> bool {
        let bucket = self.bucket.as_ref();
        bucket.is_some_and(|bucket| bucket.recaching.has_room(turn.now.unix_s()))
    }

    fn meta_get(
        &mut self,
        meta: &MetaRequest<'_>,
        key: &[u8],
        turn: &mut Turn,
        out: &mut Vec<u8>,
    ) -> RunResult {
        let Some(expiry) = meta.options.expiry else {
            return self.run_frame(&about(Opcode::GET, key), turn, out);
        };
        let extras = expiry.to_be_bytes();
        self.run_frame(&with_extras(Opcode::GAT, &extras, key), turn, out)
    }

    /// Reads a document. If it is missing, creates it without a value, and tells this client to compute one.
    fn meta_get_or_make(
        &mut self,
        meta: &MetaRequest<'_>,
        key: &[u8],
        turn: &mut Turn,
        out: &mut Vec<u8>,
    ) -> RunResult {
        let outcome = self.meta_get(meta, key, turn, out)?;
        let expiry = meta.options.expiry.or(meta.options.vivify).unwrap_or(0);
        let absolute = absolute_expiry(expiry, turn.now);
        let Some(text) = self.text.as_mut().filter(|text| text.missed()) else {
            return Ok(outcome);
        };
        text.makes_stub(absolute.unwrap_or(u32::MAX));
        let extras = store_extras(0, expiry);
        let outcome = self.run_frame(&with_extras(Opcode::ADD, &extras, key), turn, out)?;
        match &mut self.text {
            // Another client created it meanwhile.
            Some(text) if text.refused.get() == Some(Status::KEY_EEXISTS) => {
                text.expect_meta(meta, key, &[]);
                self.meta_get(meta, key, turn, out)
            }
            _ => Ok(outcome),
        }
    }

    fn meta_set(
        &mut self,
        meta: &MetaRequest<'_>,
        key: &[u8],
        turn: &mut Turn,
        out: &mut Vec<u8>,
    ) -> RunResult {
        let options = &meta.options;
        let whole = matches!(options.mode, MetaMode::Usual | MetaMode::Replace);
        if options.invalidate && whole {
            if let Some(outcome) = self.meta_set_stale(meta, key, turn, out)? {
                return Ok(outcome);
            }
            if let Some(text) = &mut self.text {
                text.expect_meta(meta, key, &[]);
            }
        }
        let extras = store_extras(options.flags, options.expiry.unwrap_or(0));
        let (opcode, extras) = match options.mode {
            MetaMode::Add => (Opcode::ADD, &extras[..]),
            MetaMode::Replace => (Opcode::REPLACE, &extras[..]),
            MetaMode::Append => (Opcode::APPEND, &[][..]),
            MetaMode::Prepend => (Opcode::PREPEND, &[][..]),
            MetaMode::Usual | MetaMode::Decrement => (Opcode::SET, &extras[..]),
        };
        let value = meta.value;
        // A document that must not exist has no CAS.
        let named = options.cas.filter(|_| options.mode != MetaMode::Add);
        let cas = named.map_or(Cas::ANY, cas_of);
        let parts = RawParts { extras, key, value };
        let outcome = self.run_frame(&Frame::request(opcode, cas, parts), turn, out)?;
        let missed = self.text.as_deref().is_some_and(TextConversation::missed);
        let (Some(expiry), MetaMode::Append, true) = (options.vivify, options.mode, missed) else {
            return Ok(outcome);
        };
        if let Some(text) = &mut self.text {
            text.expect_meta(meta, key, &[]);
        }
        let extras = store_extras(options.flags, expiry);
        let parts = RawParts {
            extras: &extras,
            key,
            value,
        };
        self.run_frame(&Frame::request(Opcode::ADD, Cas(0), parts), turn, out)
    }

    /// Marks a document as stale; this gives it a new CAS.
    fn meta_invalidate(
        &mut self,
        meta: &MetaRequest<'_>,
        key: &[u8],
        turn: &mut Turn,
        out: &mut Vec<u8>,
    ) -> RunResult {
        let mut extras = vec![0, STALE.len() as u8, PathFlags::XATTR.0];
        let expiry = meta.options.expiry;
        extras.extend(expiry.map(u32::to_be_bytes).into_iter().flatten());
        let value = [STALE, b"true"].concat();
        let parts = RawParts {
            extras: &extras,
            key,
            value: &value,
        };
        let cas = meta.options.cas.map_or(Cas::ANY, cas_of);
        let mut frame = Frame::request(Opcode::SUBDOC_DICT_UPSERT, cas, parts);
        if expiry.is_none() {
            frame.frame_infos = PRESERVE_TTL;
        }
        self.run_frame(&frame, turn, out)
    }

    /// Stores a value that was computed from an older revision than the present one; it is marked as stale at
    /// once. `None` if the revision is not older, and nothing was stored.
    fn meta_set_stale(
        &mut self,
        meta: &MetaRequest<'_>,
        key: &[u8],
        turn: &mut Turn,
        out: &mut Vec<u8>,
    ) -> Result<Option<CommandOutcome>, Verdict> {
        let options = &meta.options;
        let Some(named) = options.cas else {
            return Ok(None);
        };
        let mut value = Vec::with_capacity(meta.value.len() + 64);
        stale_spec(&mut value);
        value.extend_from_slice(&[Opcode::SET.0, 0, 0, 0]);
        value.extend_from_slice(&(meta.value.len() as u32).to_be_bytes());
        value.extend_from_slice(meta.value);
        // The document keeps its expiry, whatever `T` says.
        let extras = [0_u32.to_be_bytes(), options.flags.to_be_bytes()].concat();
        for _ in 0..TRIES {
            let before = out.len();
            if let Some(text) = &mut self.text {
                text.expect_meta(meta, key, MISSING_OR_CHANGED);
                text.expect_cas();
            }
            let outcome = self.run_frame(&about(Opcode::GET, key), turn, out)?;
            let there = self.text.as_ref().and_then(|text| text.seen.take());
            let Some(there) = there.filter(|there| there.0 > named) else {
                // A refusal for another reason was answered.
                return Ok((out.len() > before).then_some(outcome));
            };
            if let Some(text) = &mut self.text {
                text.expect_meta(meta, key, MISSING_OR_CHANGED);
            }
            let parts = RawParts {
                extras: &extras,
                key,
                value: &value,
            };
            let mut frame = Frame::request(Opcode::SUBDOC_MULTI_MUTATION, there, parts);
            frame.frame_infos = PRESERVE_TTL;
            let outcome = self.run_frame(&frame, turn, out)?;
            let refused = self.text.as_ref().and_then(|text| text.refused.get());
            let raced = matches!(refused, Some(Status::KEY_EEXISTS | Status::KEY_ENOENT));
            if !raced {
                return Ok(Some(outcome));
            }
        }
        Ok(None)
    }
}
