//! Asking for memory before it is needed.
//!
//! Most of what a small read takes is waiting for memory: that of its vBucket, its place in the
//! table, its document, one after the other. Who knows several keys beforehand asks for the next
//! of each before it looks at the first, and waits once for all of them.

use std::slice::from_ref;

use prefetch_index::prefetch_index;

use super::VBucket;

impl VBucket {
    /// Asks for the memory of the vBucket itself.
    #[inline]
    pub fn foresee(&self) {
        prefetch_index(from_ref(&self.state), 0);
        prefetch_index(from_ref(&self.table), 0);
        prefetch_index(from_ref(&self.collections), 0);
        prefetch_index(from_ref(&self.counters), 0);
        prefetch_index(from_ref(&self.locks), 0);
    }

    /// Asks for where `key` is in the table, once the vBucket itself has come.
    #[inline]
    pub fn foresee_key(&self, key: &[u8]) {
        self.table.foresee(key);
    }

    /// Asks for the document, once its place has come.
    #[inline]
    pub fn foresee_document(&self, key: &[u8]) {
        self.table.foresee_document(key);
    }
}
