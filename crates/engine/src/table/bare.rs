//! The table of a vBucket without the vBucket.

use model::Document;

use super::Table;

/// The hash table alone: what benchmarks of hash tables measure. Of a vBucket's work on a key it
/// leaves out the checks, the change's place in the order, and the log.
#[derive(Debug)]
pub struct BareTable(Table);

impl BareTable {
    /// An empty one, which takes no memory.
    #[must_use]
    pub fn new(hash_seed: u64) -> Self {
        Self(Table::new(hash_seed))
    }

    /// The document of `key`, a tombstone too. O(1).
    #[must_use]
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
