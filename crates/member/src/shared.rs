//! State that the threads of a member share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bucket::FlusherState;
use cluster::agreed::{ClusterId, Node, Seen, View};
use cluster::{BucketId, NodeId};
use etcd::{Etcd, Problem};
use parking_lot::{Mutex, RwLock};
use registry::cluster::MemberStatus;
use registry::{BucketSettings, Registry};
use replication::{LinkProblems, PeerThreads};
use tls::PeerTls;

use crate::copies::HostedTable;
use crate::hosted::Hosted;
use crate::pause::Pause;
use crate::trouble::Trouble;

/// Reason why a bucket was not made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotMade {
    /// The reason, one line.
    pub reason: String,
    /// Whether the disk has no space.
    pub no_space: bool,
}

impl From<String> for NotMade {
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
    /// See [`NotMade`].
    fn make_bucket(
        &self,
        uuid: &str,
        settings: BucketSettings,
        manifest: Option<&str>,
    ) -> Result<(), NotMade>;

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

    /// Stores the state of etcd that the node has seen, for the cluster with this UUID.
    ///
    /// # Errors
    /// The reason why it is not on disk.
    fn keep_seen(&self, cluster: &str, seen: Seen) -> Result<(), String>;

    /// Returns the stored state for that cluster.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    fn kept_seen(&self, cluster: &str) -> Result<Seen, String>;

    /// Records that the node's data belongs to a node of a cluster, by the name and the UUID (32 hex digits)
    /// of the cluster.
    ///
    /// # Errors
    /// The reason why it was not recorded.
    fn note_cluster(&self, name: &str, uuid: &str) -> Result<(), String>;

    /// Admits logins of other nodes with the secret of the cluster; called once.
    fn admit_peers(&self, secret: &str);
}

/// State that the threads of a member share.
pub(crate) struct Shared {
    pub(crate) node: Arc<Registry>,
    pub(crate) host: Arc<dyn Host>,
    pub(crate) etcd: Etcd,
    pub(crate) cluster: ClusterId,
    pub(crate) me: NodeId,
    /// Description with which this node joined the cluster.
    pub(crate) described: Node,
    pub(crate) boot: u64,
    /// Secret with which nodes log in to each other.
    pub(crate) secret: String,
    /// TLS between the nodes.
    pub(crate) tls: Option<Arc<PeerTls>>,
    pub(crate) table: HostedTable,
    /// The status that the driver published last.
    pub(crate) status: RwLock<MemberStatus>,
    /// Revisions up to which nodes have applied the agreed state, as they reported.
    pub(crate) taken: Mutex<BTreeMap<NodeId, u64>>,
    /// Revision of the applied users, 0 after a restore of etcd.
    pub(crate) users: AtomicU64,
    pub(crate) pause: Pause,
    /// Requests that etcd did not carry out.
    pub(crate) trouble: Mutex<Trouble>,
    /// Reasons why other nodes are not followed.
    pub(crate) problems: Arc<LinkProblems>,
    /// Threads of the connections for streams of other nodes.
    pub(crate) peer_threads: Arc<PeerThreads>,
    /// Whether a bucket of the cluster cannot be made here for lack of space.
    pub(crate) no_space: AtomicBool,
    /// Buckets of the cluster that cannot be made here, for whatever reason.
    pub(crate) unmade: Mutex<BTreeSet<BucketId>>,
    /// Whether the member is told to stop: nothing is followed any more.
    pub(crate) stopped: AtomicBool,
}

/// Returns host and port of another node; `None` if it has no such port.
pub(crate) fn reach(node: &Node, over_tls: bool) -> Option<(String, u16)> {
    let inside = &node.inside;
    let port = if over_tls { inside.kv_tls? } else { inside.kv };
    Some((inside.host.clone(), port))
}

impl Shared {
    /// Returns the time of the node's clock.
    pub(crate) fn now_ms(&self) -> u64 {
        self.node.clock.mono_ns() / 1_000_000
    }

    /// Whether the member is told to stop.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Records that etcd did not carry out a request, if that is a failure.
    pub(crate) fn note_problem(&self, problem: &Problem) {
        if problem.watch_is_late() {
            tracing::debug!(reason = %problem, "a watch of etcd is begun again");
            return;
        }
        let now_ms = self.now_ms();
        self.trouble.lock().note(problem.to_string(), now_ms);
    }

    /// A node has taken over everything up to a revision.
    pub(crate) fn note_taken(&self, node: NodeId, revision: u64) {
        self.taken.lock().insert(node, revision);
    }

    /// Returns the revision up to which this node has applied everything.
    pub(crate) fn taken_here(&self) -> u64 {
        self.taken.lock().get(&self.me).copied().unwrap_or(0)
    }

    /// Returns the newest state of etcd that this node has read.
    pub(crate) fn view(&self) -> Arc<View> {
        Arc::clone(&self.status.read().view)
    }

    /// Whether this node and every other one that runs have applied everything up to a revision.
    pub(crate) fn all_have(&self, revision: u64) -> bool {
        let view = self.view();
        let taken = self.taken.lock();
        let has = |node| taken.get(node).is_some_and(|taken| *taken >= revision);
        view.revision >= revision && view.alive.keys().chain([&self.me]).all(has)
    }

    /// Whether a commit of any bucket fails because the disk is full or read-only, or there is no space for a bucket.
    pub(crate) fn has_full_disk(&self) -> bool {
        let unwritable = |hosted: &Arc<Hosted>| hosted.served.bucket.is_disk_unwritable();
        self.no_space.load(Ordering::Relaxed) || self.table.all().iter().any(unwritable)
    }

    /// Returns the buckets that have no memory for changes of other nodes.
    pub(crate) fn starved(&self) -> BTreeSet<BucketId> {
        let all = self.table.all().into_iter();
        let starved = all.filter(|hosted| hosted.served.bucket.is_starved());
        starved.map(|hosted| hosted.id).collect()
    }

    /// Whether a sync of any bucket failed.
    pub(crate) fn has_dead_disk(&self) -> bool {
        let failed =
            |hosted: &Arc<Hosted>| hosted.served.bucket.flusher_state() == FlusherState::Failed;
        self.table.all().iter().any(failed)
    }
}
