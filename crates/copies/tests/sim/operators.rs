//! Buckets and collections that operators make and drop.

use cluster::agreed::{BucketSpec, Key};
use cluster::{BucketId, Vb};

use crate::node::CLUSTER;
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
        self.manifests.remove(&bucket);
        self.checks.forget(bucket);
        if let Some(subscriber) = &mut self.subscriber {
            subscriber.forget(bucket);
        }
        // A restored etcd may bring it back with one of its copies alone, which must not be a damaged one.
        for disk in self.nodes.iter().filter_map(|node| node.disks.get(&bucket)) {
            disk.mend();
        }
    }

    /// An operator makes the collection of a bucket, or drops it.
    pub(crate) fn change_collection(&mut self, bucket: BucketId) {
        let (changes, collection) = self.manifests.entry(bucket).or_default();
        *changes += 1;
        *collection = match *collection {
            Some(_) => None,
            None => Some(MANIFESTS_FROM + *changes),
        };
        let (changes, collection) = (*changes, *collection);
        self.tell(|| format!("bucket {} has collection {collection:?}", bucket.0));
        let collection_text = collection.map(|id| format!(r#",{{"name":"c","uid":"{id:x}"}}"#));
        let text = format!(
            r#"{{"uid":"{changes:x}","scopes":[{{"name":"_default","uid":"0","collections":[{{"name":"_default","uid":"0"}}{}]}}]}}"#,
            collection_text.unwrap_or_default()
        );
        self.etcd.put(Key::Manifest(bucket).text(CLUSTER), text);
        self.checks.forget_collection(bucket);
        for node in &mut self.nodes {
            node.vbs.collections.insert(bucket, collection);
        }
    }
}
