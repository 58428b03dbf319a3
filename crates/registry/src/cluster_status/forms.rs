//! The parts of the status of a cluster, as JSON shows them. What an older node does not report is read as empty.

use std::collections::{BTreeMap, BTreeSet};

use cluster::agreed::Address;
use serde::{Deserialize, Serialize};

/// Status of the cluster, as one node sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterStatus {
    /// Name of the cluster.
    pub cluster: String,
    /// Epoch of the cluster; an operator raises it.
    pub epoch: u64,
    /// Revision of etcd that this node has seen.
    pub revision: u64,
    /// Name of the node that reports this status.
    pub node: String,
    /// Name of the node that runs the controller, if it is known.
    pub controller: Option<String>,
    /// Time since etcd last answered, ms.
    pub etcd_silent_ms: u64,
    /// Why etcd did not carry out a request of the reporting node in the last seconds.
    pub etcd_problem: Option<String>,
    /// Time that is left of the reporting node's lease, ms: so long the node may serve without etcd.
    pub lease_left_ms: u64,
    /// True if etcd holds an older state than the reporting node has seen. etcd was restored from a backup, and the
    /// node does not follow it.
    pub etcd_went_back: bool,
    /// The newest epoch that the reporting node has seen, also before its last start.
    pub seen_epoch: u64,
    /// Nodes whose copies the adoption still needs that was ordered at the reporting node.
    pub adoption_waits: Vec<String>,
    /// UUIDs of buckets of which an adoption found copies, but no settings.
    pub unknown_buckets: Vec<String>,
    /// State of the rebalance: idle, running or paused.
    pub rebalance: String,
    /// Revision of etcd at which an order last changed the state of the rebalance, or a failover its count.
    pub orders_revision: u64,
    /// Number of automatic failovers since an operator reset the count.
    pub failovers: u32,
    /// Number of elections in progress.
    pub elections: usize,
    /// Number of moves in progress.
    pub moves: usize,
    /// Number of moves that have not begun; only the controller knows it.
    pub moves_left: Option<usize>,
    /// Number of vBuckets that a rebalance by the present nodes would change; `None` while one runs or copies move.
    pub misplaced: Option<usize>,
    /// Number of moves that wait for space on a full disk; only the controller knows it.
    pub moves_without_space: Option<usize>,
    /// Number of moves in progress that wait for memory of a bucket; only the controller knows it.
    pub moves_without_memory: Option<usize>,
    /// vBuckets that get no active copy until more copies are back; only the controller knows them.
    pub waiting: Option<Vec<WaitingStatus>>,
    /// vBuckets that the controller promoted in unsafe failovers.
    pub promoted: Option<Vec<PromotedStatus>>,
    /// Damaged and unreadable copies, by bucket and node.
    pub damaged: Vec<DamagedStatus>,
    /// All nodes, by id.
    pub nodes: Vec<NodeStatus>,
    /// All buckets, by name.
    pub buckets: Vec<BucketStatus>,
}

/// A node of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent facts of a document"
)]
pub struct NodeStatus {
    /// Name of the node.
    pub name: String,
    /// Id of the node.
    pub id: u16,
    /// State: new, active, draining, `handing_over` (other nodes take over the active copies, then the node is failed
    /// over), failed, or `failed_over` (until an operator recovers the node).
    pub state: String,
    /// Whether the node renews its lease.
    pub alive: bool,
    /// True if a sync failed on the node: it serves nothing.
    pub disk_dead: bool,
    /// True if the disk of the node is full: it works in memory.
    pub disk_full: bool,
    /// Names of the buckets that the node cannot make: its copies of them are missing.
    pub unmade: Vec<String>,
    /// Names of the buckets that have no memory on the node for changes of other nodes.
    pub starved: Vec<String>,
    /// Number of the zone.
    pub zone: u16,
    /// Name of the zone's group, as maps for clients show it.
    pub group: String,
    /// Host of the node.
    pub host: String,
    /// Port of the KV protocol.
    pub kv: u16,
    /// Port of HTTP management.
    pub http: u16,
    /// Port of the KV protocol over TLS.
    pub kv_tls: Option<u16>,
    /// Address for clients of another network.
    pub outside: Option<Address>,
    /// Version of the node.
    pub version: String,
    /// UUID of the node, 32 hex digits.
    pub uuid: String,
    /// Number of active copies.
    pub active: usize,
    /// Number of replicas.
    pub replicas: usize,
    /// Reason why the controller does not fail over the node although the node is gone; only the controller knows it.
    pub held: Option<String>,
    /// Time since the reporting node last heard this node, ms; `None` if it never did.
    pub silent_ms: Option<u64>,
    /// Names of running nodes whose messages do not reach this node.
    pub unheard: Vec<String>,
    /// Whether a graceful failover of the node can begin.
    pub can_hand_over: bool,
    /// The copies that an unsafe failover of the node would promote, by bucket.
    pub unsafe_failover: Vec<UnsafeStatus>,
}

