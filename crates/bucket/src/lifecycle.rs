//! Creation, deletion and emptying of vBuckets.

use std::sync::atomic::Ordering;

use engine::{OpError, VBucket};
use model::{FailoverEntry, Seqno, VbId, VbRecord, VbState, VbUuid};
use parking_lot::MutexGuard;
use storage::{KvStore, StoreError, VbBatch};

use crate::bucket::Bucket;
use crate::durable::OrphanedWaits;
use crate::slot::{deleted_record, first_history};
use crate::stats::{Counters, WarmupStage};

impl<S: KvStore> Bucket<S> {
    /// Creates a vBucket or changes its state.
    ///
    /// # Errors
    /// `TemporaryFailure` during warmup; `NotMyVbucket` if the number is too high or the vBucket is in quarantine.
    pub fn set_vbucket(
        &self,
        id: VbId,
        state: VbState,
        topology: Option<String>,
        uuid: VbUuid,
    ) -> Result<(), OpError> {
        if self.warmup().stage() != WarmupStage::Done {
            return Err(OpError::TemporaryFailure);
        }
        let slot = self.slot(id).ok_or(OpError::NotMyVbucket)?;
        if self.quarantined(id).is_some() {
            return Err(OpError::NotMyVbucket);
        }
        let mut locked = slot.vbucket.lock();
        let mut other = false;
        let is_new = locked.is_none();
        let vbucket = locked.get_or_insert_with(|| {
            self.quarantine.forget(id);
            let config = self.vb_config();
            Box::new(VBucket::new(id, state, first_history(uuid), config))
        });
        vbucket.set_keeps_history(self.history_retention().keeps());
        if vbucket.state() != state {
            slot.epoch.fetch_add(1, Ordering::SeqCst);
            other = true;
        }
        if other || is_new {
            slot.sealed.store(false, Ordering::Relaxed);
        }
        vbucket.set_state(state, topology, uuid);
        let left = self.collect_outbox(vbucket);
        drop(locked);
        self.deliver(id, left);
        if other {
            self.end_scans_of(id);
        }
        slot.subscribers.notify(id);
        self.bring_to_manifest(id);
        Ok(())
    }

    /// Deletes a vBucket: from memory at once, and from the store before this returns. All waits for the vBucket end.
    ///
    /// Returns `Ok(false)` if there is none.
    ///
    /// # Errors
    /// The store's. The vBucket is still deleted from memory, and the flusher retries the deletion
    /// in the store; until that succeeds, a restart restores the vBucket.
    ///
    /// Cost: waits for a commit that is under way, and for the store.
    pub fn delete_vbucket(&self, id: VbId) -> Result<bool, StoreError> {
        let deleted = self.delete(id);
        let counters = self.counters();
        match deleted {
            Ok(true) => Counters::add(&counters.vbuckets_deleted, 1),
            Ok(false) => {}
            Err(_) => Counters::add(&counters.vbucket_deletes_failed, 1),
        }
        deleted
    }

    fn delete(&self, id: VbId) -> Result<bool, StoreError> {
        let Some(slot) = self.slot(id) else {
            return Ok(false);
        };
        // A batch of this vBucket that is being committed would restore it.
        let mut owed = self.turn_to_write();
        let Some(vbucket) = slot.vbucket.lock().take() else {
            return self.delete_quarantined(id, &mut owed);
        };
        self.memory.add(vbucket.memory_to_give_back());
        slot.epoch.fetch_add(1, Ordering::SeqCst);
        owed.retain(|(of, _)| *of != id);
        owed.push((id, deleted_record(vbucket.record())));
        let settled = self.settle(&mut owed);
        drop(owed);
        drop(vbucket);
        self.end_waits_of(id, self.durable.take(id));
        if settled.is_err() {
            self.flushes.dirty.mark(id);
        }
        settled.map(|()| true)
    }

