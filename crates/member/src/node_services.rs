//! Services of the node for the steps of a bucket's copies.

use std::sync::Arc;

use cluster::NodeId;
use copies::NodeServices;
use model::VbId;
use registry::Registry;
use replication::{PeerLink, PeerOptions};

use crate::hosted::Hosted;

/// Services of the node for the steps of a bucket's copies.
pub(crate) struct MemberServices<'a> {
    pub(crate) node: &'a Arc<Registry>,
    pub(crate) hosted: &'a Hosted,
    /// Returns address and login of a node.
    pub(crate) link: &'a dyn Fn(NodeId) -> Option<PeerOptions>,
}

impl NodeServices for MemberServices<'_> {
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
