//! State of a conversation in text.

use std::cell::Cell;

use model::Cas;
use wire::Status;
use wire::text::{MetaVerb, TextPlace};

/// Form of the answer to the current request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// No answer.
    #[default]
    Silent,
    /// A document of a retrieval command.
    Value { with_cas: bool },
    /// A storage command, with or without a CAS.
    Store { with_cas: bool },
    /// A login in the form of a storage command.
    Login,
    /// `delete`.
    Delete,
    /// `touch`.
    Touch,
    /// `flush_all`.
    Flush,
    /// `incr`, `decr`.
    Count,
    /// `stats`.
    Stats,
    /// `version`.
    Version,
    /// `mn`.
    MetaNoop,
    /// The other meta commands.
    Meta(MetaForm),
}

/// Refusals of a document that is missing.
pub(super) const MISSING: &[Status] = &[Status::NOT_STORED, Status::KEY_ENOENT];
/// Refusals of a document that is missing, or was changed or created by another client.
pub(super) const MISSING_OR_CHANGED: &[Status] = &[Status::KEY_ENOENT, Status::KEY_EEXISTS];

/// Form of the answer to a meta command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the protocol"
)]
pub(super) struct MetaForm {
    pub(super) verb: MetaVerb,
    /// Whether the usual answer is left out.
    pub(super) quiet: bool,
    /// Whether the value is sent.
    pub(super) value: bool,
    /// Whether the command has a CAS.
    pub(super) with_cas: bool,
    /// Bytes of the value in the request.
    pub(super) brings: usize,
    /// Refusals that stay without an answer: another command follows.
    pub(super) holds: &'static [Status],
    /// Remaining seconds of a document below which one client must recompute it.
    pub(super) recache: Option<u32>,
    /// Expiry, in Unix seconds, of the stub that is created for a missing document.
    pub(super) stub: Option<u32>,
    /// Whether only failures are answered, and the document's CAS is kept for the next command.
    pub(super) asks_cas: bool,
}

/// Parts of a counter request that a frame cannot carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counting {
    /// CAS that the counter must have.
    pub(crate) cas: Cas,
    /// Expiry in the form of a frame; `None` to keep the counter's.
    pub(crate) expiry: Option<u32>,
}

/// A conversation in text. Its answers are in the order of its requests, so there is one form at a time.
#[derive(Debug, Default)]
pub(crate) struct TextConversation {
    pub(super) place: TextPlace,
    /// Bytes of input to skip: the value of a refused request.
    pub(super) skip: usize,
    pub(super) form: Form,
    /// Whether nothing is answered.
    pub(super) noreply: bool,
    /// Key as it was sent, for answers that repeat it.
    pub(super) key: Vec<u8>,
    /// Decoded key, if it differs from the sent one.
    pub(super) decoded_key: Vec<u8>,
    /// Counter options of the current request.
    pub(crate) counting: Counting,
    /// Flags of a meta command as they were sent.
    pub(super) flags: Vec<u8>,
    /// Status of the last command, if it was refused.
    pub(super) refused: Cell<Option<Status>>,
    /// CAS that the last command read.
    pub(super) seen: Cell<Option<Cas>>,
}

impl TextConversation {
    /// Returns the place at which the next request begins.
    pub(crate) fn place(&self) -> TextPlace {
        self.place
    }

    /// Whether the next bytes are to be skipped.
    pub(crate) fn skips(&self) -> bool {
        self.skip > 0
    }

    /// Sets the form of the next answer.
    pub(super) fn expect(&mut self, form: Form, noreply: bool) {
        self.form = form;
        self.counting = Counting::default();
        self.noreply = noreply;
    }

    /// Sets that the meta command only reads the document's CAS.
    pub(super) fn expect_cas(&mut self) {
        if let Form::Meta(form) = &mut self.form {
            form.asks_cas = true;
        }
        self.seen.set(None);
    }

    /// Sets that the next answer of the meta command is that to the creation of a stub, with its expiry.
    pub(super) fn makes_stub(&mut self, expiry: u32) {
        if let Form::Meta(form) = &mut self.form {
            form.stub = Some(expiry);
        }
        self.refused.set(None);
    }

    /// Keeps the key for the answer.
    pub(super) fn keep_key(&mut self, key: &[u8]) {
        self.key.clear();
        self.key.extend_from_slice(key);
        self.decoded_key.clear();
    }

    /// Returns the key of the document.
    pub(super) fn document_key(&self) -> &[u8] {
        if self.decoded_key.is_empty() {
            &self.key
        } else {
            &self.decoded_key
        }
    }

    /// Whether a key of the current retrieval was refused. The line of the refusal ends the whole answer.
    pub(super) fn broke_off(&self) -> bool {
        let refused = self.refused.get();
        let is_retrieval = matches!(self.form, Form::Value { .. });
        is_retrieval && refused.is_some_and(|status| status != Status::KEY_ENOENT)
    }

    /// Whether the last command failed because the document is missing.
    pub(super) fn missed(&self) -> bool {
        let refused = self.refused.get();
        refused.is_some_and(|status| MISSING.contains(&status))
    }
}
