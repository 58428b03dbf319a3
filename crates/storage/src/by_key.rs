//! Rows of one vBucket in the order of their keys, as many as fit.

use std::ops::ControlFlow;

use model::{Document, Meta, Seqno};

use crate::StoreError;
use crate::key_range::KeyRange;
use crate::port::Snapshot;

/// Memory of a key in addition to its bytes.
const ENTRY_BYTES: usize = 64;

/// A row of the result.
#[derive(Clone, Debug)]
pub enum KeyRow {
    /// Only the key, as requested.
    Key(Box<[u8]>),
    /// The whole document.
    Whole(Document),
}

impl KeyRow {
    /// Returns the approximate memory in bytes.
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
    /// The rows: all there are up to `rest`.
    pub rows: Vec<KeyRow>,
    /// First key of the next look (inclusive); `None` if this was all.
    pub rest: Option<Box<[u8]>>,
}

/// Request for rows by key.
pub struct KeyQuery<'l> {
    /// Range of keys.
    pub range: &'l KeyRange,
    /// Whether only keys are wanted.
    pub keys_only: bool,
    /// Approximate maximum memory of the result in bytes; one row is returned whatever its length.
    pub bytes_max: usize,
    /// Whether a row is wanted; called for the newest version of a live key.
    pub wants: &'l dyn Fn(&Meta, &[u8]) -> bool,
}

impl KeyQuery<'_> {
    /// Returns the rows of a snapshot with the lowest keys of the range, without tombstones and prepares.
    ///
    /// # Errors
    /// As [`Snapshot::look`].
    ///
    /// Cost: a walk over the rows of the range, until the result is full.
    pub fn look(&self, snapshot: &dyn Snapshot) -> Result<KeyRows, StoreError> {
        let (mut found, mut bytes) = (KeyRows::default(), 0);
        snapshot.look(Seqno::ZERO, self.range, &mut |row| {
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
