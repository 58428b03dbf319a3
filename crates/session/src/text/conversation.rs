//! What is remembered of a conversation in text.

use std::cell::Cell;

use model::Cas;
use wire::Status;
use wire::text::{MetaVerb, TextPlace};

/// How the request at hand is answered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    /// Not at all.
    #[default]
    Silent,
    /// A document among those of a retrieval.
    Value { with_cas: bool },
    /// A storage command; whether it names a CAS.
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

/// How a meta command is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the protocol"
)]
pub(super) struct MetaForm {
    pub(super) verb: MetaVerb,
    /// The usual answer is not sent.
    pub(super) quiet: bool,
    /// The value is sent.
    pub(super) value: bool,
    /// Whether it names a CAS.
    pub(super) with_cas: bool,
    /// Bytes of the value that it brings.
    pub(super) brings: usize,
    /// A document that is not there, or there already, is not answered: another command follows.
    pub(super) holds_miss: bool,
    /// Seconds that a document has left below which one client is to make it anew.
    pub(super) recache: Option<u32>,
    /// When the stub expires, Unix seconds, that is made for a document that is not there.
    pub(super) stub: Option<u32>,
    /// Nothing is answered but what went wrong; the CAS of the document is kept.
    pub(super) asks_cas: bool,
}

/// What a request to count says beyond what a frame can.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counting {
    /// The revision that the counter must have.
    pub(crate) cas: Cas,
    /// Its expiry, as a frame has it; `None` to keep it.
    pub(crate) expiry: Option<u32>,
}

/// A conversation in text. Its answers are in the order of its requests, so there is one form at a time.
#[derive(Debug, Default)]
pub(crate) struct TextConversation {
    pub(super) place: TextPlace,
    /// Bytes that are not looked at: the value of a refused request.
    pub(super) skip: usize,
    pub(super) form: Form,
    /// Whether nothing is answered.
    pub(super) noreply: bool,
    /// The key as it came, where the answer may repeat it.
    pub(super) key: Vec<u8>,
    /// What that stands for, if it is another one.
    pub(super) decoded_key: Vec<u8>,
    /// What the request at hand says of counting.
    pub(crate) counting: Counting,
    /// The flags of a meta command as they came.
    pub(super) flags: Vec<u8>,
    /// Why the last command did not do what it was asked for.
    pub(super) refused: Cell<Option<Status>>,
    /// The CAS that was asked for.
    pub(super) seen: Cell<Option<Cas>>,
}

impl TextConversation {
    /// Where in a conversation its next request begins.
    pub(crate) fn place(&self) -> TextPlace {
        self.place
    }

    /// Whether the next bytes are no request.
    pub(crate) fn skips(&self) -> bool {
        self.skip > 0
    }

    /// Takes how the next request is answered.
    pub(super) fn expect(&mut self, form: Form, noreply: bool) {
        self.form = form;
        self.counting = Counting::default();
        self.noreply = noreply;
    }

    /// Takes that the meta command only wants to know the CAS of the document.
    pub(super) fn expect_cas(&mut self) {
        if let Form::Meta(form) = &mut self.form {
            form.asks_cas = true;
        }
        self.seen.set(None);
    }

    /// Takes that the next answer of the meta command is that to the stub that is made, with its expiry.
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

    /// The key of the document.
    pub(super) fn document_key(&self) -> &[u8] {
        if self.decoded_key.is_empty() {
            &self.key
        } else {
            &self.decoded_key
        }
    }

    /// Whether the last command found nothing to do it with.
    pub(super) fn missed(&self) -> bool {
        matches!(
            self.refused.get(),
            Some(Status::NOT_STORED | Status::KEY_ENOENT)
        )
    }
}
