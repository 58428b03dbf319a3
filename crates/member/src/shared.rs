//! What the threads of a member share.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bucket::FlusherState;
use cluster::NodeId;
use cluster::agreed::{ClusterId, Node, Seen, View};
use etcd::Etcd;
use parking_lot::{Mutex, RwLock};
use registry::cluster::MemberStatus;
use registry::{BucketSettings, Registry};
use tls::PeerTls;

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

    /// Keeps what the node has seen of the cluster of this UUID.
    ///
    /// # Errors
    /// Why it is not on disk.
    fn keep_seen(&self, cluster: &str, seen: Seen) -> Result<(), String>;

    /// What was kept of that cluster.
    ///
    /// # Errors
    /// Why it cannot be read.
    fn kept_seen(&self, cluster: &str) -> Result<Seen, String>;

    /// Notes that the node's data is that of a node of a cluster, by its name and its UUID (32 hex digits).
    ///
    /// # Errors
    /// It is not written down.
    fn note_cluster(&self, name: &str, uuid: &str) -> Result<(), String>;

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
    /// What the node told of itself when it joined.
    pub(crate) described: Node,
    pub(crate) boot: u64,
    /// With this nodes log in to each other.
    pub(crate) secret: String,
    /// TLS between the nodes.
    pub(crate) tls: Option<Arc<PeerTls>>,
    pub(crate) table: Table,
    pub(crate) view: RwLock<Arc<View>>,
    pub(crate) status: Mutex<MemberStatus>,
    /// Up to which revision nodes have taken over what was agreed on, as far as they told.
    pub(crate) taken: Mutex<BTreeMap<NodeId, u64>>,
    /// Whether the member is told to stop: nothing is followed any more.
    pub(crate) stopped: AtomicBool,
}

/// Host and port at which another node is reached; `None` for one that has no such port.
pub(crate) fn reach(node: &Node, over_tls: bool) -> Option<(String, u16)> {
    let inside = &node.inside;
    let port = if over_tls { inside.kv_tls? } else { inside.kv };
    Some((inside.host.clone(), port))
}

impl Shared {
    /// The time of the node's clock.
    pub(crate) fn now_ms(&self) -> u64 {
        self.node.clock.mono_ns() / 1_000_000
    }

    /// Whether the member is told to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// A node has taken over everything up to a revision.
    pub(crate) fn note_taken(&self, node: NodeId, revision: u64) {
        self.taken.lock().insert(node, revision);
    }

    /// The same of this node.
    pub(crate) fn taken_here(&self) -> u64 {
        self.taken.lock().get(&self.me).copied().unwrap_or(0)
    }

    /// Whether every node that runs has taken over everything up to a revision.
    pub(crate) fn all_have(&self, revision: u64) -> bool {
        let view = self.view.read().clone();
        let taken = self.taken.lock();
        let has = |node| taken.get(node).is_some_and(|taken| *taken >= revision);
        view.revision >= revision && view.alive.keys().all(has)
    }

    /// Whether a commit of some bucket finds no space.
    pub(crate) fn has_full_disk(&self) -> bool {
        let full = |hosted: &Arc<Hosted>| hosted.served.bucket.is_disk_full();
        self.table.all().iter().any(full)
    }

    /// Whether a sync of some bucket failed.
    pub(crate) fn has_dead_disk(&self) -> bool {
        let failed =
            |hosted: &Arc<Hosted>| hosted.served.bucket.flusher_state() == FlusherState::Failed;
        self.table.all().iter().any(failed)
    }
}
