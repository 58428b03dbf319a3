//! Quarantine of vBuckets whose rows in the store are damaged. They are not served.
//!
//! Such a vBucket is not in memory, so it is not flushed, purged, compacted, erased or streamed:
//! its rows in the store stay unchanged, for salvage. It leaves quarantine when it is deleted, or
//! after a restart on a repaired store. A replica whose active node is connected is emptied and
//! copied again from there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Seqno, VbId, VbRecord, VbState, VbUuid};
use parking_lot::Mutex;
use storage::{ErrorKind, KvStore, StoreError};

use crate::Bucket;

/// A vBucket in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// Description of the damage in one line: the row, the files, and the store's error.
    pub reason: String,
    /// Its record, which is readable.
    pub(crate) record: VbRecord,
}

impl Quarantined {
    /// Returns the term of the vBucket.
    pub fn term(&self) -> u64 {
        self.record.term
    }
}

/// All vBuckets in quarantine of a bucket.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    vbs: Mutex<BTreeMap<VbId, Arc<Quarantined>>>,
    /// Served vBuckets whose damage is already logged with its file.
    located: Mutex<BTreeSet<VbId>>,
}

impl Quarantine {
    pub(crate) fn get(&self, id: VbId) -> Option<Arc<Quarantined>> {
        self.vbs.lock().get(&id).cloned()
    }

    pub(crate) fn remove(&self, id: VbId) -> Option<Arc<Quarantined>> {
        self.vbs.lock().remove(&id)
    }

    /// Forgets the damage of a vBucket that begins anew.
    pub(crate) fn forget(&self, id: VbId) {
        self.located.lock().remove(&id);
    }
}

impl<S: KvStore> Bucket<S> {
    /// Returns the reason why a vBucket is in quarantine; `None` if it is not.
    pub fn quarantined(&self, id: VbId) -> Option<Arc<Quarantined>> {
        self.quarantine.get(id)
    }

    /// Returns every vBucket in quarantine, ascending.
    pub fn all_quarantined(&self) -> Vec<(VbId, Arc<Quarantined>)> {
        let all = self.quarantine.vbs.lock();
        all.iter().map(|(id, why)| (*id, Arc::clone(why))).collect()
    }

    /// Refuses changes of a quarantined vBucket in the store.
    pub(crate) fn check_quarantine(
        &self,
        id: VbId,
        during: &'static str,
    ) -> Result<(), StoreError> {
        match self.quarantined(id) {
            None => Ok(()),
            Some(_) => Err(StoreError::new(ErrorKind::Corrupt, during)
                .of(id)
                .because("the vBucket is in quarantine")),
        }
    }

    /// Puts a vBucket whose rows cannot be read in quarantine: at each moment it is there, or still in its slot.
    pub(crate) fn put_in_quarantine(&self, id: VbId, error: &StoreError) {
        let Some(slot) = self.slot(id) else { return };
        // This may take long.
        let (row, files) = self.locate(id, Seqno::ZERO);
        let reason = if files.is_empty() {
            format!("{row}: {error}")
        } else {
            format!("{row} in {files}: {error}")
        };
        let mut locked = slot.vbucket.lock();
        let Some(vbucket) = locked.take() else { return };
        self.memory.add(vbucket.memory_to_give_back());
        let record = vbucket.record();
        let known = Arc::new(Quarantined { reason, record });
        self.quarantine.vbs.lock().insert(id, known);
        drop(locked);
        tracing::error!(
            bucket = self.name(),
            vb = id.0,
            row,
            files,
            %error,
            "a damaged row: the vBucket is in quarantine and is not served; \
             settee salvage copies what can be read"
        );
    }

    /// Returns the vBuckets with known damage: those in quarantine, and those in which a read met damage.
    pub fn damaged(&self) -> Vec<VbId> {
        let mut damaged = self.quarantine.located.lock().clone();
        damaged.extend(self.quarantine.vbs.lock().keys());
        damaged.into_iter().collect()
    }

    /// Whether a read met damage in a served vBucket.
    pub fn is_damaged(&self, id: VbId) -> bool {
        self.quarantine.located.lock().contains(&id)
    }

    /// Empties a replica vBucket that [is damaged](Bucket::damaged), in memory and in the store, so
    /// that its active node sends everything again. Returns whether it was a replica.
    ///
    /// # Errors
    /// The store's; then the vBucket may be gone, and the caller must call this again.
    pub fn renew_replica(&self, id: VbId, uuid: VbUuid) -> Result<bool, StoreError> {
        let state = match self.quarantined(id) {
            Some(known) => Some(known.record.state),
            None => self.with_vbucket(id, |vbucket| vbucket.state()),
        };
        // There is no state if the store failed the last time.
        if matches!(state, Some(VbState::Active | VbState::Dead)) {
            return Ok(false);
        }
        tracing::warn!(
            bucket = self.name(),
            vb = id.0,
            "what is left of a damaged replica is given up; it comes anew from the active node"
        );
        self.delete_vbucket(id)?;
        let made = self.set_vbucket(id, VbState::Replica, Some(String::new()), uuid);
        made.map_err(|error| {
            let reason = format!("making it anew: {error:?}");
            StoreError::new(ErrorKind::Io, "renewing")
                .of(id)
                .because(reason)
        })?;
        Ok(true)
    }

    /// Logs that documents after a seqno could not be read, and damage that is the reason. Clients repeat failed reads:
    /// not each one has a line.
    pub(crate) fn log_read_failure(&self, id: VbId, after: Seqno, error: &StoreError) {
        if let Some(times) = self.read_failures.note(self.clock.mono_ns()) {
            let (bucket, vb) = (self.name(), id.0);
            tracing::error!(bucket, vb, %error, times, "documents could not be read");
        }
        self.report_damage(id, after, error);
    }

    /// Logs damage that a read met in a served vBucket, with its position. Logs once for each
    /// vBucket, because the search takes a while.
    pub(crate) fn report_damage(&self, id: VbId, after: Seqno, error: &StoreError) {
        if error.kind != ErrorKind::Corrupt || !self.quarantine.located.lock().insert(id) {
            return;
        }
        let (row, files) = self.locate(id, after);
        tracing::error!(
            bucket = self.name(),
            vb = id.0,
            row,
            files,
            "a damaged row; settee salvage copies what can be read"
        );
    }

    /// Returns a description of the first damaged row after a seqno, and of the files in which it may lie.
    fn locate(&self, id: VbId, after: Seqno) -> (String, String) {
        let place = self.store.locate(id, after);
        let row = match place.seqno {
            Some(seqno) => format!("row {seqno}"),
            None => format!("a row behind seqno {after}"),
        };
        let files = place.files.iter().map(|file| file.display().to_string());
        (row, files.collect::<Vec<_>>().join(", "))
    }
}
