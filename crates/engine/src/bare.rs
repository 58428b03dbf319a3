//! The table of a vBucket without the vBucket, and what a vBucket counts.

use model::{CollectionId, Document, ManifestUid, ScopeId, Seqno};

use crate::table::{Table, TableCounts};
use collections::{
    CollectionChange, CollectionInfo, CollectionSettings, SystemEvent, VbCollections,
};

/// The hash table alone: what benchmarks of hash tables measure. Of a vBucket's work on a key it
/// leaves out the checks, the change's place in the order, and the log.
#[derive(Debug)]
pub struct BareTable(Table);

impl BareTable {
    /// An empty one, which takes no memory.
    pub fn new(hash_seed: u64) -> Self {
        Self(Table::new(hash_seed))
    }

    /// An empty one that has room for `entries` documents: few of them make it grow.
    pub fn with_room(hash_seed: u64, entries: usize) -> Self {
        Self(Table::with_room(hash_seed, entries))
    }

    /// The document of `key`, a tombstone too. O(1).
    pub fn find(&self, key: &[u8]) -> Option<&Document> {
        self.0.at(self.0.place(key))
    }

    /// Puts a document in the place of its key, and returns the one that was there. O(1), growth
    /// by a small part included.
    pub fn put(&mut self, document: Document) -> Option<Document> {
        let place = self.0.place(document.key());
        self.0.put(place, document)
    }

    /// Takes the document of `key` out. O(1), likewise.
    pub fn remove(&mut self, key: &[u8]) -> Option<Document> {
        self.0.remove(key)
    }
}

/// What a vBucket counts of its documents, without the documents: what benchmarks of statistics
/// measure.
#[derive(Debug, Default)]
pub struct BareCounts {
    table: TableCounts,
    collections: VbCollections,
}

impl BareCounts {
    /// Nothing is counted yet; these collections are there, besides the default one.
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

    /// Counts that `new` is the document of its key from now on, and `old` is not any more.
    /// O(log collections).
    pub fn replaced(&mut self, new: &Document, old: Option<&Document>) {
        self.collections.replaced(new, old);
        self.table.add(new);
        if let Some(old) = old {
            self.table.subtract(old);
        }
    }

    /// Live documents.
    pub fn items(&self) -> u64 {
        self.table.items
    }
}
