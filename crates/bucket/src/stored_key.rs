//! Search for any key of a collection in the store, if memory has none.

use std::ops::ControlFlow;

use model::{CollectionId, Seqno, VbId, collection_key};
use storage::{KeyRange, KvStore, StoreError};

use crate::Bucket;

impl<S: KvStore> Bucket<S> {
    /// Returns the key of a live document of a collection, with its prefix; `seed` selects the position of the search.
    ///
    /// # Errors
    /// The store's.
    ///
    /// Cost: mostly one block of each run; none if the collection has no documents, or all keys are in memory.
    pub fn stored_key(
        &self,
        vb: VbId,
        collection: CollectionId,
        seed: u64,
    ) -> Result<Option<Vec<u8>>, StoreError> {
        if self.with_vbucket(vb, |vbucket| vbucket.may_be_away(collection)) != Some(true) {
            return Ok(None);
        }
        let snapshot = self.store.snapshot_by_key(vb)?;
        let now_s = self.clock.now().unix_s();
        for near in [&seed.to_be_bytes()[..], &[]] {
            let range = KeyRange {
                from: collection_key(collection, near).into(),
                ..KeyRange::of_collection(collection)
            };
            let mut found = None;
            snapshot.look(Seqno::ZERO, &range, &mut |row| {
                let meta = row.meta;
                let expired = meta.expiry != 0 && meta.expiry <= now_s;
                if meta.kind.is_tombstone() || expired {
                    return Ok(ControlFlow::Continue(()));
                }
                found = Some(row.key.to_vec());
                Ok(ControlFlow::Break(()))
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }
}
