//! Prefetching of memory for reads.
//!
//! A small read mostly waits for memory: first for its place in the table, then for its document. A
//! caller with several keys prefetches the next memory of each key before it reads the first, and
//! so waits once for all of them.

use super::VBucket;

impl VBucket {
    /// Prefetches the place of `key` in the table.
    #[inline]
    pub fn prefetch_key(&self, key: &[u8]) {
        self.table.prefetch(key);
    }

    /// Prefetches the document of `key`, once its place has been loaded.
    #[inline]
    pub fn prefetch_document(&self, key: &[u8]) {
        self.table.prefetch_document(key);
    }
}
