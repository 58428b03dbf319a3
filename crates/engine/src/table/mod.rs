//! The hash table: the newest revision of every key, tombstones included.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

use evicted::Evicted;
pub(crate) use evicted::Remains;
use foldhash::fast::FixedState;
use model::{Document, Seqno};
use part::{CacheLine, Rehash};
use parts::Parts;
pub(crate) use parts::Spot;

mod evicted;
mod part;
mod parts;
#[cfg(test)]
mod tests;

/// Where a key is, or would be: the result of one look-up, good until the table changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Hash of the key.
    pub(crate) hash: u64,
    spot: Spot,
}

/// Documents by key, 8 bytes an entry; the keys lie in the documents only.
///
/// In this order: what every change writes lies together, apart from what every look-up reads, so
/// that the latter stays in the caches of all processors.
#[repr(C)]
pub(crate) struct Table {
    counts: TableCounts,
    documents: Parts<Document>,
    hasher: FixedState,
    /// `None` as long as nothing was evicted whole.
    evicted: Option<Box<Evicted>>,
}

/// How documents are found again when they move.
struct ByKey<'a>(&'a FixedState);

impl part::TableEntry for Document {
    type Line = CacheLine;
    /// Its key lies elsewhere.
    const HASHES_QUICKLY: bool = false;
}

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

/// Figures of the table, kept with every change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableCounts {
    /// Live documents, those that left the table included.
    pub(crate) items: u64,
    /// Tombstones, those that left included.
    pub(crate) tombstones: u64,
    /// Live documents whose value is not here.
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

