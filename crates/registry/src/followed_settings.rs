//! Settings that a bucket takes from the bucket that it follows.

use model::DurabilityLevel;

use crate::settings::{BucketKind, BucketSettings};

impl BucketSettings {
    /// Converts these settings of the active node into those of a node that follows it and has `own`. Each node keeps
    /// its own name, quota and kind of bucket. A bucket without a disk takes no history, no compaction, and no
    /// durability level that waits for a disk.
    #[must_use]
    pub fn followed_by(mut self, own: &Self) -> Self {
        let disk = own.bucket.kind == BucketKind::Couchbase;
        let level = self.bucket.durability_min;
        self.bucket = own.bucket.clone();
        self.bucket.durability_min = level;
        if !disk {
            self.bucket.durability_min = level.map(|level| level.min(DurabilityLevel::Majority));
            self.history = own.history;
            self.auto_compaction = None;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auto_compaction::AutoCompaction;
    use crate::settings::{BucketConfig, EvictionPolicy, HistorySettings};

    fn settings(kind: BucketKind) -> BucketSettings {
        BucketConfig {
            name: "shop".into(),
            quota_bytes: 100 << 20,
            kind,
            eviction: EvictionPolicy::None,
            durability_min: None,
            vbuckets: Some(128),
        }
        .into()
    }

    #[test]
    fn a_bucket_without_a_disk_takes_nothing_that_needs_one() {
        let mut active = settings(BucketKind::Couchbase);
        active.bucket.quota_bytes = 1;
        active.bucket.durability_min = Some(DurabilityLevel::PersistToMajority);
        active.max_ttl_s = 7;
        active.history = HistorySettings {
            magma: true,
            ..HistorySettings::default()
        };
        active.auto_compaction = Some(AutoCompaction::default());

        let disk = settings(BucketKind::Couchbase);
        let mut expected = active.clone();
        expected.bucket.quota_bytes = disk.bucket.quota_bytes;
        assert_eq!(active.clone().followed_by(&disk), expected);

        let memory = settings(BucketKind::Ephemeral);
        let mut expected = memory.clone();
        expected.bucket.durability_min = Some(DurabilityLevel::Majority);
        expected.max_ttl_s = 7;
        assert_eq!(active.followed_by(&memory), expected);
    }
}
