//! Buckets and collections that operators make and drop.

use cluster::agreed::{BucketSpec, Key, View};
use cluster::{BucketId, Vb};
use collections::Manifest;

use crate::node::{CLUSTER, Node};
use crate::world::World;

/// Number below that of the first collection.
const MANIFESTS_FROM: u8 = 8;

impl World {
    /// An operator makes a bucket.
    pub(crate) fn make_bucket(&mut self, copies: usize) {
        self.last_bucket += 1;
        let bucket = BucketId(self.last_bucket);
        self.tell(|| format!("bucket {} of {copies} copies is made", bucket.0));
        let spec = BucketSpec {
            name: format!("b{}", bucket.0),
            vbuckets: 2,
            copies,
            ..BucketSpec::default()
        };
        let value = serde_json::to_string(&spec).expect("JSON");
        self.etcd.put(Key::Spec(bucket).text(CLUSTER), value);
        self.vbs.extend((0..2).map(|number| Vb { bucket, number }));
    }

    /// An operator drops a bucket.
    pub(crate) fn drop_bucket(&mut self, bucket: BucketId) {
        self.tell(|| format!("bucket {} is dropped", bucket.0));
        let keys = [
            Key::Spec(bucket),
            Key::Map(bucket, 0),
            Key::Manifest(bucket),
        ];
        self.etcd.delete(&keys.map(|key| key.text(CLUSTER)));
        self.vbs.retain(|vb| vb.bucket != bucket);
        for node in &mut self.nodes {
            node.vbs.collections.remove(&bucket);
        }
        self.checks.forget(bucket);
        if let Some(subscriber) = &mut self.subscriber {
            subscriber.forget(bucket);
        }
        // A restored etcd may bring it back with one of its copies alone, which must not be a damaged one.
        for disk in self.nodes.iter().filter_map(|node| node.disks.get(&bucket)) {
            disk.mend();
        }
    }

    /// An operator makes the collection of a bucket, or drops it. No change is based on an older manifest than a node has.
    pub(crate) fn change_collection(&mut self, bucket: BucketId) {
        let (uid, collection) = agreed_manifest(&self.agreed(), bucket);
        if self.newest_manifest(bucket) > (uid, collection) {
            return;
        }
        let uid = uid + 1;
        let collection = match collection {
            Some(_) => None,
            None => Some(MANIFESTS_FROM + uid),
        };
        let collection_text = collection.map(|id| format!(r#",{{"name":"c","uid":"{id:x}"}}"#));
        let text = format!(
            r#"{{"uid":"{uid:x}","scopes":[{{"name":"_default","uid":"0","collections":[{{"name":"_default","uid":"0"}}{}]}}]}}"#,
            collection_text.unwrap_or_default()
        );
        self.etcd.put(Key::Manifest(bucket).text(CLUSTER), text);
        self.collection_changed(bucket, collection);
    }

    fn collection_changed(&mut self, bucket: BucketId, collection: Option<u8>) {
        self.tell(|| format!("bucket {} has collection {collection:?}", bucket.0));
        self.checks.forget_collection(bucket);
        for node in &mut self.nodes {
            node.vbs.collections.insert(bucket, collection);
        }
    }

    /// Clients see the newest collections that a node or a restored etcd has. A change that no node made may be lost.
    pub(crate) fn see_collections(&mut self, agreed: &View) {
        for bucket in agreed.specs.keys() {
            let newest = self.newest_manifest(*bucket);
            let (_, collection) = newest.max(agreed_manifest(agreed, *bucket));
            if self.nodes[0].vbs.collection(*bucket) != collection {
                self.collection_changed(*bucket, collection);
            }
        }
    }

    /// Returns number and collection of the newest manifest of a bucket that a node has.
    fn newest_manifest(&self, bucket: BucketId) -> (u8, Option<u8>) {
        let of = |node: &Node| {
            let bucket = node.vbs.buckets.get(&bucket)?;
            Some(numbers(&bucket.copies.bucket.manifest()))
        };
        let all = self.nodes.iter().filter_map(of);
        all.max().unwrap_or_default()
    }
}

fn agreed_manifest(agreed: &View, bucket: BucketId) -> (u8, Option<u8>) {
    let entry = agreed.manifests.get(&bucket);
    let manifest = entry.map(|entry| registry::collections::of_json(entry.value.as_bytes()));
    manifest.map_or((0, None), |manifest| {
        numbers(&manifest.expect("the manifest of an operator"))
    })
}

/// Returns the numbers of a manifest and of its collection.
fn numbers(manifest: &Manifest) -> (u8, Option<u8>) {
    let all = manifest.collections().map(|(_, made)| made.id.0 as u8);
    (manifest.uid().0 as u8, all.filter(|id| *id > 0).max())
}
