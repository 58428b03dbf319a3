//! Large values that a reader in the process takes as they lie, instead of among the bytes.

use std::borrow::Cow;
use std::ops::Range;

use model::{Datatype, Document};

/// Values from so many bytes on are given apart.
pub(super) const LARGE_BYTES: usize = 64 << 10;

/// The value of a change: a part of its document, or what came of inflating that.
#[derive(Debug)]
pub struct LargeValue {
    bytes: Bytes,
    /// Whether it is JSON.
    pub datatype: Datatype,
}

#[derive(Debug)]
enum Bytes {
    Shared(Document, Range<usize>),
    Own(Vec<u8>),
}

impl LargeValue {
    /// `value` is the end of the document's, or its own.
    pub(super) fn of(document: &Document, value: Cow<'_, [u8]>, datatype: Datatype) -> Self {
        let bytes = match value {
            Cow::Borrowed(end) => {
                let length = document.value().len();
                Bytes::Shared(document.clone(), length - end.len()..length)
            }
            Cow::Owned(own) => Bytes::Own(own),
        };
        Self { bytes, datatype }
    }

    /// The value.
    pub fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Shared(document, part) => &document.value()[part.clone()],
            Bytes::Own(own) => own,
        }
    }

    /// Bytes that are kept in memory for it.
    pub fn memory_bytes(&self) -> usize {
        match &self.bytes {
            Bytes::Shared(document, _) => document.memory_bytes(),
            Bytes::Own(own) => own.capacity(),
        }
    }
}

/// Where a turn leaves the large value with which it ends.
#[derive(Debug, Default)]
pub(super) struct Slot(Option<LargeValue>);

impl Slot {
    pub(super) fn is_taken(&self) -> bool {
        self.0.is_some()
    }

    pub(super) fn put(&mut self, value: LargeValue) {
        debug_assert!(self.0.is_none(), "a turn ends with the first one");
        self.0 = Some(value);
    }

    pub(super) fn take(&mut self) -> Option<LargeValue> {
        self.0.take()
    }
}
