//! A large value of a change. It stays in its document until its reader has taken all of it.

use std::borrow::Cow;
use std::ops::Range;

use model::Document;

/// Size from which values are lent to their reader, bytes.
pub(super) const LARGE_BYTES: usize = 64 << 10;

/// The value of a change: a part of its document, or an inflated copy.
#[derive(Debug)]
pub(crate) enum LargeValue {
    Shared(Document, Range<usize>),
    Own(Vec<u8>),
}

impl LargeValue {
    /// Creates the value. A borrowed `value` is the end of the document's value.
    pub(super) fn of(document: &Document, value: Cow<'_, [u8]>) -> Self {
        match value {
            Cow::Borrowed(end) => {
                let length = document.value().len();
                Self::Shared(document.clone(), length - end.len()..length)
            }
            Cow::Owned(own) => Self::Own(own),
        }
    }

    /// Returns the bytes of the value.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Shared(document, part) => &document.value()[part.clone()],
            Self::Own(own) => own,
        }
    }

    /// Returns the memory that the value occupies, bytes.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Shared(document, _) => document.memory_bytes(),
            Self::Own(own) => own.capacity(),
        }
    }
}
