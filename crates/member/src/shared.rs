//! State that the threads of a member share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use bucket::FlusherState;
use cluster::agreed::{ClusterId, Node, View};
use cluster::{BucketId, NodeId};
use etcd::{Etcd, Problem};
use parking_lot::{Mutex, RwLock};
use registry::Registry;
use registry::cluster::MemberStatus;
use replication::{LinkProblems, PeerThreads};
use tls::PeerTls;

use crate::copies::HostedTable;
use crate::etcd_failures::EtcdFailures;
use crate::host::Host;
use crate::hosted::Hosted;
use crate::pause::Pause;

/// Report of a process that another one replaced.
pub(crate) const REPLACED: &str = "another process runs under this node's number, maybe on a copy of the data directory: this one serves nothing any more, end it";

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
    pub(crate) etcd_failures: Mutex<EtcdFailures>,
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
        self.etcd_failures.lock().note(problem.to_string(), now_ms);
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