/// vBuckets of a bucket of which an unsafe failover promotes the best remaining copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnsafeStatus {
    /// Name of the bucket.
    pub bucket: String,
    /// Number of vBuckets.
    pub vbuckets: usize,
    /// The vBuckets as ranges: 0-3, 7.
    pub ranges: String,
    /// Largest number of copies that one of the vBuckets lacks.
    pub missing: usize,
    /// Nodes whose copies the failover gives up.
    pub without: BTreeSet<String>,
}

/// A vBucket that was promoted by an unsafe failover.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct PromotedStatus {
    /// Name of the bucket.
    pub bucket: String,
    /// Number of the vBucket.
    pub vbucket: u16,
    /// The node whose copy was promoted.
    pub node: String,
    /// Term since which the copy is active.
    pub term: u64,
    /// Highest seqno of the promoted copy. Later changes on other copies are lost.
    pub seqno: u64,
}

/// Damaged copies of a bucket on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct DamagedStatus {
    /// Name of the bucket.
    pub bucket: String,
    /// Name of the node.
    pub node: String,
    /// Number of damaged vBuckets.
    pub vbuckets: usize,
    /// The damaged vBuckets, as ranges.
    pub ranges: String,
    /// The vBuckets among them that cannot be read at all, as ranges.
    pub unreadable: String,
}

/// A bucket of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct BucketStatus {
    /// Name of the bucket.
    pub name: String,
    /// UUID of the bucket, 32 hex digits.
    pub uuid: String,
    /// Number of vBuckets.
    pub vbuckets: u16,
    /// Configured number of copies of each vBucket.
    pub copies: usize,
    /// Number of vBuckets with an active copy that serves, as far as the reporting node knows.
    pub served: usize,
    /// Number of vBuckets in an election.
    pub elections: usize,
    /// Number of vBuckets that move.
    pub moves: usize,
    /// Number of copies that are missing, over all vBuckets.
    pub lacking: usize,
    /// Number of copies on each node, by the name of the node.
    pub nodes: BTreeMap<String, CopyCounts>,
}

/// Copies on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct CopyCounts {
    /// Number of active copies.
    pub active: usize,
    /// Number of replicas.
    pub replicas: usize,
}

/// vBuckets of a bucket that wait for copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WaitingStatus {
    /// Name of the bucket.
    pub bucket: String,
    /// Number of vBuckets that wait.
    pub vbuckets: usize,
    /// Largest number of copies that one of the vBuckets lacks.
    pub missing: usize,
    /// The first waiting vBuckets.
    pub first: Vec<u16>,
}

impl ClusterStatus {
    /// Checks whether a rebalance that was ordered after `before` has begun. One without moves ends as soon as it begins.
    pub fn rebalance_began_after(&self, before: &Self) -> bool {
        self.rebalance == "running" || self.orders_revision > before.orders_revision
    }

    /// Checks whether every vBucket has all its copies, and only active nodes have copies.
    pub fn is_balanced(&self) -> bool {
        let whole = self.buckets.iter().all(|bucket| bucket.lacking == 0);
        let settled = self.nodes.iter().all(|node| match &*node.state {
            "active" => true,
            _ => node.active + node.replicas == 0,
        });
        let busy = self.moves + self.moves_left.unwrap_or(0) + self.elections > 0;
        whole && settled && !busy
    }
}
