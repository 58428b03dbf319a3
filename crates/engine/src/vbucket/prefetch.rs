//! Asking for memory before it is needed.
//!
//! Most of what a small read takes is waiting for memory: that of its place in the table and its
//! document, one after the other. A caller that knows several keys prefetches the next
//! of each before it looks at the first, and waits once for all of them.

use super::VBucket;

impl VBucket {
    /// Asks for where `key` is in the table.
    #[inline]
    pub fn prefetch_key(&self, key: &[u8]) {
        self.table.prefetch(key);
    }

    /// Asks for the document, once its place has come.
    #[inline]
    pub fn prefetch_document(&self, key: &[u8]) {
        self.table.prefetch_document(key);
    }
}
