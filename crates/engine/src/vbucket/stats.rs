//! Statistics. All are updated with every change; none reads documents.

use std::ops::AddAssign;

use super::VBucket;
use crate::checkpoint::CheckpointStats;

/// Defines a struct of statistics that can be added up.
macro_rules! summed {
    ($(#[$of:meta])* pub struct $name:ident { $($(#[$is:meta])* pub $field:ident: $type:ty,)* }) => {
        $(#[$of])*
        pub struct $name { $($(#[$is])* pub $field: $type,)* }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                // Foreign CAS values decide how large a drift is.
                $(self.$field = self.$field.saturating_add(other.$field);)*
            }
        }
    };
}

summed! {
/// Statistics of a vBucket, without those of its checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VbStats {
    /// Live documents.
    pub items: u64,
    /// Tombstones kept in memory.
    pub tombstones: u64,
    /// Live documents whose value is only in the store.
    pub non_resident: u64,
    /// Total memory in bytes, see [`VBucket::memory_bytes`].
    pub memory_bytes: usize,
    /// Allocated bytes of the documents in the table.
    pub document_bytes: usize,
    /// Bytes of the table's array.
    pub table_bytes: usize,
    /// Locked documents, including expired locks that were not dropped yet.
    pub locks: u64,
    /// Reads served.
    pub ops_get: u64,
    /// Documents created.
    pub ops_create: u64,
    /// Documents changed.
    pub ops_update: u64,
    /// Documents deleted by clients.
    pub ops_delete: u64,
    /// Documents that expired.
    pub expired: u64,
    /// Values or whole documents evicted.
    pub evicted: u64,
    /// Operations that had to wait for the store.
    pub fetches: u64,
    /// Foreign documents that lost against the local version.
    pub sets_lost: u64,
    /// Foreign deletions that lost against the local version.
    pub deletes_lost: u64,
    /// Sum of the distances between the CAS of foreign changes and the clock, in microseconds.
    pub drift_us: u64,
    /// Number of these changes.
    pub drift_count: u64,
    /// Those of them whose CAS was too far ahead of the clock, see
    /// [`DriftLimits`](crate::DriftLimits).
    pub drift_ahead: u64,
    /// Those of them whose CAS was too far behind the clock.
    pub drift_behind: u64,
    /// Undecided durable writes.
    pub prepares: u64,
    /// Durable writes that were prepared.
    pub sync_accepted: u64,
    /// Durable writes that were committed.
    pub sync_committed: u64,
    /// Durable writes that were aborted.
    pub sync_aborted: u64,
}
}

/// Statistics of the hash table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HashStats {
    /// Slots of the table.
    pub slots: usize,
    /// Documents and tombstones in it.
    pub entries: usize,
    /// Number of times that it grew.
    pub resizes: u64,
}

impl VBucket {
    /// Number of live documents, including expired ones that are not tombstones yet. O(1).
    pub fn items(&self) -> u64 {
        let dead = self.collections.dead().items;
        self.table.counts().items.saturating_sub(dead)
    }

    /// Statistics of the vBucket. O(1).
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

    /// Statistics of the checkpoints. O(1).
    pub fn checkpoint_stats(&self) -> CheckpointStats {
        self.checkpoints.stats()
    }

    /// Number of buckets of the hash table by their number of documents, of the seven that fit.
    /// Cost: reads every bucket, some 3 ns each.
    pub fn bucket_fill(&self) -> [u64; 8] {
        self.table.bucket_fill()
    }

    /// Statistics of the hash table. O(1).
    pub fn hash_stats(&self) -> HashStats {
        HashStats {
            slots: self.table.slots(),
            entries: self.table.len(),
            resizes: self.table.resizes(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::VbStats;

    #[test]
    fn sums_of_huge_drifts_stay_at_the_maximum() {
        let huge = VbStats {
            drift_us: u64::MAX,
            ..VbStats::default()
        };
        let mut sum = huge;
        sum += huge;
        assert_eq!(sum, huge);
    }
}
