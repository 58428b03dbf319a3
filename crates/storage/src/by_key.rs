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
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        let above = match &self.from {
            Bound::Included(from) => key >= &**from,
            Bound::Excluded(from) => key > &**from,
            Bound::Unbounded => true,
        };
        above
            && match &self.to {
                Bound::Included(to) => key <= &**to,
                Bound::Excluded(to) => key < &**to,
                Bound::Unbounded => true,
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
    #[must_use]
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
    /// Cost: one walk over all rows of the vBucket; values of other rows are not copied.
    pub fn look(&self, snapshot: &dyn Snapshot) -> Result<KeyRows, StoreError> {
        let mut found = Found::default();
        snapshot.look(&mut |row| {
            let (meta, key) = (row.meta, row.key);
            if meta.kind.is_prepared() || !found.has_room_for(key) || !self.range.contains(key) {
                return Ok(ControlFlow::Continue(()));
            }
            if meta.kind.is_tombstone() || !(self.wants)(meta, key) {
                // An older version may have been found before.
                found.remove(key);
                return Ok(ControlFlow::Continue(()));
            }
            let kept = if self.keys_only {
                Kept::Key
            } else if found.whole_until.as_deref().is_none_or(|end| key < end) {
                Kept::Whole((row.document)()?)
            } else {
                Kept::At(meta.seqno)
            };
            found.insert(key, kept);
            found.shrink_to(self.bytes_max);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(found.into_rows())
    }
}

enum Kept {
    Key,
    Whole(Document),
    At(Seqno),
}

impl Kept {
    fn document_bytes(&self) -> usize {
        match self {
            Self::Whole(document) => document.memory_bytes(),
            Self::Key | Self::At(_) => 0,
        }
    }
}

#[derive(Default)]
struct Found {
    rows: BTreeMap<Box<[u8]>, Kept>,
    key_bytes: usize,
    document_bytes: usize,
    /// Documents from this key on did not fit, or keys.
    whole_until: Option<Box<[u8]>>,
    end: Option<Box<[u8]>>,
}

impl Found {
    fn has_room_for(&self, key: &[u8]) -> bool {
        self.end.as_deref().is_none_or(|end| key < end)
    }

    fn insert(&mut self, key: &[u8], kept: Kept) {
        self.document_bytes += kept.document_bytes();
        match self.rows.entry(key.into()) {
            Entry::Vacant(place) => {
                self.key_bytes += key.len() + ENTRY_BYTES;
                place.insert(kept);
            }
            Entry::Occupied(mut place) => {
                let before = place.insert(kept);
                self.document_bytes -= before.document_bytes();
            }
        }
    }

    fn remove(&mut self, key: &[u8]) {
        if let Some(kept) = self.rows.remove(key) {
            self.key_bytes -= key.len() + ENTRY_BYTES;
            self.document_bytes -= kept.document_bytes();
        }
    }

    fn shrink_to(&mut self, bytes_max: usize) {
        while self.key_bytes + self.document_bytes > bytes_max && self.rows.len() > 1 {
            if self.document_bytes > bytes_max / DOCUMENTS_PART {
                self.let_go_of_a_document();
            } else if let Some((key, kept)) = self.rows.pop_last() {
                self.key_bytes -= key.len() + ENTRY_BYTES;
                self.document_bytes -= kept.document_bytes();
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
        let Some((key, kept)) = last else { return };
        if let Kept::Whole(document) = kept {
            self.document_bytes -= document.memory_bytes();
            *kept = Kept::At(document.seqno());
        }
        self.whole_until = Some(key.clone());
    }

    fn into_rows(self) -> KeyRows {
        let rows = self.rows.into_iter().map(|(key, kept)| match kept {
            Kept::Key => KeyRow::Key(key),
            Kept::Whole(document) => KeyRow::Whole(document),
            Kept::At(seqno) => KeyRow::At(seqno),
        });
        KeyRows {
            rows: rows.collect(),
            rest: self.end,
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use model::{Kind, VbId};

    use super::*;
    use crate::suite::{document, put, tombstone};
    use crate::{KvStore, MemStore};

    fn all() -> KeyRange {
        KeyRange {
            from: Bound::Unbounded,
            to: Bound::Unbounded,
        }
    }

    fn named(range: &KeyRange, keys_only: bool, bytes_max: usize) -> KeyLook<'_> {
        KeyLook {
            range,
            keys_only,
            bytes_max,
            wants: &|_, _| true,
        }
    }

    fn key_of(row: &KeyRow, snapshot: &dyn Snapshot) -> String {
        let key = match row {
            KeyRow::Key(key) => key.to_vec(),
            KeyRow::Whole(document) => document.key().to_vec(),
            KeyRow::At(seqno) => {
                let document = snapshot.by_seqno(*seqno).next().unwrap().unwrap();
                assert_eq!(document.seqno(), *seqno);
                document.key().to_vec()
            }
        };
        String::from_utf8(key[1..].to_vec()).unwrap()
    }

    /// All keys, look by look.
    fn in_looks(snapshot: &dyn Snapshot, keys_only: bool, bytes_max: usize) -> (Vec<String>, u32) {
        let (mut range, mut keys, mut looks) = (all(), Vec::new(), 0);
        loop {
            let found = named(&range, keys_only, bytes_max).look(snapshot).unwrap();
            keys.extend(found.rows.iter().map(|row| key_of(row, snapshot)));
            looks += 1;
            match found.rest {
                Some(rest) => range.from = Bound::Included(rest),
                None => return (keys, looks),
            }
        }
    }

    /// What every store must do: part of its suite.
    pub(crate) fn rows_are_found_by_key(store: &dyn KvStore) {
        let vb = VbId(3);
        let mut rows = Vec::new();
        for seqno in 1..=300_u64 {
            let key = format!("{:03}", seqno * 7 % 300);
            let row = if seqno % 10 == 0 {
                tombstone(seqno, &key)
            } else {
                document(seqno, &key, &"v".repeat(seqno as usize))
            };
            rows.push((row, Seqno::ZERO));
        }
        put(store, vb, &rows);
        let snapshot = store.snapshot(vb).unwrap();
        let mut expected: Vec<String> = rows
            .iter()
            .filter(|(row, _)| row.kind() == Kind::Mutation)
            .map(|(row, _)| String::from_utf8(row.key()[1..].to_vec()).unwrap())
            .collect();
        expected.sort();
        // Later changes are not seen.
        put(store, vb, &[(tombstone(301, "007"), Seqno(1))]);
        for keys_only in [true, false] {
            assert_eq!(
                in_looks(&*snapshot, keys_only, 1 << 20),
                (expected.clone(), 1)
            );
            let (keys, looks) = in_looks(&*snapshot, keys_only, 4_000);
            assert_eq!(keys, expected);
            assert!((5..60).contains(&looks), "{looks}");
            assert_eq!(in_looks(&*snapshot, keys_only, 0).0, expected, "one by one");
        }
        let range = KeyRange {
            from: Bound::Excluded(b"\x00100".as_slice().into()),
            to: Bound::Included(b"\x00200".as_slice().into()),
        };
        let found = named(&range, false, 1 << 20).look(&*snapshot).unwrap();
        let inside = |key: &&String| key.as_str() > "100" && key.as_str() <= "200";
        let expected: Vec<String> = expected.iter().filter(inside).cloned().collect();
        let keys: Vec<String> = found
            .rows
            .iter()
            .map(|row| key_of(row, &*snapshot))
            .collect();
        assert_eq!(keys, expected);
        let all_whole = |row: &KeyRow| matches!(row, KeyRow::Whole(_));
        assert!(found.rows.iter().all(all_whole) && found.rest.is_none());
    }

    #[test]
    fn documents_leave_before_keys() {
        let store = MemStore::new();
        let rows: Vec<_> = (1..=50)
            .map(|seqno| {
                (
                    document(seqno, &format!("{seqno:02}"), &"v".repeat(1_000)),
                    Seqno::ZERO,
                )
            })
            .collect();
        put(&store, VbId(0), &rows);
        let snapshot = store.snapshot(VbId(0)).unwrap();
        let range = all();
        let found = named(&range, false, 12_000).look(&*snapshot).unwrap();
        assert_eq!(found.rows.len(), 50);
        assert!(found.rest.is_none());
        let whole = found
            .rows
            .iter()
            .take_while(|row| matches!(row, KeyRow::Whole(_)));
        let whole = whole.count();
        assert!((2..=10).contains(&whole), "{whole}");
        let later = &found.rows[whole..];
        assert!(later.iter().all(|row| matches!(row, KeyRow::At(_))));
        let bytes: usize = found.rows.iter().map(KeyRow::memory_bytes).sum();
        assert!(bytes <= 16_000, "{bytes}");
    }

    /// Stores that keep old versions show them all; the newest one counts.
    #[test]
    fn the_newest_version_counts() {
        let store = MemStore::new();
        let rows = [
            (document(1, "a", "old"), Seqno::ZERO),
            (document(2, "b", "old"), Seqno::ZERO),
            (document(3, "c", "old"), Seqno::ZERO),
            (tombstone(4, "b"), Seqno::ZERO),
            (document(5, "a", "new"), Seqno::ZERO),
        ];
        put(&store, VbId(0), &rows);
        let snapshot = store.snapshot(VbId(0)).unwrap();
        for bytes_max in [0, 1 << 20] {
            assert_eq!(in_looks(&*snapshot, false, bytes_max).0, ["a", "c"]);
        }
        let range = all();
        let found = named(&range, false, 1 << 20).look(&*snapshot).unwrap();
        let KeyRow::Whole(first) = &found.rows[0] else {
            panic!("all fits");
        };
        assert_eq!(first.value(), b"new");
    }
}
