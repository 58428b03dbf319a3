//! The services that a member needs from its node, and their values.

use std::collections::BTreeMap;

use cluster::agreed::{Node, Seen};
use registry::BucketSettings;
use serde::{Deserialize, Serialize};

/// The clean stop of a node, in its data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CleanStop {
    /// Number of the start that ended.
    pub(crate) boot: u64,
    /// vBuckets whose copies have everything that they acknowledged when they were active, by the UUID of the bucket.
    pub(crate) complete: BTreeMap<String, Vec<u16>>,
}

/// Record of a member in its data directory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemberRecord {
    /// The newest state of etcd that the node has seen.
    pub seen: Seen,
    /// The last stop, if it was clean and nothing was stored since.
    pub stop: Option<CleanStop>,
    /// Number of the last start, counted from 1; 0 if it is unknown.
    pub starts: u64,
}

impl MemberRecord {
    /// Counts a start of `node`, which is as in etcd, and removes the record of a clean stop. Returns the node with the
    /// number of the start; with the former number if it is not on disk, since the next start would have the same.
    pub(crate) fn count_start(&self, host: &dyn Host, cluster: &str, node: Node) -> Node {
        let starts = self.starts.max(node.starts) + 1;
        let begun = Self {
            seen: self.seen,
            stop: None,
            starts,
        };
        let kept = host.keep_record(cluster, begun);
        let starts = kept.map_or(self.starts, |()| starts);
        Node { starts, ..node }
    }
}

/// Reason why a bucket was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketNotMade {
    /// The reason, one line.
    pub reason: String,
    /// Whether the disk has no space.
    pub no_space: bool,
}

impl From<String> for BucketNotMade {
    fn from(reason: String) -> Self {
        let no_space = false;
        Self { reason, no_space }
    }
}

/// Services that a member needs from its node. Calls may block for the disk.
pub trait Host: Send + Sync {
    /// Makes a bucket without copies, with this UUID (32 hex digits) and the collections of a manifest, in the form in
    /// which nodes keep it; does nothing if it exists.
    ///
    /// # Errors
    /// See [`BucketNotMade`].
    fn make_bucket(
        &self,
        uuid: &str,
        settings: BucketSettings,
        manifest: Option<&str>,
    ) -> Result<(), BucketNotMade>;

    /// Changes the settings of a bucket.
    ///
    /// # Errors
    /// The reason why it keeps its former settings.
    fn adjust_bucket(&self, settings: BucketSettings) -> Result<(), String>;

    /// Removes a bucket.
    ///
    /// # Errors
    /// The reason why it was not removed.
    fn drop_bucket(&self, name: &str) -> Result<(), String>;

    /// Stores the record for the cluster with this UUID.
    ///
    /// # Errors
    /// The reason why it is not on disk.
    fn keep_record(&self, cluster: &str, record: MemberRecord) -> Result<(), String>;

    /// Returns the stored record for that cluster.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    fn kept_record(&self, cluster: &str) -> Result<MemberRecord, String>;

    /// Records that the node's data belongs to a node of a cluster, by the name and the UUID (32 hex digits)
    /// of the cluster.
    ///
    /// # Errors
    /// The reason why it was not recorded.
    fn note_cluster(&self, name: &str, uuid: &str) -> Result<(), String>;

    /// Admits logins of other nodes with the secret of the cluster; called once.
    fn admit_peers(&self, secret: &str);
}
