//! The services that a member needs from its node, and their values.

use std::collections::BTreeMap;

use cluster::agreed::Seen;
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

    /// Stores the state of etcd that the node has seen, for the cluster with this UUID, and after a clean stop of the
    /// node the copies that are complete.
    ///
    /// # Errors
    /// The reason why it is not on disk.
    fn keep_seen(&self, cluster: &str, seen: Seen, stop: Option<CleanStop>) -> Result<(), String>;

    /// Returns the stored state for that cluster.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    fn kept_seen(&self, cluster: &str) -> Result<(Seen, Option<CleanStop>), String>;

    /// Records that the node's data belongs to a node of a cluster, by the name and the UUID (32 hex digits)
    /// of the cluster.
    ///
    /// # Errors
    /// The reason why it was not recorded.
    fn note_cluster(&self, name: &str, uuid: &str) -> Result<(), String>;

    /// Admits logins of other nodes with the secret of the cluster; called once.
    fn admit_peers(&self, secret: &str);
}
