//! The node's part in a cluster, as the other parts of the node see it.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::agreed::{Node, View};
use cluster::coordinator::Progress;
use cluster::{NodeId, Order};

use crate::settings::BucketSettings;

/// The user as which nodes of a cluster log in to each other, with the secret that the cluster keeps in etcd.
pub const CLUSTER_USER: &str = "@cluster";

/// Path of the setting that is a message of another node; for [`CLUSTER_USER`] alone.
pub const MESSAGE: &[u8] = b"cluster.message";

/// What a node tells of its part.
#[derive(Clone, Debug, Default)]
pub struct MemberStatus {
    /// The node with the controller, as this node knows.
    pub controller: Option<NodeId>,
    /// How long nothing has come from etcd.
    pub etcd_silent_ms: u64,
    /// How long the node may serve by its lease alone.
    pub lease_left_ms: u64,
    /// etcd has less than the node had seen: it was restored from a backup, and is not followed.
    pub etcd_went_back: bool,
    /// The newest epoch that the node has seen, also before it started.
    pub seen_epoch: u64,
    /// Nodes whose copies an adoption that was ordered here waits for.
    pub adoption_waits: Vec<NodeId>,
    /// For how long other nodes have not been heard; none of those that never were.
    pub silent_ms: BTreeMap<NodeId, u64>,
    /// Elections and moves, if the controller is here.
    pub progress: Option<Progress>,
}

/// A change of what the nodes of a cluster agree on.
#[derive(Clone, Debug)]
pub enum AgreedChange {
    /// A bucket is made.
    MakeBucket(BucketSettings),
    /// A bucket of this name has other settings.
    AdjustBucket(BucketSettings),
    /// The bucket of this name goes.
    DropBucket(String),
    /// The bucket of this name loses all documents.
    FlushBucket(String),
    /// A bucket has other scopes and collections.
    Manifest {
        /// Its name.
        bucket: String,
        /// Them, as nodes keep them.
        text: String,
        /// The UID of the manifest that this was made of.
        previous_uid: u64,
    },
    /// There are other users, as nodes keep them.
    Users(String),
}

/// Why a change was not agreed on. `Display` is one line for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeError {
    /// Another change came first, or what it is made of is not there any more: look again.
    #[error("{0}")]
    Conflict(String),
    /// It cannot be.
    #[error("{0}")]
    Refused(String),
    /// etcd does not answer.
    #[error("etcd does not answer: changes of the cluster wait for it")]
    Unavailable,
}

/// This node's part in a cluster.
pub trait ClusterMember: Send + Sync {
    /// This node.
    fn me(&self) -> NodeId;

    /// What it told the cluster of itself when it joined.
    fn described(&self) -> &Node;

    /// What etcd holds, as this node has seen it last.
    fn view(&self) -> Arc<View>;

    /// How it is.
    fn status(&self) -> MemberStatus;

    /// Sends an operator's order to the controller; that of an adoption is for the node itself.
    ///
    /// # Errors
    /// There is none.
    fn order(&self, order: Order) -> Result<(), String>;

    /// Makes a change, and waits until it is made.
    ///
    /// # Errors
    /// It was not made; of [`ChangeError::Unavailable`] that is not known.
    fn change(&self, change: AgreedChange) -> Result<(), ChangeError>;

    /// Takes a message of another node.
    fn message(&self, bytes: &[u8]);
}

/// Path of the setting that takes an operator's order.
pub const ORDER: &[u8] = b"cluster.order";

/// Why an order was not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NoOrder {
    /// It is none, or names a node that the cluster does not have.
    Unread,
    /// There is no controller, for this reason.
    NotNow(String),
}

/// Gives an order that is written as JSON.
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
