//! The choice between the two stores, made in one place.

use model::{Meta, Seqno, VbId, VbRecord};
use storage::{
    CommitInfo, Compacted, DamagedRow, DiskStore, DiskUsage, HistoryKept, HistoryLimits, Keep,
    KvStore, LoadedVb, MemStore, Snapshot, StoreError, Upkeep, VbBatch, Want,
};

/// Tests make it fail.
#[cfg(feature = "testing")]
type InMemory = storage::FaultyStore<MemStore>;
#[cfg(not(feature = "testing"))]
type InMemory = MemStore;

/// Where the documents of a bucket live.
pub enum Store {
    /// In a directory.
    Disk(Box<DiskStore>),
    /// In memory, gone with the process.
    Memory(InMemory),
}

impl Store {
    /// An empty store in memory.
    pub fn in_memory() -> Self {
        #[cfg(feature = "testing")]
        return Self::Memory(storage::FaultyStore::new(MemStore::new()));
        #[cfg(not(feature = "testing"))]
        Self::Memory(MemStore::new())
    }

    /// Makes reads fail, or work again.
    #[cfg(feature = "testing")]
    pub fn set_unreadable(&self, unreadable: bool) {
        match self {
            Self::Memory(store) => store.set_unreadable(unreadable),
            Self::Disk(_) => unreachable!("tests plant faults in memory"),
        }
    }
}

macro_rules! either {
    ($self:ident, $store:ident => $call:expr) => {
        match $self {
            Store::Disk($store) => $call,
            Store::Memory($store) => $call,
        }
    };
}

impl KvStore for Store {
    fn load(&self) -> Result<Vec<LoadedVb>, StoreError> {
        either!(self, store => store.load())
    }

    fn commit(&self, batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError> {
        either!(self, store => store.commit(batches))
    }

    fn fetch(
        &self,
        vb: VbId,
        wants: &[Want<'_>],
    ) -> Result<Vec<Option<model::Document>>, StoreError> {
        either!(self, store => store.fetch(vb, wants))
    }

    fn may_have_large(&self) -> bool {
        either!(self, store => store.may_have_large())
    }

    fn snapshot(&self, vb: VbId) -> Result<Box<dyn Snapshot>, StoreError> {
        either!(self, store => store.snapshot(vb))
    }

    fn rollback(&self, vb: VbId, to: Seqno) -> Result<VbRecord, StoreError> {
        either!(self, store => store.rollback(vb, to))
    }

    fn compact(
        &self,
        vb: VbId,
        keep: &mut dyn FnMut(&Meta, &[u8]) -> Keep,
    ) -> Result<Compacted, StoreError> {
        either!(self, store => store.compact(vb, keep))
    }

    fn trim_history(
        &self,
        vb: VbId,
        limits: HistoryLimits,
        dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
    ) -> Result<HistoryKept, StoreError> {
        either!(self, store => store.trim_history(vb, limits, dead))
    }

    fn may_have_history(&self) -> Result<bool, StoreError> {
        either!(self, store => store.may_have_history())
    }

    fn remove(&self, vbs: &[VbId]) -> Result<(), StoreError> {
        either!(self, store => store.remove(vbs))
    }

    fn manifest(&self) -> Result<Option<Vec<u8>>, StoreError> {
        either!(self, store => store.manifest())
    }

    fn set_manifest(&self, text: &[u8]) -> Result<(), StoreError> {
        either!(self, store => store.set_manifest(text))
    }

    fn locate(&self, vb: VbId, after: Seqno, high: Seqno) -> DamagedRow {
        either!(self, store => store.locate(vb, after, high))
    }

    fn disk_usage(&self) -> Result<DiskUsage, StoreError> {
        either!(self, store => store.disk_usage())
    }

    fn upkeep(&self) -> Upkeep {
        either!(self, store => store.upkeep())
    }

    fn close(&self) -> Result<(), StoreError> {
        either!(self, store => store.close())
    }
}
