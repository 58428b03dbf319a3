//! The disk of a copy: committed data survives a crash of its node.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use model::{Document, Seqno, VbId, VbRecord};
use parking_lot::Mutex;
use storage::{
    CommitInfo, DocumentRequest, ErrorKind, HistoryKept, HistoryLimits, Keep, KvStore, MemStore,
    Snapshot, StoreError, VbBatch,
};

/// Faults of a disk.
#[derive(Default)]
pub(crate) struct Faults {
    pub(crate) full: AtomicBool,
    pub(crate) dead: AtomicBool,
    /// Whether a commit failed since the last flush that succeeded.
    pub(crate) failed: AtomicBool,
    /// vBuckets whose rows cannot be read.
    unreadable: Mutex<BTreeSet<VbId>>,
    /// Terms that a planted bug returns at a start.
    pub(crate) terms: Mutex<BTreeMap<VbId, u64>>,
}

impl Faults {
    /// Whether commits fail.
    pub(crate) fn fails(&self) -> bool {
        self.dead.load(Ordering::SeqCst) || self.full.load(Ordering::SeqCst)
    }
}

/// A store in memory that outlives the bucket that writes to it.
#[derive(Clone)]
pub(crate) struct Disk {
    inner: Arc<MemStore>,
    pub(crate) faults: Arc<Faults>,
}

impl Disk {
    pub(crate) fn new() -> Self {
        Self {
            inner: Arc::new(MemStore::new()),
            faults: Arc::default(),
        }
    }

    /// Sets whether the rows of a vBucket are unreadable.
    pub(crate) fn set_unreadable(&self, vb: VbId, unreadable: bool) {
        let mut all = self.faults.unreadable.lock();
        if unreadable {
            all.insert(vb);
        } else {
            all.remove(&vb);
        }
    }

    /// Makes all rows readable.
    pub(crate) fn mend(&self) {
        self.faults.unreadable.lock().clear();
    }

    pub(crate) fn is_unreadable(&self, vb: VbId) -> bool {
        self.faults.unreadable.lock().contains(&vb)
    }

    /// Whether changes of a vBucket were committed: a crash loses all others.
    pub(crate) fn has_changes(&self, vb: VbId) -> bool {
        let snapshot = self.inner.snapshot(vb);
        snapshot.is_ok_and(|snapshot| snapshot.high_seqno() > Seqno::ZERO)
    }

    fn check(&self, vb: VbId, during: &'static str) -> Result<(), StoreError> {
        if self.faults.unreadable.lock().contains(&vb) {
            return Err(StoreError::new(ErrorKind::Corrupt, during).of(vb));
        }
        Ok(())
    }
}

impl KvStore for Disk {
    fn load(&self) -> Result<BTreeMap<VbId, VbRecord>, StoreError> {
        let mut loaded = self.inner.load()?;
        let terms = self.faults.terms.lock();
        for (vb, record) in &mut loaded {
            if let Some(term) = terms.get(vb) {
                record.term = *term;
            }
        }
        Ok(loaded)
    }

    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError> {
        let during = "committing";
        if self.faults.fails() {
            self.faults.failed.store(true, Ordering::SeqCst);
        }
        if self.faults.dead.load(Ordering::SeqCst) {
            return Err(StoreError::new(ErrorKind::Poisoned, during));
        }
        if self.faults.full.load(Ordering::SeqCst) {
            return Err(StoreError::new(ErrorKind::NoSpace, during));
        }
        self.inner.commit(batches)
    }

    fn fetch(
        &self,
        vb: VbId,
        wants: &[DocumentRequest<'_>],
    ) -> Result<Vec<Option<Document>>, StoreError> {
        self.check(vb, "fetching")?;
        self.inner.fetch(vb, wants)
    }

    fn may_have(&self, vb: VbId, key: &[u8]) -> bool {
        self.inner.may_have(vb, key)
    }

    fn snapshot(&self, vb: VbId) -> Result<Box<dyn Snapshot>, StoreError> {
        self.check(vb, "opening a snapshot")?;
        self.inner.snapshot(vb)
    }

    fn rollback(&self, vb: VbId, to: Seqno) -> Result<model::VbRecord, StoreError> {
        self.check(vb, "rolling back")?;
        self.inner.rollback(vb, to)
    }

    fn rollback_point(&self, vb: VbId, to: Seqno) -> Result<Seqno, StoreError> {
        self.check(vb, "looking for the way back")?;
        self.inner.rollback_point(vb, to)
    }

    fn compact(
        &self,
        vb: VbId,
        keep: &mut dyn FnMut(&model::Meta, &[u8]) -> Keep,
    ) -> Result<storage::Compacted, StoreError> {
        self.check(vb, "compacting")?;
        self.inner.compact(vb, keep)
    }

    fn trim_history(
        &self,
        vb: VbId,
        limits: HistoryLimits,
        dead: &mut dyn FnMut(&model::Meta, &[u8]) -> bool,
    ) -> Result<HistoryKept, StoreError> {
        self.inner.trim_history(vb, limits, dead)
    }

    fn may_have_history(&self) -> Result<bool, StoreError> {
        self.inner.may_have_history()
    }

    fn remove(&self, vbs: &[VbId]) -> Result<(), StoreError> {
        let mut unreadable = self.faults.unreadable.lock();
        unreadable.retain(|vb| !vbs.contains(vb));
        drop(unreadable);
        self.inner.remove(vbs)
    }

    fn manifest(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.manifest()
    }

    fn set_manifest(&self, text: &[u8]) -> Result<(), StoreError> {
        self.inner.set_manifest(text)
    }

    fn disk_usage(&self) -> Result<storage::DiskUsage, StoreError> {
        self.inner.disk_usage()
    }

    fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
