//! Asking for the memory of several documents at once; see [`VBucket::foresee`].

use std::slice::from_ref;

use engine::VBucket;
use model::VbId;
use prefetch_index::prefetch_index;
use storage::KvStore;

use crate::bucket::Bucket;

impl<S: KvStore> Bucket<S> {
    /// Asks for the memory that operations on these documents will look at, so that the waits
    /// for it overlap: worth it for a few at a time that are worked on next. Changes nothing,
    /// and leaves out vBuckets that somebody else has locked.
    ///
    /// Cost: some 50 ns a document.
    pub fn foresee<'k>(&self, documents: &(impl Iterator<Item = (VbId, &'k [u8])> + Clone)) {
        for slot in documents.clone().filter_map(|(vb, _)| self.slot(vb)) {
            prefetch_index(from_ref(slot), 0);
        }
        let step = |look: fn(&VBucket, &[u8])| {
            for (vb, key) in documents.clone() {
                let locked = self.slot(vb).and_then(|slot| slot.vbucket.try_lock());
                if let Some(vbucket) = locked.as_ref().and_then(|vbucket| vbucket.as_ref()) {
                    look(vbucket, key);
                }
            }
        };
        step(|vbucket, _| vbucket.foresee());
        step(VBucket::foresee_key);
        step(VBucket::foresee_document);
    }
}
