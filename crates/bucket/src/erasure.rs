//! Erasure of dropped collections: first their documents in memory, then their rows in the store.

use std::sync::atomic::Ordering;
use std::time::Duration;

use model::{CollectionId, VbId};
use storage::{KeyRange, KvStore, StoreError};

use crate::Bucket;
use crate::holds::Hold;
use crate::stats::Counters;

/// Slots of the table that are visited under one lock hold.
const SLOTS_PER_HOLD: usize = 4;
/// Delay before the eraser retries what had to wait for the flusher.
const UNFLUSHED_PAUSE: Duration = Duration::from_millis(100);
/// Delay before the eraser retries after an error of the store.
const FAILED_PAUSE: Duration = Duration::from_secs(1);

impl<S: KvStore> Bucket<S> {
    pub(crate) fn erase_soon(&self) {
        if !self.collections.erase.swap(true, Ordering::SeqCst) {
            self.compactions.signal.ring();
        }
    }

    /// Erases documents of dropped collections from memory and from the store. If some must wait for the flusher, or
    /// until the store works again, returns the time after which to call this again.
    ///
    /// Cost: reads the rows of these collections and their neighbours; a history is read whole.
    pub fn erase_step(&self) -> Option<Duration> {
        let mut again = None;
        for id in (0..self.vbuckets()).map(VbId) {
            if self.is_stopping() {
                return None;
            }
            let dead = self.with_vbucket(id, |vbucket| vbucket.has_dead());
            let pause = match (dead == Some(true)).then(|| self.erase_of(id)) {
                None | Some(Ok(true)) => continue,
                Some(Ok(false)) => UNFLUSHED_PAUSE,
                Some(Err(error)) => {
                    self.log_compaction_failure(&error);
                    FAILED_PAUSE
                }
            };
            again = again.max(Some(pause));
        }
        again
    }

    fn erase_of(&self, id: VbId) -> Result<bool, StoreError> {
        let mut garbage = Vec::new();
        loop {
            let progress = self.with_vbucket_for(Hold::Collections, id, |vbucket| {
                vbucket.erase_dead(SLOTS_PER_HOLD, &mut garbage)
            });
            garbage.clear();
            if progress.is_none_or(|progress| progress.finished) || self.is_stopping() {
                break;
            }
        }
        let ready = self.with_vbucket_for(Hold::Collections, id, |vbucket| vbucket.dead_in_store());
        let Some(Some(living)) = ready else {
            self.hurry();
            return Ok(false);
        };
        // For a collection that was dropped and added again with its number, rows before the end event are dead.
        let whole = living
            .open()
            .filter(|id| !self.collections.was_dropped(*id));
        let ranges = ranges_without(whole);
        let mut dead = 0;
        let erased = self.store.erase(id, &ranges, &mut |meta, key| {
            let is_dead = living.is_dead(key, meta.seqno, meta.kind.is_tombstone());
            let goes = is_dead && !self.is_stopping();
            dead += u64::from(goes);
            goes
        })?;
        // The store ends early if the vBucket has changed meanwhile.
        if erased != dead {
            return Ok(false);
        }
        Counters::add(&self.compaction().rows_erased, erased);
        if self.is_stopping() {
            return Ok(true);
        }
        if self.store.may_have_history()? {
            self.trim_history(id, Some(&living))?;
        }
        self.with_vbucket(id, |vbucket| vbucket.finish_erasing(living.up_to()));
        Ok(true)
    }
}

/// Returns the ranges of all keys outside these collections, ascending.
fn ranges_without(collections: impl Iterator<Item = CollectionId>) -> Vec<KeyRange> {
    let mut without: Vec<KeyRange> = collections.map(KeyRange::of_collection).collect();
    without.sort_unstable_by(|a, b| a.from.cmp(&b.from));
    let mut ranges = Vec::new();
    let mut from = Box::default();
    for one in without {
        if from < one.from {
            ranges.push(KeyRange {
                from,
                to: Some(one.from),
            });
        }
        from = one.to.unwrap_or_default();
    }
    ranges.push(KeyRange { from, to: None });
    ranges
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::collection_key;

    #[test]
    fn ranges_have_all_keys_outside_some_collections() {
        let open = [0, 8, 9, 0x7f, 0x80, 0x81, 0x100, 0x3fff, 0x4000].map(CollectionId);
        let ranges = ranges_without(open.into_iter().rev());
        assert!(ranges.is_sorted_by(|a, b| a.to.as_ref().is_some_and(|to| *to < b.from)));
        for id in (0..0x5000).map(CollectionId) {
            for key in [&b""[..], b"\0", b"key", &[0xff; 9]] {
                let key = collection_key(id, key);
                let is_in = |range: &&KeyRange| range.contains(&key);
                let found = ranges.iter().filter(is_in).count();
                assert_eq!(found, usize::from(!open.contains(&id)), "{id:?}");
            }
        }
        assert_eq!(ranges_without(std::iter::empty()), [KeyRange::default()]);
    }
}
