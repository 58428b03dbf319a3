//! The hash table: the newest revision of every key, tombstones included.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use model::Document;

#[cfg(test)]
mod tests;

/// Where a key is, or would be: the result of one look-up, good until the table changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// Hash of the key.
    pub(crate) hash: u64,
    slot: Option<usize>,
}

/// Documents by key, 8 bytes an entry; the keys lie in the documents only.
pub(crate) struct Table {
    documents: HashTable<Document>,
    hasher: FixedState,
    counts: TableCounts,
    resizes: u64,
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
            documents: HashTable::new(),
            hasher: FixedState::with_seed(hash_seed),
            counts: TableCounts::default(),
            resizes: 0,
        }
    }

    /// Looks `key` up.
    #[inline]
    pub(crate) fn place(&self, key: &[u8]) -> Place {
        let hash = hash_of(&self.hasher, key);
        let slot = self
            .documents
            .find_bucket_index(hash, |document| document.key() == key);
        Place { hash, slot }
    }

    /// The place of the document in slot `slot`.
    pub(crate) fn place_of_slot(&self, slot: usize) -> Option<Place> {
        let document = self.documents.get_bucket(slot)?;
        Some(Place {
            hash: hash_of(&self.hasher, document.key()),
            slot: Some(slot),
        })
    }

    /// The document there.
    #[inline]
    pub(crate) fn at(&self, place: Place) -> Option<&Document> {
        self.documents.get_bucket(place.slot?)
    }

    /// The document in slot `slot`, for passes over the table.
    pub(crate) fn in_slot(&self, slot: usize) -> Option<&Document> {
        self.documents.get_bucket(slot)
    }

    /// Puts the document at the place of its key; returns the one that was there.
    ///
    /// Cost: when the table is full it doubles, which hashes every key in it.
    pub(crate) fn put(&mut self, place: Place, document: Document) -> Option<Document> {
        self.counts.add(&document);
        if let Some(there) = place
            .slot
            .and_then(|slot| self.documents.get_bucket_mut(slot))
        {
            let old = std::mem::replace(there, document);
            self.counts.subtract(&old);
            return Some(old);
        }
        self.resizes += u64::from(self.documents.len() == self.documents.capacity());
        let hasher = &self.hasher;
        self.documents
            .insert_unique(place.hash, document, |other| hash_of(hasher, other.key()));
        None
    }

    /// Takes the document of `key` out.
    pub(crate) fn remove(&mut self, key: &[u8]) -> Option<Document> {
        let hash = hash_of(&self.hasher, key);
        let entry = self
            .documents
            .find_entry(hash, |document| document.key() == key)
            .ok()?;
        let old = entry.remove().0;
        self.counts.subtract(&old);
        Some(old)
    }

    /// Number of slots, empty ones included.
    pub(crate) fn slots(&self) -> usize {
        self.documents.num_buckets()
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
        self.resizes
    }

    /// Bytes of the array of slots.
    pub(crate) fn array_bytes(&self) -> usize {
        self.documents.allocation_size()
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Table")
            .field("counts", &self.counts)
            .finish_non_exhaustive()
    }
}
