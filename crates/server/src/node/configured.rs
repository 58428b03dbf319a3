//! Configured settings of buckets: the defaults of settings that management clients did not change.

use registry::{AutoCompaction, BucketConfig, BucketKind, BucketSettings, ClusterSettings};

use crate::config::NodeConfig;

/// Age at which tombstones of buckets without a disk are purged, seconds.
const PURGE_AGE_EPHEMERAL_S: u64 = 60;

/// Configured settings of buckets.
pub(super) struct Configured {
    buckets: Vec<BucketConfig>,
    /// Default age at which buckets with a disk purge tombstones, seconds.
    pub(super) purge_age_s: u64,
}

impl Configured {
    pub(super) fn new(config: &NodeConfig) -> Self {
        Self {
            buckets: config.buckets.clone(),
            purge_age_s: config.purge_age_s,
        }
    }

    /// Returns the configuration of a bucket; `None` for a bucket that was created while a node ran.
    pub(super) fn bucket(&self, name: &str) -> Option<&BucketConfig> {
        self.buckets.iter().find(|one| one.name == name)
    }

    /// Returns the age at which a bucket purges tombstones, seconds.
    pub(super) fn purge_age_s(&self, bucket: &BucketSettings, node: &ClusterSettings) -> u64 {
        let of = |set: &Option<AutoCompaction>| set.as_ref().and_then(|set| set.purge_s);
        let set = of(&bucket.auto_compaction).or_else(|| of(&node.auto_compaction));
        match bucket.bucket.kind {
            BucketKind::Couchbase => set.unwrap_or(self.purge_age_s),
            BucketKind::Ephemeral => PURGE_AGE_EPHEMERAL_S,
        }
    }
}
