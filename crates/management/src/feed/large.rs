//! A large value of a change, kept as it lies until its reader has taken all of it.

use std::borrow::Cow;
use std::ops::Range;

use model::Document;

/// Values from so many bytes on are lent to their reader.
pub(super) const LARGE_BYTES: usize = 64 << 10;

/// The value of a change: a part of its document, or what came of inflating that.
#[derive(Debug)]
pub(crate) enum LargeValue {
    Shared(Document, Range<usize>),
    Own(Vec<u8>),
}

impl LargeValue {
    /// `value` is the end of the document's, or its own.
    pub(super) fn of(document: &Document, value: Cow<'_, [u8]>) -> Self {
        match value {
            Cow::Borrowed(end) => {
                let length = document.value().len();
                Self::Shared(document.clone(), length - end.len()..length)
            }
            Cow::Owned(own) => Self::Own(own),
        }
    }

    /// The value.
    pub(crate) fn bytes(&self) -> &[u8] {
        match self {
            Self::Shared(document, part) => &document.value()[part.clone()],
            Self::Own(own) => own,
        }
    }

    /// Bytes that are kept in memory for it.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Self::Shared(document, _) => document.memory_bytes(),
            Self::Own(own) => own.capacity(),
        }
    }
}
