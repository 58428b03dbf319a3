//! The hash table: the newest revision of every key, tombstones included.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

use away::Away;
pub(crate) use away::AwayState;
use foldhash::fast::FixedState;
use model::{Document, Seqno};
use part::Rehash;
use parts::Parts;
pub(crate) use parts::SlotIndex;

mod away;
mod part;
mod parts;
#[cfg(test)]
mod tests;

/// Place of a key in the table, or its absence: the result of one look-up, valid until the table
/// changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TablePlace {
    /// Hash of the key.
    pub(crate) hash: u64,
    slot: SlotIndex,
}

/// Documents by key, 8 bytes an entry; the keys are only in the documents.
///
/// Field order: fields written by every change are together, apart from fields read by every
/// look-up. So the latter stay in the caches of all processors.
#[repr(C)]
pub(crate) struct Table {
    counts: TableCounts,
    documents: Parts<Document>,
    hasher: FixedState,
    /// `None` while no document is only in the store.
    away: Option<Box<Away>>,
}

/// Hashes documents when they move.
struct ByKey<'a>(&'a FixedState);

impl Rehash<Document> for ByKey<'_> {
    #[inline]
    fn hash(&self, document: &Document) -> u64 {
        hash_of(self.0, document.key())
    }

    #[inline]
    fn touch(&self, document: &Document) -> u8 {
        let key = document.key();
        key.len() as u8 ^ key.first().copied().unwrap_or(0)
    }
}

/// Counters of the table, updated with every change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableCounts {
    /// Live documents, including those that left the table.
    pub(crate) items: u64,
    /// Tombstones, including those that left the table.
    pub(crate) tombstones: u64,
    /// Live documents whose value is not in memory.
    pub(crate) non_resident: u64,
    /// Bytes of the documents' allocations.
    pub(crate) document_bytes: usize,
}

impl TableCounts {
    pub(crate) fn add(&mut self, document: &Document) {
        self.document_bytes += document.memory_bytes();
        self.add_entry(document.kind().is_tombstone(), document.is_resident());
    }

    pub(crate) fn subtract(&mut self, document: &Document) {
        self.document_bytes -= document.memory_bytes();
        self.subtract_entry(document.kind().is_tombstone(), document.is_resident());
    }

    #[inline]
    fn add_entry(&mut self, tombstone: bool, resident: bool) {
        self.tombstones += u64::from(tombstone);
        self.items += u64::from(!tombstone);
        self.non_resident += u64::from(!tombstone && !resident);
    }

    #[inline]
    fn subtract_entry(&mut self, tombstone: bool, resident: bool) {
        self.tombstones -= u64::from(tombstone);
        self.items -= u64::from(!tombstone);
        self.non_resident -= u64::from(!tombstone && !resident);
    }
}

#[inline]
fn hash_of(hasher: &FixedState, key: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(key);
    hasher.finish()
}

impl Table {
    pub(crate) fn new(hash_seed: u64) -> Self {
        Self {
            documents: Parts::default(),
            away: None,
            hasher: FixedState::with_seed(hash_seed),
            counts: TableCounts::default(),
        }
    }

    /// Creates an empty table with room for `entries` documents; it rarely grows before that.
    pub(crate) fn with_room(hash_seed: u64, entries: usize) -> Self {
        let documents = Parts::with_room(entries);
        Self {
            documents,
            ..Self::new(hash_seed)
        }
    }

    /// Looks up `key`.
    #[inline]
    pub(crate) fn place(&self, key: &[u8]) -> TablePlace {
        let hash = hash_of(&self.hasher, key);
        let slot = self.documents.find(hash, |document| document.has_key(key));
        TablePlace { hash, slot }
    }

    /// Prefetches the memory that a look-up of `key` reads first.
    #[inline]
    pub(crate) fn prefetch(&self, key: &[u8]) {
        let hash = hash_of(&self.hasher, key);
        self.documents.prefetch(hash);
    }

    /// Prefetches the document of `key`. Call once the first prefetch has completed.
    #[inline]
    pub(crate) fn prefetch_document(&self, key: &[u8]) {
        let hash = hash_of(&self.hasher, key);
        for document in self.documents.candidates(hash) {
            document.prefetch();
        }
    }

    /// Place of the document in a slot.
    pub(crate) fn place_of_slot(&self, slot: SlotIndex) -> Option<TablePlace> {
        let document = self.documents.get(slot)?;
        Some(TablePlace {
            hash: hash_of(&self.hasher, document.key()),
            slot,
        })
    }

    /// Document at a place.
    #[inline]
    pub(crate) fn at(&self, place: TablePlace) -> Option<&Document> {
        self.documents.get(place.slot)
    }

    /// Document in a slot, for passes over the table.
    pub(crate) fn in_slot(&self, slot: SlotIndex) -> Option<&Document> {
        self.documents.get(slot)
    }

    /// Runs one step of a pass over the slots; see [`Parts::step`].
    pub(crate) fn step(&self, next: &mut SlotIndex) -> Option<SlotIndex> {
        self.documents.step(next)
    }

    /// Whether documents may be only in the store.
    pub(crate) fn has_away(&self) -> bool {
        self.away.is_some()
    }

    /// Returns a slot chosen by `seed`.
    pub(crate) fn some_slot(&self, seed: u64) -> SlotIndex {
        self.documents.some_slot(seed)
    }

    /// Puts the document at the place of its key; returns the previous one.
    ///
    /// Cost: bounded; a full table grows by a small part.
    pub(crate) fn put(&mut self, place: TablePlace, document: Document) -> Option<Document> {
        self.counts.add(&document);
        if let Some(there) = self.documents.get_mut(place.slot) {
            let old = std::mem::replace(there, document);
            self.counts.subtract(&old);
            return Some(old);
        }
        if let Some(away) = &mut self.away {
            away.forget(place.hash, document.key());
        }
        let rehash = ByKey(&self.hasher);
        self.documents.insert(place.hash, document, &rehash);
        None
    }

