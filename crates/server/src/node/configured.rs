//! What is configured of buckets: what holds where management clients set nothing else.

use registry::{AutoCompaction, BucketConfig, BucketKind, BucketSettings, ClusterSettings};

use crate::config::NodeConfig;

/// Age at which tombstones of buckets without a disk are purged.
const PURGE_AGE_EPHEMERAL_S: u64 = 60;

/// What is configured of buckets.
pub(super) struct Configured {
    buckets: Vec<BucketConfig>,
    /// Age at which buckets with a disk purge tombstones where nothing else was set, seconds.
    pub(super) purge_age_s: u64,
}

impl Configured {
    pub(super) fn new(config: &NodeConfig) -> Self {
        Self {
            buckets: config.buckets.clone(),
            purge_age_s: config.purge_age_s,
        }
    }

    /// A bucket as it is configured; `None` for one that was made while a node ran.
    pub(super) fn bucket(&self, name: &str) -> Option<&BucketConfig> {
        self.buckets.iter().find(|one| one.name == name)
    }

    /// The age at which a bucket purges tombstones, seconds.
    pub(super) fn purge_age_s(&self, bucket: &BucketSettings, node: &ClusterSettings) -> u64 {
        let of = |set: &Option<AutoCompaction>| set.as_ref().and_then(|set| set.purge_s);
        let set = of(&bucket.auto_compaction).or_else(|| of(&node.auto_compaction));
        match bucket.bucket.kind {
            BucketKind::Couchbase => set.unwrap_or(self.purge_age_s),
            BucketKind::Ephemeral => PURGE_AGE_EPHEMERAL_S,
        }
    }
}
