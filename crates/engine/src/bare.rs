//! Parts of a vBucket for benchmarks: its table and its counters.

use model::{CollectionId, Document, ManifestUid, ScopeId, Seqno};

use crate::table::{Table, TableCounts};
use collections::{
    CollectionChange, CollectionInfo, CollectionSettings, SystemEvent, VbCollections,
};

/// The hash table alone, for benchmarks of hash tables. Without the checks, the seqno and the log
/// of a vBucket.
#[derive(Debug)]
pub struct BareTable(Table);

impl BareTable {
    /// Creates an empty table, which takes no memory.
    pub fn new(hash_seed: u64) -> Self {
        Self(Table::new(hash_seed))
    }

    /// Creates an empty table with room for `entries` documents; it rarely grows before that.
    pub fn with_room(hash_seed: u64, entries: usize) -> Self {
        Self(Table::with_room(hash_seed, entries))
    }

    /// Returns the document of `key`, also a tombstone. O(1).
    pub fn find(&self, key: &[u8]) -> Option<&Document> {
        self.0.at(self.0.place(key))
    }

    /// Stores a document under its key, and returns the previous one. O(1), including incremental
    /// growth.
    pub fn put(&mut self, document: Document) -> Option<Document> {
        let place = self.0.place(document.key());
        self.0.put(place, document)
    }

    /// Removes the document of `key`. O(1), including incremental growth.
    pub fn remove(&mut self, key: &[u8]) -> Option<Document> {
        self.0.remove(key)
    }
}

/// The document counters of a vBucket without the documents, for benchmarks of statistics.
#[derive(Debug, Default)]
pub struct BareCounts {
    table: TableCounts,
    collections: VbCollections,
}

impl BareCounts {
    /// Creates counters at zero, for these collections and the default one.
    pub fn new(collections: impl IntoIterator<Item = CollectionId>) -> Self {
        let mut counts = Self::default();
        for (id, seqno) in collections.into_iter().zip(1..) {
            let event = SystemEvent {
                manifest: ManifestUid(seqno),
                change: CollectionChange::Begun(CollectionInfo {
                    scope: ScopeId::DEFAULT,
                    id,
                    name: "collection",
                    settings: CollectionSettings::default(),
                }),
            };
            counts.collections.apply(&event, Seqno(seqno));
        }
        counts
    }

    /// Counts the replacement of `old`, the key's previous document, by `new`. O(log collections).
    pub fn replaced(&mut self, new: &Document, old: Option<&Document>) {
        self.collections.replaced(new, old);
        self.table.add(new);
        if let Some(old) = old {
            self.table.subtract(old);
        }
    }

    /// Number of live documents.
    pub fn items(&self) -> u64 {
        self.table.items
    }
}
