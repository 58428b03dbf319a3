//! The node's part in a cluster, as the other parts of the node see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::agreed::{Node, View};
use cluster::coordinator::Progress;
use cluster::{NodeId, Order};

use crate::settings::BucketSettings;

/// User name with which nodes of a cluster log in to each other. The cluster keeps its secret in etcd.
pub const CLUSTER_USER: &str = "@cluster";

/// Path of the setting that carries a message of another node; only [`CLUSTER_USER`] may set it.
pub const MESSAGE: &[u8] = b"cluster.message";

/// Status of this node in its cluster.
#[derive(Clone, Debug, Default)]
pub struct MemberStatus {
    /// The newest state of etcd that the node has read; the rest is no older.
    pub view: Arc<View>,
    /// The node that runs the controller, as far as this node knows.
    pub controller: Option<NodeId>,
    /// Time since etcd last answered, ms.
    pub etcd_silent_ms: u64,
    /// Why etcd did not carry out a request of this node in the last seconds.
    pub etcd_problem: Option<String>,
    /// Time that is left of the node's lease, ms: so long the node may serve without etcd.
    pub lease_left_ms: u64,
    /// True if etcd holds an older state than the node has seen. etcd was restored from a backup, and the node does not
    /// follow it.
    pub etcd_went_back: bool,
    /// The newest epoch that the node has seen, also before its last start.
    pub seen_epoch: u64,
    /// Nodes whose copies the adoption still needs that was ordered at this node.
    pub adoption_waits: Vec<NodeId>,
    /// Time since other nodes were last heard, ms. Nodes that were never heard are not listed.
    pub silent_ms: BTreeMap<NodeId, u64>,
    /// Whether an operator removed this node from the cluster.
    pub removed: bool,
    /// Whether another process has this node's number: this one is out of the cluster.
    pub replaced: bool,
    /// Elections and moves, if this node runs the controller.
    pub progress: Option<Progress>,
}

/// A change of the state that the nodes of a cluster agree on.
///
/// `based_on` is the revision of etcd at which the record was written that the change replaces, 0 if there is none. If
/// the record was written since, the change is a [conflict](ChangeError::Conflict).
#[derive(Clone, Debug)]
pub enum AgreedChange {
    /// Creates a bucket.
    MakeBucket(BucketSettings),
    /// Replaces the settings of the bucket of this name.
    AdjustBucket {
        /// The new settings.
        settings: BucketSettings,
        /// See [`AgreedChange`].
        based_on: u64,
    },
    /// Removes the bucket of this name.
    DropBucket(String),
    /// Removes all documents of the bucket of this name.
    FlushBucket(String),
    /// Replaces the scopes and collections of a bucket.
    Manifest {
        /// Name of the bucket.
        bucket: String,
        /// The new manifest, in the form in which nodes keep it.
        text: String,
        /// See [`AgreedChange`].
        based_on: u64,
    },
    /// Replaces the users.
    Users {
        /// The new users, in the form in which nodes keep them.
        text: String,
        /// See [`AgreedChange`].
        based_on: u64,
    },
}

/// Reason why a change was not agreed on. `Display` is one line for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Another change came first, or the object that the change is based on is gone. Read the state again.
    #[error("{0}")]
    Conflict(String),
    /// The change is not possible.
    #[error("{0}")]
    Refused(String),
    /// The cluster cannot be changed by this node now.
    #[error("{0}")]
    Unavailable(String),
}

/// This node as a member of a cluster.
pub trait ClusterMember: Send + Sync {
    /// Returns the id of this node.
    fn me(&self) -> NodeId;

    /// Returns the description with which this node joined the cluster.
    fn described(&self) -> &Node;

    /// Returns the newest state of etcd that this node has read.
    fn view(&self) -> Arc<View>;

    /// Returns the status of this node.
    fn status(&self) -> MemberStatus;

    /// Sends an operator's order to the controller. An order to adopt goes to this node itself.
    ///
    /// # Errors
    /// No controller is known.
    fn order(&self, order: Order) -> Result<(), String>;

    /// Makes a change and waits, not for long, until the nodes that run have applied it.
    ///
    /// # Errors
    /// The change was not made. After [`ChangeError::Unavailable`] it may have been made.
    fn change(&self, change: AgreedChange) -> Result<(), ChangeError>;

    /// Whether this node has the newest users: false for a while after its process stood still, until the users are
    /// read again.
    fn has_newest_users(&self) -> bool;

    /// Takes a message of another node.
    fn message(&self, bytes: &[u8]);
}

/// Path of the setting that takes an operator's order.
pub const ORDER: &[u8] = b"cluster.order";

/// Reason why an order was not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoOrder {
    /// The text is no order, or it names a node that is not in the cluster.
    Unread,
    /// There is no controller; with the reason.
    NotNow(String),
}

/// Sends an order that is written as JSON.
///
/// # Errors
/// See [`NoOrder`].
pub fn give_order(member: &dyn ClusterMember, text: &[u8]) -> Result<(), NoOrder> {
    let order: Order = serde_json::from_slice(text).map_err(|_| NoOrder::Unread)?;
    if let Order::Drain(node)
    | Order::FailOver(node)
    | Order::FailOverUnsafe { node, .. }
    | Order::Recover(node)
    | Order::Remove(node) = order
        && !member.view().nodes.contains_key(&node)
    {
        return Err(NoOrder::Unread);
    }
    member.order(order).map_err(NoOrder::NotNow)
}
