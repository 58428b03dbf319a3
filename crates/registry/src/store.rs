//! The choice between the two stores, made in one place.

use std::collections::BTreeMap;

use model::{Document, Meta, Seqno, VbId, VbRecord};
use storage::{
    CommitInfo, Compacted, DamagedRow, DiskStore, DiskUsage, DocumentRequest, HistoryKept,
    HistoryLimits, Keep, KeyRange, KvStore, MemStore, Snapshot, StoreError, VbBatch, WorkTotals,
};

/// The store of a bucket's documents.
pub enum Store {
    /// On disk, in a directory.
    Disk(Box<DiskStore>),
    /// In memory, gone with the process.
    Memory(MemStore),
}

/// Implements methods that call the same method of the store in use: `name(argument: Type, ...) -> Result;`.
macro_rules! of_either {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
        fn $name(&self, $($argument: $type),*) -> $result {
            match self {
                Store::Disk(store) => store.$name($($argument),*),
                Store::Memory(store) => store.$name($($argument),*),
            }
        }
    )*};
}

impl KvStore for Store {
    of_either! {
        load() -> Result<BTreeMap<VbId, VbRecord>, StoreError>;
        commit(batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError>;
        fetch(vb: VbId, wants: &[DocumentRequest<'_>]) -> Result<Vec<Option<Document>>, StoreError>;
        may_have(vb: VbId, key: &[u8]) -> bool;
        may_have_large() -> bool;
        snapshot(vb: VbId) -> Result<Box<dyn Snapshot>, StoreError>;
        snapshot_by_key(vb: VbId) -> Result<Box<dyn Snapshot>, StoreError>;
        rollback(vb: VbId, to: Seqno) -> Result<VbRecord, StoreError>;
        rollback_point(vb: VbId, to: Seqno) -> Result<Seqno, StoreError>;
        compact(vb: VbId, keep: &mut dyn FnMut(&Meta, &[u8]) -> Keep) -> Result<Compacted, StoreError>;
        erase(
            vb: VbId,
            ranges: &[KeyRange],
            is_dead: &mut dyn FnMut(&Meta, &[u8]) -> bool
        ) -> Result<u64, StoreError>;
        trim_history(
            vb: VbId,
            limits: HistoryLimits,
            dead: &mut dyn FnMut(&Meta, &[u8]) -> bool
        ) -> Result<HistoryKept, StoreError>;
        may_have_history() -> Result<bool, StoreError>;
        remove(vbs: &[VbId]) -> Result<(), StoreError>;
        manifest() -> Result<Option<Vec<u8>>, StoreError>;
        set_manifest(text: &[u8]) -> Result<(), StoreError>;
        epoch(vb: VbId) -> u64;
        summary() -> Option<Vec<u8>>;
        set_summary(text: &[u8]) -> Result<(), StoreError>;
        locate(vb: VbId, after: Seqno) -> DamagedRow;
        disk_usage() -> Result<DiskUsage, StoreError>;
        upkeep() -> WorkTotals;
        close() -> Result<(), StoreError>;
    }
}
