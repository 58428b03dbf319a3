//! Active compression: cold values are compressed in memory before they are evicted.

use model::{Datatype, Document, VbId};
use storage::KvStore;

use crate::Bucket;
use crate::holds::Hold;
use crate::stats::Counters;

/// Minimum length of values to compress.
const COMPRESS_BYTES_MIN: usize = 64;

impl<S: KvStore> Bucket<S> {
    /// Compresses the value of a cold document in memory; evicts it if it is compressed already, or
    /// gains nothing. Returns whether memory was freed.
    ///
    /// Cost: one lock hold; the value is compressed before it. Values with attributes are not compressed.
    pub(super) fn compress_or_evict(&self, vb: VbId, document: &Document) -> bool {
        if let Some(done) = self.compress(vb, document) {
            return done;
        }
        let (key, now) = (document.key(), self.clock.now());
        let evicted = self.with_vbucket_for(Hold::Evict, vb, |vbucket| vbucket.evict(key, now));
        let evicted = evicted.unwrap_or(false);
        Counters::add(&self.counters().evicted, u64::from(evicted));
        evicted
    }

    /// Compresses the value of a document in memory. If that gains nothing, the document becomes
    /// cold, so that the next attempt is at its eviction.
    pub(super) fn compress_or_cool(&self, vb: VbId, document: &Document) {
        let long = document.value().len() >= COMPRESS_BYTES_MIN;
        if long && self.compress(vb, document).is_none() {
            document.set_heat(0);
        }
    }

    /// Compresses a value. Returns whether it was replaced; `None` if compression gains nothing.
    fn compress(&self, vb: VbId, document: &Document) -> Option<bool> {
        let datatype = document.datatype();
        let plain = !datatype.contains(Datatype::SNAPPY) && !datatype.contains(Datatype::XATTR);
        if !plain || document.value().len() < COMPRESS_BYTES_MIN {
            return None;
        }
        let compressed = (self.options.compress)(document.value())?;
        let done = self.with_vbucket_for(Hold::Evict, vb, |vbucket| {
            vbucket.compress_cold(document, &compressed)
        });
        let done = done.unwrap_or(false);
        Counters::add(&self.counters().compressed, u64::from(done));
        Some(done)
    }
}
