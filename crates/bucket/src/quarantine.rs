//! vBuckets that are not served, because something of them in the store is damaged.
//!
//! Such a vBucket is not in memory, so nothing of it is flushed, purged, compacted, erased or streamed: what is
//! left of it in the store stays as it is, for salvage. It leaves by being deleted, or by a restart on a store that
//! is whole again; a replica whose active node is connected is emptied, and comes anew from there.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use model::{Seqno, VbId, VbRecord, VbState, VbUuid};
use parking_lot::Mutex;
use storage::{ErrorKind, KvStore, StoreError};

use crate::Bucket;

/// What is known of such a vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantined {
    /// What is damaged: the row, the files, and what the store said; one line.
    pub reason: String,
    /// Its record, which could be read.
    pub(crate) record: VbRecord,
}

impl Quarantined {
    /// The term of the vBucket.
    pub fn term(&self) -> u64 {
        self.record.term
    }
}

/// All of a bucket.
#[derive(Debug, Default)]
pub(crate) struct Quarantine {
    vbs: Mutex<BTreeMap<VbId, Arc<Quarantined>>>,
    /// Those that are served, and in which damage was met and its file told.
    located: Mutex<BTreeSet<VbId>>,
}

impl Quarantine {
    pub(crate) fn get(&self, id: VbId) -> Option<Arc<Quarantined>> {
        self.vbs.lock().get(&id).cloned()
    }

    pub(crate) fn remove(&self, id: VbId) -> Option<Arc<Quarantined>> {
        self.vbs.lock().remove(&id)
    }

    /// A vBucket begins anew.
    pub(crate) fn forget(&self, id: VbId) {
        self.located.lock().remove(&id);
    }
}

impl<S: KvStore> Bucket<S> {
    /// Why a vBucket is in quarantine; `None` when it is not.
    pub fn quarantined(&self, id: VbId) -> Option<Arc<Quarantined>> {
        self.quarantine.get(id)
    }

    /// Every vBucket in quarantine, ascending.
    pub fn all_quarantined(&self) -> Vec<(VbId, Arc<Quarantined>)> {
        let all = self.quarantine.vbs.lock();
        all.iter().map(|(id, why)| (*id, Arc::clone(why))).collect()
    }

    /// Refuses what would change the store of a vBucket in quarantine.
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

    /// Takes a vBucket out of memory whose rows behind seqno `after` cannot be read.
    pub(crate) fn put_in_quarantine(&self, id: VbId, after: Seqno, error: &StoreError) {
        let Some(slot) = self.slot(id) else { return };
        let Some(vbucket) = slot.vbucket.lock().take() else {
            return;
        };
        self.memory.add(vbucket.memory_to_give_back());
        let record = vbucket.record();
        drop(vbucket);
        let (row, files) = self.locate(id, after);
        tracing::error!(
            bucket = self.name(),
            vb = id.0,
            row,
            files,
            %error,
            "a damaged row: the vBucket is in quarantine and is not served; \
             settee salvage copies what can be read"
        );
        let reason = if files.is_empty() {
            format!("{row}: {error}")
        } else {
            format!("{row} in {files}: {error}")
        };
        let known = Arc::new(Quarantined { reason, record });
        self.quarantine.vbs.lock().insert(id, known);
    }

    /// The vBuckets of which something is known to be damaged: they are in quarantine, or a read met it.
    pub fn damaged(&self) -> Vec<VbId> {
        let mut damaged = self.quarantine.located.lock().clone();
        damaged.extend(self.quarantine.vbs.lock().keys());
        damaged.into_iter().collect()
    }

    /// Whether a read met damage in a vBucket that is served.
    pub fn is_damaged(&self, id: VbId) -> bool {
        self.quarantine.located.lock().contains(&id)
    }

    /// Empties a replica vBucket that [is damaged](Bucket::damaged), in memory and in the store: all of it is to come
    /// from its active node again. Returns whether it was a replica.
    ///
    /// # Errors
    /// The store's; it may be gone then, and is to be renewed again.
    pub fn renew_replica(&self, id: VbId, uuid: VbUuid) -> Result<bool, StoreError> {
        let state = match self.quarantined(id) {
            Some(known) => Some(known.record.state),
            None => self.with_vbucket(id, |vbucket| vbucket.state()),
        };
        // None where the store failed the last time.
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

    /// Logs damage that was met in a vBucket that is served, with its position: once for each vBucket, because
    /// finding it takes a while.
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

    /// The first damaged row behind a seqno, and the files in which it may lie, in words.
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
