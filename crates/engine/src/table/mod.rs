//! The hash table: the newest revision of every key, tombstones included.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use model::Document;
use parts::Parts;
pub(crate) use parts::Spot;

mod parts;
#[cfg(test)]
mod tests;

/// Where a key is, or would be: the result of one look-up, good until the table changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Hash of the key.
    pub(crate) hash: u64,
    spot: Option<Spot>,
}

/// Documents by key, 8 bytes an entry; the keys lie in the documents only.
pub(crate) struct Table {
    documents: Parts<Document>,
    hasher: FixedState,
    counts: TableCounts,
}

/// Figures of the table, kept with every change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TableCounts {
    /// Live documents.
    pub(crate) items: u64,
    /// Tombstones.
    pub(crate) tombstones: u64,
    /// Live documents without their value.
    pub(crate) non_resident: u64,
    /// Bytes of the documents' allocations.
    pub(crate) document_bytes: usize,
}

impl TableCounts {
    fn add(&mut self, document: &Document) {
        self.document_bytes += document.memory_bytes();
        if document.kind().is_tombstone() {
            self.tombstones += 1;
        } else {
            self.items += 1;
            self.non_resident += u64::from(!document.is_resident());
        }
    }

    fn subtract(&mut self, document: &Document) {
        self.document_bytes -= document.memory_bytes();
        if document.kind().is_tombstone() {
            self.tombstones -= 1;
        } else {
            self.items -= 1;
            self.non_resident -= u64::from(!document.is_resident());
        }
    }
}

fn hash_of(hasher: &FixedState, key: &[u8]) -> u64 {
    let mut hasher = hasher.build_hasher();
    hasher.write(key);
    hasher.finish()
}

impl Table {
    pub(crate) fn new(hash_seed: u64) -> Self {
        Self {
            documents: Parts::default(),
            hasher: FixedState::with_seed(hash_seed),
            counts: TableCounts::default(),
        }
    }

    /// Looks `key` up.
    #[inline]
    pub(crate) fn place(&self, key: &[u8]) -> Place {
        let hash = hash_of(&self.hasher, key);
        let spot = self.documents.find(hash, |document| document.key() == key);
        Place { hash, spot }
    }

    /// The place of the document in a slot.
    pub(crate) fn place_of_slot(&self, spot: Spot) -> Option<Place> {
        let document = self.documents.get(spot)?;
        Some(Place {
            hash: hash_of(&self.hasher, document.key()),
            spot: Some(spot),
        })
    }

    /// The document there.
    #[inline]
    pub(crate) fn at(&self, place: Place) -> Option<&Document> {
        self.documents.get(place.spot?)
    }

    /// The document in a slot, for passes over the table.
    pub(crate) fn in_slot(&self, spot: Spot) -> Option<&Document> {
        self.documents.get(spot)
    }

    /// One step of a pass over the slots; see [`Parts::step`].
    pub(crate) fn step(&self, next: &mut Spot) -> Option<Spot> {
        self.documents.step(next)
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
        if let Some(there) = place.spot.and_then(|spot| self.documents.get_mut(spot)) {
            let old = std::mem::replace(there, document);
            self.counts.subtract(&old);
            return Some(old);
        }
        let hasher = &self.hasher;
        let hash_of = |other: &Document| hash_of(hasher, other.key());
        self.documents.insert(place.hash, document, hash_of);
        None
    }

    /// Takes the document of `key` out.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Document> {
        let hasher = &self.hasher;
        let is_it = |document: &Document| document.key() == key;
        let rehash = |other: &Document| hash_of(hasher, other.key());
        let hash = hash_of(hasher, key);
        let old = self.documents.remove(hash, is_it, rehash)?;
        self.counts.subtract(&old);
        Some(old)
    }

    /// Number of slots, empty ones included.
    pub(crate) fn slots(&self) -> usize {
        self.documents.slots()
    }

    /// Documents and tombstones.
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
        self.documents.bytes()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
