//! Collections that etcd lost.
//!
//! A node takes collections of a bucket from etcd alone. So an etcd with an older manifest than the node's was restored
//! from a backup. Later changes would be based on the older manifest: nodes refuse them up to their own number, and then
//! drop what it lacks, with the documents. So nodes write the newest manifest again.

use super::machine::{Copies, Participant, Purpose};
use crate::agreed::Key;
use crate::coord::{Compare, LeaseId, Op, Request, Txn};
use crate::map::BucketId;

impl Participant {
    /// Writes manifests to etcd of buckets that were not compared since etcd was read, where those of this node are
    /// newer. A write may be lost, or refused: call it again after some time.
    pub(super) fn keep_manifests(&mut self, now_ms: u64, copies: &impl Copies) {
        if self.is_under_way(|purpose| purpose == Purpose::OfItself) {
            return;
        }
        let buckets = std::mem::take(&mut self.uncompared);
        for bucket in buckets {
            if let Some(txn) = self.manifest_txn(bucket, copies) {
                self.uncompared.insert(bucket);
                self.request(Purpose::OfItself, Request::Txn(txn), now_ms);
            }
        }
    }

    /// Makes a transaction that writes this node's manifest of a bucket, if it is newer than the one in etcd.
    fn manifest_txn(&self, bucket: BucketId, copies: &impl Copies) -> Option<Txn> {
        let spec = self.view.specs.get(&bucket)?.mod_revision;
        let agreed = self.view.manifests.get(&bucket);
        let value = copies.newer_manifest(bucket, agreed.map(|agreed| &*agreed.value))?;
        let key = self.key(Key::Manifest(bucket));
        let seen = agreed.map_or(0, |agreed| agreed.mod_revision);
        let compare = vec![
            Compare::ModRevision(self.key(Key::Spec(bucket)), spec),
            Compare::ModRevision(key.clone(), seen),
        ];
        let lease = LeaseId(0);
        let then = vec![Op::Put { key, value, lease }];
        Some(Txn { compare, then })
    }
}
