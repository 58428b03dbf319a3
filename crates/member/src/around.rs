//! The node around the copies of a bucket.

use std::sync::Arc;

use cluster::NodeId;
use copies::Around;
use model::VbId;
use registry::Registry;
use replication::{PeerLink, PeerOptions};

use crate::hosted::Hosted;

/// The node around the copies of a bucket.
pub(crate) struct NodeAround<'a> {
    pub(crate) node: &'a Arc<Registry>,
    pub(crate) hosted: &'a Hosted,
    /// Where nodes are, and how they log in to each other.
    pub(crate) link: &'a dyn Fn(NodeId) -> Option<PeerOptions>,
}

impl Around for NodeAround<'_> {
    fn random_u64(&self) -> u64 {
        self.node.env.random_u64()
    }

    fn changed(&self) {
        self.node.wake_all();
    }

    fn connect(&self, node: NodeId) -> bool {
        let Some(options) = (self.link)(node) else {
            return false;
        };
        let mut links = self.hosted.links.lock();
        if links
            .get(&node)
            .is_some_and(|link| link.at() == &options.at)
        {
            return true;
        }
        let (served, gate) = (&self.hosted.served, &self.hosted.copies.gate);
        match PeerLink::start(self.node, served, gate, options) {
            Ok(link) => {
                drop(links.insert(node, link));
                true
            }
            Err(error) => {
                tracing::error!(%error, "no thread for streams of another node");
                false
            }
        }
    }

    fn turn(&self, node: NodeId, vb: VbId) {
        if let Some(link) = self.hosted.links.lock().get(&node) {
            link.turn(vb);
        }
    }
}
