//! A bucket of the cluster on this node: its copies, and connections to the nodes that they follow.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::{BucketId, NodeId};
use copies::BucketCopies;
use parking_lot::Mutex;
use registry::{ServedBucket, Store};
use replication::PeerLink;

/// A bucket of the cluster on this node.
pub(crate) struct Hosted {
    pub(crate) id: BucketId,
    pub(crate) served: Arc<ServedBucket>,
    pub(crate) copies: BucketCopies<Store>,
    /// Connections to the nodes that copies follow.
    pub(crate) links: Mutex<BTreeMap<NodeId, PeerLink>>,
}

impl Hosted {
    /// Creates the bucket with the copies in its store, all as replicas.
    pub(crate) fn new(id: BucketId, served: Arc<ServedBucket>) -> Self {
        Self {
            id,
            copies: BucketCopies::new(id, Arc::clone(&served.bucket)),
            links: Mutex::default(),
            served,
        }
    }

    /// Closes connections to nodes that no copy follows.
    pub(crate) fn drop_links(&self) {
        let followed = self.copies.followed();
        let mut links = self.links.lock();
        links.retain(|node, _| followed.contains(node));
    }
}
