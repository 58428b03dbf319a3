//! Figures. All are kept with every change, none is computed by looking at documents.

use std::ops::AddAssign;

use super::VBucket;
use crate::checkpoint::CheckpointStats;

/// Defines figures that can be added up.
macro_rules! summed {
    ($(#[$of:meta])* pub struct $name:ident { $($(#[$is:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$of])*
        pub struct $name { $($(#[$is])* pub $field: $type,)* }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                $(self.$field += other.$field;)*
            }
        }
    };
}

summed! {
/// Figures of a vBucket, beside those of its checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VbStats {
    /// Live documents.
    pub items: u64,
    /// Tombstones kept in memory.
    pub tombstones: u64,
    /// Live documents whose value is only in the store.
    pub non_resident: u64,
    /// Bytes of everything, see [`VBucket::memory_bytes`].
    pub memory_bytes: usize,
    /// Bytes of the documents that the table holds, as allocated.
    pub document_bytes: usize,
    /// Bytes of the table's own array.
    pub table_bytes: usize,
    /// Locked documents, including locks that ran out unnoticed.
    pub locks: u64,
    /// Reads served.
    pub ops_get: u64,
    /// Documents created.
    pub ops_create: u64,
    /// Documents changed.
    pub ops_update: u64,
    /// Documents deleted by clients.
    pub ops_delete: u64,
    /// Documents whose expiry came.
    pub expired: u64,
    /// Values, or whole documents, dropped from memory.
    pub evicted: u64,
    /// Operations that had to wait for the store.
    pub fetches: u64,
    /// Documents from elsewhere that were refused, since what was here is newer.
    pub sets_lost: u64,
    /// The same of deletions.
    pub deletes_lost: u64,
    /// Microseconds between the CAS of each change from elsewhere and the clock, summed.
    pub drift_us: u64,
    /// How many changes these are.
    pub drift_count: u64,
    /// Of them, those whose CAS was too far ahead of the clock, see [`DriftLimits`](crate::DriftLimits).
    pub drift_ahead: u64,
    /// Those whose CAS was too far behind.
    pub drift_behind: u64,
    /// Durable writes that wait to be decided.
    pub prepares: u64,
    /// Durable writes that were prepared.
    pub sync_accepted: u64,
    /// Those that were committed.
    pub sync_committed: u64,
    /// Those that were given up.
    pub sync_aborted: u64,
}
}

/// Figures of the hash table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashStats {
    /// Slots of the table.
    pub slots: usize,
    /// Documents and tombstones in it.
    pub entries: usize,
    /// How often it grew.
    pub resizes: u64,
}

impl VBucket {
    /// Live documents, including those whose expiry has come unnoticed. O(1).
    pub fn items(&self) -> u64 {
        let dead = self.collections.dead().items;
        self.table.counts().items.saturating_sub(dead)
    }

    /// Figures. O(1).
    pub fn stats(&self) -> VbStats {
        let table = self.table.counts();
        let counters = &self.counters;
        let foreign = counters.foreign.as_deref().copied().unwrap_or_default();
        VbStats {
            items: self.items(),
            tombstones: table.tombstones,
            non_resident: table.non_resident,
            memory_bytes: self.memory_bytes(),
            document_bytes: table.document_bytes,
            table_bytes: self.table.array_bytes(),
            locks: self.locks.len() as u64,
            ops_get: counters.ops_get,
            ops_create: counters.ops_create,
            ops_update: counters.ops_update,
            ops_delete: counters.ops_delete,
            expired: counters.expired,
            evicted: counters.evicted,
            fetches: counters.fetches,
            sets_lost: foreign.sets_lost,
            deletes_lost: foreign.deletes_lost,
            drift_us: foreign.drift.total_us,
            drift_count: foreign.drift.count,
            drift_ahead: foreign.drift.ahead,
            drift_behind: foreign.drift.behind,
            prepares: self.durability.len() as u64,
            sync_accepted: self.durability.counts.accepted,
            sync_committed: self.durability.counts.committed,
            sync_aborted: self.durability.counts.aborted,
        }
    }

    /// Figures of the checkpoints. O(1).
    pub fn checkpoint_stats(&self) -> CheckpointStats {
        self.checkpoints.stats()
    }

    /// Buckets of the hash table by how many documents they have, of the seven that fit. Cost: a
    /// look at every bucket, some 3 ns each.
    pub fn bucket_fill(&self) -> [u64; 8] {
        self.table.bucket_fill()
    }

    /// Figures of the hash table. O(1).
    pub fn hash_stats(&self) -> HashStats {
        HashStats {
            slots: self.table.slots(),
            entries: self.table.len(),
            resizes: self.table.resizes(),
        }
    }
}
