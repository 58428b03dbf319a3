//! A document under construction.

use std::convert::Infallible;

use super::header::{Header, LEVEL_SHIFT, Meta, trailer_bytes};
use super::shared::{Document, PUT_TOGETHER_IN_PLACE_MIN};
use crate::{Cas, Datatype, DurabilityLevel, Kind, Seqno};

/// A document that is not shared yet; `VBucket::commit` stamps and freezes it.
///
/// Allocates and copies key and value when it is created, before any lock is taken.
#[derive(Debug)]
pub struct Draft {
    document: Document,
}

impl Draft {
    /// Creates a draft from key and value in one slice, as in a frame.
    ///
    /// Shape: the first `key_len` (at most 251) bytes are the key with its collection prefix.
    pub fn from_joined(key_and_value: &[u8], key_len: usize, meta: &Meta) -> Self {
        Self {
            document: Document::from_joined(key_and_value, key_len, meta),
        }
    }

    /// Creates a draft from separate key and value.
    pub fn new(key: &[u8], value: &[u8], meta: &Meta) -> Self {
        Self {
            document: Document::from_parts(key, value, meta),
        }
    }

    /// Creates a draft of a value in several parts.
    pub fn of_parts(key: &[u8], value: &[&[u8]], meta: &Meta) -> Self {
        debug_assert_eq!(trailer_bytes(meta.kind), 0, "a draft decides no prepare");
        let parts: Vec<&[u8]> = std::iter::once(key).chain(value.iter().copied()).collect();
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        if bytes < PUT_TOGETHER_IN_PLACE_MIN {
            return Self::from_joined(&parts.concat(), key.len(), meta);
        }
        Self {
            document: Document::in_place(key.len(), meta, true, &parts),
        }
    }

    /// Creates a draft with space for a value of this size, which [`Draft::edit_value`] writes.
    pub fn with_space(key: &[u8], value_bytes: usize) -> Self {
        let filled = Document::read(key, value_bytes, &Meta::default(), |_| {
            Ok::<(), Infallible>(())
        });
        match filled {
            Ok(document) => Self { document },
        }
    }

    /// Read access to the document.
    pub fn document(&self) -> &Document {
        &self.document
    }

    fn edit(&mut self, change: impl FnOnce(&mut Header)) {
        self.document.block.with_arc_mut(|arc| {
            let block = triomphe::Arc::get_mut(arc).expect("a draft has a single owner");
            change(block.header_mut());
        });
    }

    /// Sets the datatype of the value.
    pub fn set_datatype(&mut self, datatype: Datatype) {
        self.edit(|header| header.datatype = datatype.0);
    }

    /// Sets the absolute expiry.
    pub fn set_expiry(&mut self, expiry: u32) {
        self.edit(|header| header.expiry = expiry);
    }

    /// Sets all metadata; those of a commit or an abort are not possible.
    pub fn set_meta(&mut self, meta: &Meta) {
        debug_assert_eq!(trailer_bytes(meta.kind), 0, "a draft decides no prepare");
        self.edit(|header| *header = Header::new(usize::from(header.key_len), meta, true));
    }

    /// Lets `change` edit the value in place; its length stays.
    pub fn edit_value<T>(&mut self, change: impl FnOnce(&mut [u8]) -> T) -> T {
        let at = usize::from(self.document.header().key_len);
        let end = self.document.key_and_value().len();
        self.document.block.with_arc_mut(|arc| {
            let block = triomphe::Arc::get_mut(arc).expect("a draft has a single owner");
            change(&mut block.slice_mut()[at..end])
        })
    }

    /// Makes it the prepare of a durable write; of a tombstone, of a durable deletion.
    pub fn prepare(&mut self, level: DurabilityLevel) {
        let kind = if self.document.kind().is_tombstone() {
            Kind::PrepareDeletion
        } else {
            Kind::Prepare
        };
        self.edit(|header| header.state = kind as u8 | (level as u8) << LEVEL_SHIFT);
    }

    /// Sets CAS, seqno and revision, and freezes the document.
    pub fn stamp(mut self, cas: Cas, seqno: Seqno, rev: u64) -> Document {
        self.edit(|header| header.set_position(cas, seqno, rev));
        self.document
    }
}