    /// Empties vBuckets: each begins anew, with its state and the bucket's collections. They are
    /// empty in memory at once, and in the store before this returns. Numbers without a vBucket are
    /// skipped.
    ///
    /// # Errors
    /// The store's. The vBuckets are still empty in memory, and the flusher retries the deletion in
    /// the store; until that succeeds, a restart restores their documents.
    ///
    /// Cost: as [`Bucket::delete_vbucket`], with two commits for all of them together.
    pub fn empty_vbuckets(
        &self,
        ids: &[VbId],
        uuids: &mut dyn FnMut() -> VbUuid,
    ) -> Result<(), StoreError> {
        let mut owed = self.turn_to_write();
        owed.retain(|(of, _)| !ids.contains(of));
        let mut emptied = Vec::with_capacity(ids.len());
        for &id in ids {
            if let Some(record) = self.empty(id, first_history(uuids())) {
                owed.push((id, record));
                emptied.push(id);
            }
        }
        let settled = self.settle(&mut owed);
        drop(owed);
        for id in emptied {
            self.bring_to_manifest(id);
            self.flushes.dirty.mark(id);
        }
        settled
    }

    /// Replaces a vBucket by an empty one. Returns the record of the new one.
    fn empty(&self, id: VbId, first: FailoverEntry) -> Option<VbRecord> {
        let slot = self.slot(id)?;
        let mut locked = slot.vbucket.lock();
        let vbucket = locked.as_mut()?;
        let config = self.vb_config();
        let mut fresh = Box::new(VBucket::new(id, vbucket.state(), first, config));
        fresh.set_keeps_history(self.history_retention().keeps());
        fresh.raise_term(vbucket.term());
        let record = fresh.record();
        let left = self.collect_outbox(&mut fresh);
        let full = std::mem::replace(vbucket, fresh);
        // Taken under the lock: a write into the new vBucket may wait for the same seqno.
        let durable = self.durable.take(id);
        slot.epoch.fetch_add(1, Ordering::SeqCst);
        drop(locked);
        self.memory.add(full.memory_to_give_back());
        self.deliver(id, left);
        self.end_waits_of(id, durable);
        Some(record)
    }

    /// Ends all waits for a vBucket that is gone.
    fn end_waits_of(&self, id: VbId, durable: OrphanedWaits) {
        durable.end();
        self.end_scans_of(id);
        self.persistence_waits.wake(id, Seqno(u64::MAX));
        if let Some(slot) = self.slot(id) {
            slot.subscribers.notify(id);
        }
    }

    /// Deletes a vBucket in quarantine, which is not in memory.
    fn delete_quarantined(
        &self,
        id: VbId,
        owed: &mut Vec<(VbId, VbRecord)>,
    ) -> Result<bool, StoreError> {
        let Some(known) = self.quarantined(id) else {
            return Ok(false);
        };
        owed.push((id, deleted_record(known.record.clone())));
        if let Err(error) = self.settle(owed) {
            // The vBucket stays in quarantine; the flusher does not retry this deletion.
            owed.retain(|(of, _)| *of != id);
            return Err(error);
        }
        self.quarantine.remove(id);
        Ok(true)
    }

    /// Waits until no batch is being committed to the store, and blocks later ones while the guard is held.
    pub(crate) fn turn_to_write(&self) -> MutexGuard<'_, Vec<(VbId, VbRecord)>> {
        self.flushes.writing.lock()
    }

    /// Deletes vBuckets from the store and commits their records. On an error they stay in `owed`.
    pub(crate) fn settle(&self, owed: &mut Vec<(VbId, VbRecord)>) -> Result<(), StoreError> {
        if owed.is_empty() {
            return Ok(());
        }
        let ids: Vec<VbId> = owed.iter().map(|(id, _)| *id).collect();
        self.store.remove(&ids)?;
        let nothing: &[(model::Document, Seqno)] = &[];
        let records = owed.iter().map(|(id, record)| VbBatch {
            vb: *id,
            record,
            changes: &nothing,
        });
        self.store.commit(&records.collect::<Vec<_>>())?;
        owed.clear();
        Ok(())
    }
}
