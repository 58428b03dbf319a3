//! The buckets of the cluster on this node.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::agent::Copy;
use cluster::{BucketId, Copies, NodeId, Vb};
use model::VbId;
use parking_lot::RwLock;
use registry::collections;

use crate::hosted::Hosted;

/// The buckets of the cluster on this node, by UUID.
pub(crate) struct HostedTable {
    me: NodeId,
    buckets: RwLock<BTreeMap<BucketId, Arc<Hosted>>>,
}

impl HostedTable {
    pub(crate) fn new(me: NodeId) -> Self {
        let buckets = RwLock::default();
        Self { me, buckets }
    }

    pub(crate) fn get(&self, id: BucketId) -> Option<Arc<Hosted>> {
        self.buckets.read().get(&id).cloned()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Hosted>> {
        self.buckets.read().values().cloned().collect()
    }

    pub(crate) fn insert(&self, hosted: Arc<Hosted>) {
        self.buckets.write().insert(hosted.id, hosted);
    }

    pub(crate) fn remove(&self, id: BucketId) -> Option<Arc<Hosted>> {
        self.buckets.write().remove(&id)
    }
}

impl Copies for HostedTable {
    fn copy(&self, vb: Vb) -> Option<Copy> {
        self.get(vb.bucket)?.copies.copy(self.me, VbId(vb.number))
    }

    fn vbuckets(&self) -> Vec<Vb> {
        let all = self.all();
        all.iter()
            .flat_map(|hosted| hosted.copies.vbuckets())
            .collect()
    }

    fn damaged(&self) -> Vec<Vb> {
        let all = self.all();
        all.iter()
            .flat_map(|hosted| hosted.copies.damaged())
            .collect()
    }

    fn newer_manifest(&self, bucket: BucketId, agreed: Option<&str>) -> Option<String> {
        collections::if_newer(&self.get(bucket)?.served.bucket.manifest(), agreed)
    }
}
