//! A store that fails on request, for tests of its callers.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use model::{Document, Meta, Seqno, VbId, VbRecord};
use parking_lot::Mutex;

use crate::port::{
    CommitInfo, Compacted, DiskUsage, Keep, KvStore, LoadedVb, Snapshot, Upkeep, VbBatch, Want,
};
use crate::{ErrorKind, HistoryKept, HistoryLimits, StoreError};

/// The required methods of a [`KvStore`], forwarded to the field `inner`: all except `commit`, `fetch`, `may_have` and
/// `close`.
#[macro_export]
macro_rules! hand_on {
    () => {
        fn load(&self) -> Result<Vec<$crate::LoadedVb>, $crate::StoreError> {
            self.inner.load()
        }

        fn snapshot(
            &self,
            vb: ::model::VbId,
        ) -> Result<Box<dyn $crate::Snapshot>, $crate::StoreError> {
            self.inner.snapshot(vb)
        }

        fn rollback(
            &self,
            vb: ::model::VbId,
            to: ::model::Seqno,
        ) -> Result<::model::VbRecord, $crate::StoreError> {
            self.inner.rollback(vb, to)
        }

        fn rollback_point(
            &self,
            vb: ::model::VbId,
            to: ::model::Seqno,
        ) -> Result<::model::Seqno, $crate::StoreError> {
            self.inner.rollback_point(vb, to)
        }

        fn compact(
            &self,
            vb: ::model::VbId,
            keep: &mut dyn FnMut(&::model::Meta, &[u8]) -> $crate::Keep,
        ) -> Result<$crate::Compacted, $crate::StoreError> {
            self.inner.compact(vb, keep)
        }

        fn trim_history(
            &self,
            vb: ::model::VbId,
            limits: $crate::HistoryLimits,
            dead: &mut dyn FnMut(&::model::Meta, &[u8]) -> bool,
        ) -> Result<$crate::HistoryKept, $crate::StoreError> {
            self.inner.trim_history(vb, limits, dead)
        }

        fn may_have_history(&self) -> Result<bool, $crate::StoreError> {
            self.inner.may_have_history()
        }

        fn remove(&self, vbs: &[::model::VbId]) -> Result<(), $crate::StoreError> {
            self.inner.remove(vbs)
        }

        fn manifest(&self) -> Result<Option<Vec<u8>>, $crate::StoreError> {
            self.inner.manifest()
        }

        fn set_manifest(&self, text: &[u8]) -> Result<(), $crate::StoreError> {
            self.inner.set_manifest(text)
        }

        fn disk_usage(&self) -> Result<$crate::DiskUsage, $crate::StoreError> {
            self.inner.disk_usage()
        }
    };
}

/// Planned failure of a commit. Only `Unanswered` changes the inner store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The file system is full; later commits may succeed.
    NoSpace,
    /// An I/O error without damage to the store; later commits may succeed.
    Io,
    /// The commit succeeds, but returns the error of `Io`.
    Unanswered,
    /// The sync failed: this commit and all later ones return `Poisoned`.
    Sync,
}

/// A wrapper of any store, with planned failures of commits. Commits count from 0.
#[derive(Debug)]
pub struct FaultyStore<S> {
    inner: S,
    commits: AtomicUsize,
    removals: AtomicUsize,
    poisoned: AtomicBool,
    faults: Mutex<Vec<(std::ops::Range<usize>, Fault)>>,
    unreadable: AtomicBool,
    damaged: Mutex<Vec<VbId>>,
}

impl<S: KvStore> FaultyStore<S> {
    /// Creates a wrapper without faults.
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            commits: AtomicUsize::new(0),
            removals: AtomicUsize::new(0),
            poisoned: AtomicBool::new(false),
            faults: Mutex::default(),
            unreadable: AtomicBool::new(false),
            damaged: Mutex::default(),
        }
    }

    /// Returns the number of attempted commits.
    pub fn commits(&self) -> usize {
        self.commits.load(Ordering::SeqCst)
    }

    /// Returns the number of attempted removals.
    pub fn removals(&self) -> usize {
        self.removals.load(Ordering::SeqCst)
    }

    /// Makes the commits of `range` fail, counted from the first commit.
    pub fn fail_commits(&self, range: std::ops::Range<usize>, fault: Fault) {
        self.faults.lock().push((range, fault));
    }

    /// Makes the next `count` commits fail.
    pub fn fail_next(&self, count: usize, fault: Fault) {
        let next = self.commits();
        self.fail_commits(next..next.saturating_add(count), fault);
    }

    /// Removes all planned faults. A poisoned store stays poisoned.
    pub fn heal(&self) {
        self.faults.lock().clear();
    }

    /// Makes fetches, snapshots and scans return `Io`, or work again.
    pub fn set_unreadable(&self, unreadable: bool) {
        self.unreadable.store(unreadable, Ordering::SeqCst);
    }

    /// Makes fetches, snapshots, scans and rollback points of a vBucket return `Corrupt`.
    pub fn damage(&self, vb: VbId) {
        self.damaged.lock().push(vb);
    }

    fn check_damage(&self, vb: VbId, during: &'static str) -> Result<(), StoreError> {
        self.check_read(during)?;
        if self.damaged.lock().contains(&vb) {
            return Err(StoreError::new(ErrorKind::Corrupt, during).of(vb));
        }
        Ok(())
    }

    fn check_read(&self, during: &'static str) -> Result<(), StoreError> {
        if self.unreadable.load(Ordering::SeqCst) {
            return Err(StoreError::new(ErrorKind::Io, during).because("planned fault"));
        }
        Ok(())
    }

    fn check_write(&self, during: &'static str) -> Result<(), StoreError> {
        if self.poisoned.load(Ordering::SeqCst) {
            return Err(StoreError::new(ErrorKind::Poisoned, during));
        }
        Ok(())
    }
}

