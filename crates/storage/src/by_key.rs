//! Rows of one vBucket ordered by key, as many as fit: rows lie by seqno only, so each look walks
//! over all of them and keeps the lowest keys.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::{Bound, ControlFlow};

use model::{Document, Meta, Seqno};

use crate::StoreError;
use crate::port::Snapshot;

/// What a key takes beside its own bytes.
const ENTRY_BYTES: usize = 64;
/// Documents leave a look before keys do, until they are no more than this part of it.
const DOCUMENTS_PART: usize = 4;

/// Which rows are looked for.
#[derive(Clone, Debug)]
pub struct KeyRange {
    /// Where it begins; keys with their collection's prefix.
    pub from: Bound<Box<[u8]>>,
    /// Where it ends.
    pub to: Bound<Box<[u8]>>,
}

impl KeyRange {
    /// Whether a key lies in it.
    pub fn contains(&self, key: &[u8]) -> bool {
        let above = match &self.from {
            Bound::Included(from) => key >= &**from,
            Bound::Excluded(from) => key > &**from,
            Bound::Unbounded => true,
        };
        above && !self.is_below(key)
    }

    /// Where it begins.
    pub fn begin(&self) -> Bound<&[u8]> {
        self.from.as_ref().map(|key| &**key)
    }

    /// Whether it ends before a key.
    pub fn is_below(&self, key: &[u8]) -> bool {
        match &self.to {
            Bound::Included(to) => key > &**to,
            Bound::Excluded(to) => key >= &**to,
            Bound::Unbounded => false,
        }
    }
}

/// What is kept of a row that was found.
#[derive(Clone, Debug)]
pub enum KeyRow {
    /// Its key; nothing else was wanted.
    Key(Box<[u8]>),
    /// All of it.
    Whole(Document),
    /// All of it is wanted but did not fit: it lies at this seqno of the same snapshot.
    At(Seqno),
}

impl KeyRow {
    /// About the bytes of memory that it takes.
    pub fn memory_bytes(&self) -> usize {
        match self {
            Self::Key(key) => key.len().saturating_add(ENTRY_BYTES),
            Self::Whole(document) => document.memory_bytes().saturating_add(ENTRY_BYTES),
            Self::At(_) => ENTRY_BYTES,
        }
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
    /// As [`Snapshot::by_seqno`].
    ///
    /// Cost: one walk over the rows of the range, or over all of the vBucket in a store that has no order by key; values of
    /// other rows are not copied.
    pub fn look(&self, snapshot: &dyn Snapshot) -> Result<KeyRows, StoreError> {
        let mut found = LowestKeys::default();
        let by_key = snapshot.looks_by_key();
        snapshot.look(self.range.begin(), &mut |row| {
            let (meta, key) = (row.meta, row.key);
            if by_key && (!found.has_room_for(key) || self.range.is_below(key)) {
                return Ok(ControlFlow::Break(()));
            }
            if meta.kind.is_prepared() || !found.has_room_for(key) || !self.range.contains(key) {
                return Ok(ControlFlow::Continue(()));
            }
            if meta.kind.is_tombstone() || !(self.wants)(meta, key) {
                // An older version may have been found before.
                found.remove(key);
                return Ok(ControlFlow::Continue(()));
            }
            let row = if self.keys_only {
                None
            } else if found.whole_until.as_deref().is_none_or(|end| key < end) {
                Some(KeyRow::Whole((row.document)()?))
            } else {
                Some(KeyRow::At(meta.seqno))
            };
            found.insert(key, row);
            found.shrink_to(self.bytes_max);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found.into_rows())
    }
}

fn document_bytes(row: Option<&KeyRow>) -> usize {
    match row {
        Some(KeyRow::Whole(document)) => document.memory_bytes(),
        _ => 0,
    }
}

#[derive(Default)]
struct LowestKeys {
    /// `None` for a row of which only the key is wanted.
    rows: BTreeMap<Box<[u8]>, Option<KeyRow>>,
    key_bytes: usize,
    document_bytes: usize,
    /// Documents from this key on did not fit, or keys.
    whole_until: Option<Box<[u8]>>,
    end: Option<Box<[u8]>>,
}

impl LowestKeys {
    fn has_room_for(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| key < end)
    }

    fn insert(&mut self, key: &[u8], row: Option<KeyRow>) {
        self.document_bytes += document_bytes(row.as_ref());
        match self.rows.entry(key.into()) {
            Entry::Vacant(place) => {
                self.key_bytes += key.len() + ENTRY_BYTES;
                place.insert(row);
            }
            Entry::Occupied(mut place) => {
                let before = place.insert(row);
                self.document_bytes -= document_bytes(before.as_ref());
            }
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(row) = self.rows.remove(key) {
            self.key_bytes -= key.len() + ENTRY_BYTES;
            self.document_bytes -= document_bytes(row.as_ref());
        }
    }

    fn shrink_to(&mut self, bytes_max: usize) {
        while self.key_bytes + self.document_bytes > bytes_max && self.rows.len() > 1 {
            if self.document_bytes > bytes_max / DOCUMENTS_PART {
                self.let_go_of_a_document();
            } else if let Some((key, row)) = self.rows.pop_last() {
                self.key_bytes -= key.len() + ENTRY_BYTES;
                self.document_bytes -= document_bytes(row.as_ref());
                self.end = Some(key);
            }
        }
    }

    /// Of the document with the greatest key only the place is kept.
    fn let_go_of_a_document(&mut self) {
        let end = match &self.whole_until {
            Some(end) => Bound::Excluded(end.clone()),
            None => Bound::Unbounded,
        };
        let last = self.rows.range_mut((Bound::Unbounded, end)).next_back();
        let Some((key, row)) = last else { return };
        if let Some(KeyRow::Whole(document)) = row {
            self.document_bytes -= document.memory_bytes();
            *row = Some(KeyRow::At(document.seqno()));
        }
        self.whole_until = Some(key.clone());
    }

    fn into_rows(self) -> KeyRows {
        let rows = self.rows.into_iter();
        let rows = rows.map(|(key, row)| row.unwrap_or(KeyRow::Key(key)));
        KeyRows {
            rows: rows.collect(),
            rest: self.end,
        }
    }
}
