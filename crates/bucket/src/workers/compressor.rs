//! Active compression: cold values become smaller in memory before they leave it.

use model::{Datatype, Document, VbId};
use storage::KvStore;

use crate::Bucket;
use crate::holds::Hold;
use crate::stats::Counters;

/// Values shorter than this are not worth compressing.
const COMPRESS_BYTES_MIN: usize = 64;

impl<S: KvStore> Bucket<S> {
    /// Compresses the value of a cold document in memory; evicts it where it is compressed already, or
    /// gains nothing. Returns whether it takes less memory.
    ///
    /// Cost: one lock hold; the value is compressed before it. Values with attributes are not compressed.
    pub(super) fn compress_or_evict(&self, vb: VbId, document: &Document) -> bool {
        let datatype = document.datatype();
        let plain = !datatype.contains(Datatype::SNAPPY) && !datatype.contains(Datatype::XATTR);
        let compressible = plain && document.value().len() >= COMPRESS_BYTES_MIN;
        let compressed = compressible.then(|| (self.options.compress)(document.value()));
        let (now, counters) = (self.clock.now(), self.counters());
        let (done, total) = if let Some(compressed) = compressed.flatten() {
            let done = self.with_vbucket_for(Hold::Evict, vb, |vbucket| {
                vbucket.compress_cold(document, &compressed)
            });
            (done, &counters.compressed)
        } else {
            let key = document.key();
            let done = self.with_vbucket_for(Hold::Evict, vb, |vbucket| vbucket.evict(key, now));
            (done, &counters.evicted)
        };
        let done = done.unwrap_or(false);
        Counters::add(total, u64::from(done));
        done
    }
}