impl<S: KvStore> KvStore for FaultyStore<S> {
    fn load(&self) -> Result<Vec<LoadedVb>, StoreError> {
        self.inner.load()
    }

    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError> {
        let number = self.commits.fetch_add(1, Ordering::SeqCst);
        self.check_write("committing")?;
        let planned = self
            .faults
            .lock()
            .iter()
            .find(|(range, _)| range.contains(&number))
            .map(|plan| plan.1);
        let kind = match planned {
            None => return self.inner.commit(batches),
            Some(Fault::NoSpace) => ErrorKind::NoSpace,
            Some(Fault::Io) => ErrorKind::Io,
            Some(Fault::Unanswered) => {
                self.inner.commit(batches)?;
                ErrorKind::Io
            }
            Some(Fault::Sync) => {
                self.poisoned.store(true, Ordering::SeqCst);
                ErrorKind::Poisoned
            }
        };
        Err(StoreError::new(kind, "committing").because("planned fault"))
    }

    fn may_have(&self, vb: VbId, key: &[u8]) -> bool {
        self.inner.may_have(vb, key)
    }

    fn fetch(&self, vb: VbId, wants: &[Want<'_>]) -> Result<Vec<Option<Document>>, StoreError> {
        self.check_damage(vb, "fetching documents")?;
        self.inner.fetch(vb, wants)
    }

    fn may_have_large(&self) -> bool {
        self.inner.may_have_large()
    }

    fn snapshot(&self, vb: VbId) -> Result<Box<dyn Snapshot>, StoreError> {
        self.check_damage(vb, "opening a snapshot")?;
        self.inner.snapshot(vb)
    }

    fn snapshot_by_key(&self, vb: VbId) -> Result<Box<dyn Snapshot>, StoreError> {
        self.check_damage(vb, "opening a snapshot")?;
        self.inner.snapshot_by_key(vb)
    }

    fn rollback(&self, vb: VbId, to: Seqno) -> Result<VbRecord, StoreError> {
        self.check_write("rolling back")?;
        self.inner.rollback(vb, to)
    }

    fn rollback_point(&self, vb: VbId, to: Seqno) -> Result<Seqno, StoreError> {
        self.check_damage(vb, "looking for the way back")?;
        self.inner.rollback_point(vb, to)
    }

    fn compact(
        &self,
        vb: VbId,
        keep: &mut dyn FnMut(&Meta, &[u8]) -> Keep,
    ) -> Result<Compacted, StoreError> {
        self.check_write("compacting")?;
        self.inner.compact(vb, keep)
    }

    fn may_have_history(&self) -> Result<bool, StoreError> {
        self.inner.may_have_history()
    }

    fn trim_history(
        &self,
        vb: VbId,
        limits: HistoryLimits,
        dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
    ) -> Result<HistoryKept, StoreError> {
        self.check_write("trimming the history")?;
        self.inner.trim_history(vb, limits, dead)
    }

    fn remove(&self, vbs: &[VbId]) -> Result<(), StoreError> {
        self.removals.fetch_add(1, Ordering::SeqCst);
        self.check_write("removing")?;
        self.inner.remove(vbs)
    }

    fn manifest(&self) -> Result<Option<Vec<u8>>, StoreError> {
        self.inner.manifest()
    }

    fn set_manifest(&self, text: &[u8]) -> Result<(), StoreError> {
        self.check_write("keeping the manifest")?;
        self.inner.set_manifest(text)
    }

    fn disk_usage(&self) -> Result<DiskUsage, StoreError> {
        self.inner.disk_usage()
    }

    fn upkeep(&self) -> Upkeep {
        self.inner.upkeep()
    }

    fn close(&self) -> Result<(), StoreError> {
        self.inner.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemStore;
    use crate::suite::{document, put, try_put};

    #[test]
    fn faults_occur_as_planned() {
        let store = FaultyStore::new(MemStore::new());
        let vb = VbId(3);
        put(&store, vb, &[(document(1, "a", "1"), Seqno::ZERO)]);
        store.fail_next(1, Fault::NoSpace);
        let full = try_put(&store, vb, &[(document(2, "b", "1"), Seqno::ZERO)]).unwrap_err();
        assert_eq!(full.kind, ErrorKind::NoSpace);
        put(&store, vb, &[(document(2, "b", "1"), Seqno::ZERO)]);
        store.fail_next(1, Fault::Sync);
        for _ in 0..2 {
            let dead = try_put(&store, vb, &[(document(3, "c", "1"), Seqno::ZERO)]).unwrap_err();
            assert_eq!(dead.kind, ErrorKind::Poisoned);
        }
        assert_eq!(store.load().unwrap()[0].record.high_seqno, Seqno(2));
    }
}
