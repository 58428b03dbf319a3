//! The value of the frame at the front of the input, while it is received into the block of its document.

use engine::Codec as _;
use model::{Draft, Meta};
use value::Values;
use wire::{Decoded, Frame};

/// A value that is received into its document. The input has the frame without its value.
pub(crate) struct IncomingValue {
    /// The document, with its key.
    draft: Draft,
    /// Bytes of the value that were received.
    received: usize,
}

impl IncomingValue {
    /// Creates the value of a document, of which nothing was received.
    pub(crate) fn new(key: &[u8], value_bytes: usize) -> Self {
        let draft = Draft::with_space(key, value_bytes);
        Self { draft, received: 0 }
    }

    /// Creates the value of a document that was received completely.
    pub(crate) fn complete(draft: Draft) -> Self {
        let received = draft.document().value().len();
        Self { draft, received }
    }

    /// Returns the document, with `meta` and the value's datatype.
    pub(crate) fn into_draft(mut self, mut meta: Meta) -> Draft {
        meta.datatype = Values.classify(self.draft.document().value());
        self.draft.set_meta(&meta);
        self.draft
    }

    /// Returns the memory of the document.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.draft.document().memory_bytes()
    }

    /// Returns the number of bytes that were not received yet.
    pub(crate) fn bytes_missing(&self) -> usize {
        self.draft.document().value().len() - self.received
    }

    /// Lets `read` write missing bytes; it returns their number.
    pub(crate) fn read<T>(&mut self, read: impl FnOnce(&mut [u8]) -> (usize, T)) -> T {
        let received = self.received;
        let edit = |bytes: &mut [u8]| read(&mut bytes[received..]);
        let (count, result) = self.draft.edit_value(edit);
        self.received += count;
        result
    }

    /// Splits the frame without its value off `input`, once the value is complete.
    pub(crate) fn decode<'i>(&self, input: &'i [u8]) -> Decoded<'i> {
        let more = self.bytes_missing();
        match Frame::without_value(input) {
            Some((frame, consumed)) if more == 0 => Decoded::Frame { frame, consumed },
            _ => Decoded::Incomplete { more },
        }
    }
}
