//! Rows of one vBucket in the order of their keys, as many as fit.

use std::ops::ControlFlow;

use model::{Document, Meta};

use crate::StoreError;
use crate::key_range::KeyRange;
use crate::port::Snapshot;

/// What a key takes beside its own bytes.
const ENTRY_BYTES: usize = 64;

/// What is kept of a row that was found.
#[derive(Clone, Debug)]
pub enum KeyRow {
    /// Its key; nothing else was wanted.
    Key(Box<[u8]>),
    /// All of it.
    Whole(Document),
}

impl KeyRow {
    /// About the bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        let bytes = match self {
            Self::Key(key) => key.len(),
            Self::Whole(document) => document.memory_bytes(),
        };
        bytes.saturating_add(ENTRY_BYTES)
    }
}

/// Rows in the order of their keys.
#[derive(Debug, Default)]
pub struct KeyRows {
    /// Those that were kept: all there are up to `rest`.
    pub rows: Vec<KeyRow>,
    /// Where the next look must begin (included); `None` when this was all.
    pub rest: Option<Box<[u8]>>,
}

/// What may be kept, and of which rows.
pub struct KeyLook<'l> {
    /// Where to look.
    pub range: &'l KeyRange,
    /// Only keys are wanted.
    pub keys_only: bool,
    /// About the bytes of memory that the result may take; one row is kept however long it is.
    pub bytes_max: usize,
    /// Says of the newest version of a key, a live one, whether it is wanted.
    pub wants: &'l dyn Fn(&Meta, &[u8]) -> bool,
}

impl KeyLook<'_> {
    /// The rows of a snapshot with the lowest keys of the range. Tombstones and what is only
    /// prepared are left out.
    ///
    /// # Errors
    /// As [`Snapshot::look`].
    ///
    /// Cost: a walk over the rows of the range, until the result is full.
    pub fn look(&self, snapshot: &dyn Snapshot) -> Result<KeyRows, StoreError> {
        let (mut found, mut bytes) = (KeyRows::default(), 0);
        snapshot.look(self.range, &mut |row| {
            let (meta, key) = (row.meta, row.key);
            if meta.kind.is_tombstone() || !(self.wants)(meta, key) {
                return Ok(ControlFlow::Continue(()));
            }
            let kept = if self.keys_only {
                KeyRow::Key(key.into())
            } else {
                KeyRow::Whole((row.document)()?)
            };
            bytes += kept.memory_bytes();
            if bytes > self.bytes_max && !found.rows.is_empty() {
                found.rest = Some(key.into());
                return Ok(ControlFlow::Break(()));
            }
            found.rows.push(kept);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found)
    }
}
