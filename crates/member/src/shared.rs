//! What the threads of a member share.

use std::sync::Arc;

use bucket::FlusherState;
use cluster::NodeId;
use cluster::agreed::{ClusterId, View};
use etcd::Etcd;
use parking_lot::{Mutex, RwLock};
use registry::cluster::MemberStatus;
use registry::{BucketSettings, Registry};

use crate::copies::Table;
use crate::hosted::Hosted;

/// What a member wants of its node. Calls may block for the disk.
pub trait Host: Send + Sync {
    /// Makes a bucket without copies, of this UUID (32 hex digits); does nothing if it is there.
    ///
    /// # Errors
    /// Why there is none.
    fn make_bucket(&self, uuid: &str, settings: BucketSettings) -> Result<(), String>;

    /// Gives a bucket other settings.
    ///
    /// # Errors
    /// Why it has those that it had.
    fn adjust_bucket(&self, settings: BucketSettings) -> Result<(), String>;

    /// Removes a bucket.
    ///
    /// # Errors
    /// Why it is still there.
    fn drop_bucket(&self, name: &str) -> Result<(), String>;

    /// Lets other nodes log in with the secret of the cluster; called once.
    fn admit_peers(&self, secret: &str);
}

/// What the threads of a member share.
pub(crate) struct Shared {
    pub(crate) node: Arc<Registry>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) etcd: Etcd,
    pub(crate) cluster: ClusterId,
    pub(crate) me: NodeId,
    pub(crate) boot: u64,
    /// With this nodes log in to each other.
    pub(crate) secret: String,
    pub(crate) table: Table,
    pub(crate) view: RwLock<Arc<View>>,
    pub(crate) status: Mutex<MemberStatus>,
}

impl Shared {
    /// The time of the node's clock.
    pub(crate) fn now_ms(&self) -> u64 {
        self.node.clock.mono_ns() / 1_000_000
    }

    /// Whether a sync of some bucket failed.
    pub(crate) fn has_dead_disk(&self) -> bool {
        let failed =
            |hosted: &Arc<Hosted>| hosted.served.bucket.flusher_state() == FlusherState::Failed;
        self.table.all().iter().any(failed)
    }
}