/// What the keys of the prints of evicted keys are made of, with the seed.
const PRINT_KEYS: [&[u8]; 2] = [b"the first key of prints", b"the second key of prints"];

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
            evicted: None,
            hasher: FixedState::with_seed(hash_seed),
            counts: TableCounts::default(),
        }
    }

    /// An empty one that has room for `entries` documents: few of them make it grow.
    pub(crate) fn with_room(hash_seed: u64, entries: usize) -> Self {
        let documents = Parts::with_room(entries);
        Self {
            documents,
            ..Self::new(hash_seed)
        }
    }

    /// Looks `key` up.
    #[inline]
    pub(crate) fn place(&self, key: &[u8]) -> Place {
        let hash = hash_of(&self.hasher, key);
        let spot = self.documents.find(hash, |document| document.has_key(key));
        Place { hash, spot }
    }

    /// Asks for the memory that a look-up of `key` will look at first.
    #[inline]
    pub(crate) fn prefetch(&self, key: &[u8]) {
        let hash = hash_of(&self.hasher, key);
        self.documents.prefetch(hash);
        if let Some(evicted) = &self.evicted {
            evicted.prefetch(hash);
        }
    }

    /// Asks for the document of `key`, once the memory before it has come.
    #[inline]
    pub(crate) fn prefetch_document(&self, key: &[u8]) {
        let hash = hash_of(&self.hasher, key);
        for document in self.documents.candidates(hash) {
            document.prefetch();
        }
    }

    /// The place of the document in a slot.
    pub(crate) fn place_of_slot(&self, spot: Spot) -> Option<Place> {
        let document = self.documents.get(spot)?;
        Some(Place {
            hash: hash_of(&self.hasher, document.key()),
            spot,
        })
    }

    /// The document there.
    #[inline]
    pub(crate) fn at(&self, place: Place) -> Option<&Document> {
        self.documents.get(place.spot)
    }

    /// The document in a slot, for passes over the table.
    pub(crate) fn in_slot(&self, spot: Spot) -> Option<&Document> {
        self.documents.get(spot)
    }

    /// One step of a pass over the slots; see [`Parts::step`].
    pub(crate) fn step(&self, next: &mut Spot) -> Option<Spot> {
        self.documents.step(next)
    }

    /// The documents of one part of the table, some hundred at most; `None` after the last part.
    /// A document that moves stays in its part or goes to a later one.
    pub(crate) fn part(&self, index: usize) -> Option<impl Iterator<Item = &Document>> {
        self.documents.part(index)
    }

    /// Whether a document ever left the table whole.
    pub(crate) fn has_evicted(&self) -> bool {
        self.evicted.is_some()
    }

    /// A slot chosen by `seed`.
    pub(crate) fn some_spot(&self, seed: u64) -> Spot {
        self.documents.some_spot(seed)
    }

    /// Puts the document at the place of its key; returns the one that was there.
    ///
    /// Cost: bounded; a table that is full grows by a small part.
    pub(crate) fn put(&mut self, place: Place, document: Document) -> Option<Document> {
        self.counts.add(&document);
        if let Some(there) = self.documents.get_mut(place.spot) {
            let old = std::mem::replace(there, document);
            self.counts.subtract(&old);
            return Some(old);
        }
        let rehash = ByKey(&self.hasher);
        self.documents.insert(place.hash, document, &rehash);
        None
    }

    /// Takes the document of `key` out.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Document> {
        let hasher = &self.hasher;
        let is_it = |document: &Document| document.has_key(key);
        let hash = hash_of(hasher, key);
        let old = self.documents.remove(hash, is_it, &ByKey(hasher))?;
        self.counts.subtract(&old);
        Some(old)
    }

    /// Buckets by how many documents they have. Cost: a look at every bucket.
    pub(crate) fn bucket_fill(&self) -> [u64; 8] {
        self.documents.bucket_fill()
    }

    /// Number of slots, empty ones included.
    pub(crate) fn slots(&self) -> usize {
        self.documents.slots()
    }

    /// Takes the document of `place` out, and remembers where its row is. `None`, and nothing
    /// is done, when there is none or its seqno is too high to be remembered.
    pub(crate) fn evict(&mut self, place: Place) -> Option<Document> {
        let document = self.at(place)?.clone();
        if !Evicted::fits(document.seqno()) {
            return None;
        }
        let is_it = |other: &Document| other.same_as(&document);
        let rehash = ByKey(&self.hasher);
        self.documents.remove(place.hash, is_it, &rehash)?;
        let keys = || {
            let [first, second] = PRINT_KEYS;
            (hash_of(&self.hasher, first), hash_of(&self.hasher, second))
        };
        self.evicted
            .get_or_insert_with(|| Box::new(Evicted::new(keys())))
            .insert(place.hash, &document);
        self.counts.subtract(&document);
        self.counts.add_entry(document.kind().is_tombstone(), false);
        Some(document)
    }

    /// Whether all is known of the key of `place`: its document is here, or none ever left.
    #[inline]
    pub(crate) fn is_known(&self, place: Place) -> bool {
        place.spot != Spot::NONE || self.evicted.is_none()
    }

    /// What is known of the document of `key`, whose place this is, when it has left the table.
    /// `None` when it is there, or nowhere.
    pub(crate) fn remains(&self, place: Place, key: &[u8]) -> Option<Remains> {
        if place.spot != Spot::NONE {
            return None;
        }
        self.evicted.as_ref()?.find(place.hash, key)
    }

    /// A revision that none of a document that left the table is above.
    pub(crate) fn max_evicted_rev(&self) -> u64 {
        self.evicted.as_ref().map_or(0, |evicted| evicted.max_rev())
    }

    /// Whether a row of the key with this hash is remembered as evicted.
    pub(crate) fn is_evicted(&self, place: Place, seqno: Seqno) -> bool {
        let evicted = self.evicted.as_ref();
        evicted.is_some_and(|evicted| evicted.contains(place.hash, seqno))
    }

    /// Forgets that this row was evicted: it is put back, or is no more.
    pub(crate) fn forget_evicted(&mut self, place: Place, seqno: Seqno) -> bool {
        let evicted = self.evicted.as_mut();
        let found = evicted.and_then(|evicted| evicted.take(place.hash, seqno));
        if let Some(tombstone) = found {
            self.counts.subtract_entry(tombstone, false);
        }
        found.is_some()
    }

    /// Documents and tombstones that it holds.
    pub(crate) fn len(&self) -> usize {
        self.documents.len()
    }

    pub(crate) fn counts(&self) -> &TableCounts {
        &self.counts
    }

    /// How often it grew.
    pub(crate) fn resizes(&self) -> u64 {
        self.documents.resizes()
    }

    /// Bytes of the arrays of slots.
    pub(crate) fn array_bytes(&self) -> usize {
        self.documents.bytes() + self.evicted.as_ref().map_or(0, |evicted| evicted.bytes())
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