    /// Removes the document of `key`, and returns it.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Document> {
        let hasher = &self.hasher;
        let is_it = |document: &Document| document.has_key(key);
        let hash = hash_of(hasher, key);
        let old = self.documents.remove(hash, is_it, &ByKey(hasher))?;
        if let Some(away) = &mut self.away {
            away.note_left(old.seqno());
        }
        self.counts.subtract(&old);
        Some(old)
    }

    /// Number of buckets by their number of documents. Cost: reads every bucket.
    pub(crate) fn bucket_fill(&self) -> [u64; 8] {
        self.documents.bucket_fill()
    }

    /// Number of slots, empty ones included.
    pub(crate) fn slots(&self) -> usize {
        self.documents.slots()
    }

    /// Removes the document of `place`, and counts it as being only in the store. `high_seqno` is the vBucket's.
    pub(crate) fn evict(&mut self, place: TablePlace, high_seqno: Seqno) -> Option<Document> {
        let document = self.at(place)?.clone();
        let is_it = |other: &Document| other.same_as(&document);
        let rehash = ByKey(&self.hasher);
        self.documents.remove(place.hash, is_it, &rehash)?;
        let tombstone = document.kind().is_tombstone();
        let (gone, live) = (u64::from(tombstone), u64::from(!tombstone));
        let away = self.away.get_or_insert_with(|| {
            let mut away = Box::<Away>::default();
            // Documents that left earlier were not recorded; none is newer.
            away.note_left(high_seqno);
            away
        });
        away.leave(live, gone);
        away.note_left(document.seqno());
        self.counts.subtract(&document);
        self.counts.add_entry(tombstone, false);
        Some(document)
    }

    /// Counts documents that are only in the store.
    pub(crate) fn leave_in_store(&mut self, items: u64, tombstones: u64) {
        self.away.get_or_insert_default().leave(items, tombstones);
        self.counts.items += items;
        self.counts.non_resident += items;
        self.counts.tombstones += tombstones;
    }

    /// Whether the table is complete for this key: its document is in memory, or no document is
    /// only in the store.
    #[inline]
    pub(crate) fn is_known(&self, place: TablePlace) -> bool {
        place.slot != SlotIndex::NONE || self.away.is_none()
    }

    /// Whether a key without a document in memory may be only in the store, unchanged since the
    /// high seqno was `as_of`.
    pub(crate) fn is_away_since(&self, as_of: Seqno) -> bool {
        let away = self.away.as_ref();
        away.is_some_and(|away| away.left() <= as_of)
    }

    /// Puts back a live document that was only in the store.
    pub(crate) fn bring_back(&mut self, place: TablePlace, document: Document) {
        self.count_back(false, 1);
        self.put(place, document);
    }

    /// State of a key that is not in memory.
    pub(crate) fn asked(&self, place: TablePlace, key: &[u8]) -> AwayState {
        let away = self.away.as_ref();
        away.map_or(AwayState::Absent, |away| away.asked(place.hash, key))
    }

    /// Records a request to the store for a key that is not in memory; the answer must show
    /// `ticket`.
    pub(crate) fn ask(&mut self, place: TablePlace, key: &[u8], ticket: u64) {
        if let Some(away) = &mut self.away {
            away.ask(place.hash, key, Some(ticket));
        }
    }

    /// Applies the store's answer to the request with `ticket`: the newest row of the key. Returns
    /// `false` and does nothing if no request with this ticket is outstanding.
    pub(crate) fn answer(
        &mut self,
        place: TablePlace,
        key: &[u8],
        ticket: u64,
        row: Option<Document>,
    ) -> bool {
        let Some(away) = &mut self.away else {
            return false;
        };
        if away.asked(place.hash, key) != AwayState::Waits(ticket) {
            return false;
        }
        let Some(row) = row else {
            away.ask(place.hash, key, None);
            return true;
        };
        self.count_back(row.kind().is_tombstone(), 1);
        self.put(place, row);
        true
    }

    /// Removes the request for a key.
    pub(crate) fn forget_asked(&mut self, place: TablePlace, key: &[u8]) {
        if let Some(away) = &mut self.away {
            away.forget(place.hash, key);
        }
    }

    /// Subtracts `many` from the documents that are only in the store.
    pub(crate) fn count_back(&mut self, tombstone: bool, many: u64) {
        let many = self
            .away
            .as_mut()
            .map_or(0, |away| away.come_back(tombstone, many));
        if tombstone {
            self.counts.tombstones -= many;
        } else {
            self.counts.items -= many;
            self.counts.non_resident -= many;
        }
    }

    /// Limits the counted tombstones of the store to `stored`.
    pub(crate) fn bound_tombstones(&mut self, stored: u64) {
        let away = self.away.as_ref().map_or(0, |away| away.tombstones());
        self.count_back(true, away.saturating_sub(stored));
    }

    /// Number of documents and tombstones in the table.
    pub(crate) fn len(&self) -> usize {
        self.documents.len()
    }

    pub(crate) fn counts(&self) -> &TableCounts {
        &self.counts
    }

    /// Number of times that the table grew.
    pub(crate) fn resizes(&self) -> u64 {
        self.documents.resizes()
    }

    /// Bytes of the slot arrays.
    pub(crate) fn array_bytes(&self) -> usize {
        self.documents.bytes() + self.away.as_ref().map_or(0, |away| away.bytes())
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
