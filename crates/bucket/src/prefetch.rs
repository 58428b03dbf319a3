//! Prefetch of the memory of several documents at once; see [`VBucket::prefetch_key`].

use engine::VBucket;
use model::VbId;
use storage::KvStore;

use crate::bucket::Bucket;

impl<S: KvStore> Bucket<S> {
    /// Prefetches the memory that operations on these documents will read, so that the cache misses
    /// overlap. Meant for a few documents that are processed next. Changes nothing, and skips
    /// locked vBuckets.
    ///
    /// Cost: some 50 ns a document.
    pub fn prefetch<'k>(&self, documents: &(impl Iterator<Item = (VbId, &'k [u8])> + Clone)) {
        let step = |look: fn(&VBucket, &[u8])| {
            for (vb, key) in documents.clone() {
                let locked = self.slot(vb).and_then(|slot| slot.vbucket.try_lock());
                if let Some(vbucket) = locked.as_ref().and_then(|vbucket| vbucket.as_ref()) {
                    look(vbucket, key);
                }
            }
        };
        step(VBucket::prefetch_key);
        step(VBucket::prefetch_document);
    }
}
