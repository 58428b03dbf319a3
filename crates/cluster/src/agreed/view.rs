//! A view of all keys of a cluster, as of a revision.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::de::DeserializeOwned;

use super::history::{History, Seen};
use super::keys::{CHUNK_VBUCKETS, ClusterId, Key};
use super::values::{Alive, BucketSpec, Chunk, Controller, Meta, Node, Orders};
use crate::condition::Condition;
use crate::coord::{KeyChange, KeyValue, LeaseId};
use crate::map::{BucketId, Chain, NodeId, Row, Vb, Version};
use crate::settings::Settings;

/// A value with etcd's metadata of its key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry<T> {
    /// The value.
    pub value: T,
    /// Revision that created the key.
    pub create_revision: u64,
    /// Revision of the last write.
    pub mod_revision: u64,
    /// Lease of the key.
    pub lease: LeaseId,
}

/// State of etcd, as far as a node has seen it.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Revision up to which all changes are included.
    pub revision: u64,
    /// The cluster.
    pub meta: Option<Entry<Meta>>,
    /// Nodes.
    pub nodes: BTreeMap<NodeId, Entry<Node>>,
    /// Nodes that run.
    pub alive: BTreeMap<NodeId, Entry<Alive>>,
    /// The controller.
    pub controller: Option<Entry<Controller>>,
    /// Orders of operators.
    pub orders: Option<Entry<Orders>>,
    /// History of controllers' transactions.
    pub history: Entry<History>,
    /// Buckets.
    pub specs: BTreeMap<BucketId, Entry<BucketSpec>>,
    /// Manifests of buckets.
    pub manifests: BTreeMap<BucketId, Entry<Arc<str>>>,
    /// Users.
    pub users: Option<Entry<Arc<str>>>,
    /// Chunks of maps.
    pub maps: BTreeMap<(BucketId, u16), Entry<Chunk>>,
    /// Keys whose values cannot be read.
    pub unreadable: BTreeSet<String>,
}

impl View {
    /// Replaces the view by all keys as of `revision`.
    pub fn load(&mut self, cluster: ClusterId, revision: u64, found: &[KeyValue]) {
        *self = Self {
            revision,
            ..Self::default()
        };
        for kv in found {
            self.put(cluster, kv);
        }
    }

    /// Applies a change.
    pub fn apply(&mut self, cluster: ClusterId, change: &KeyChange) {
        match change {
            KeyChange::Put(kv) => self.put(cluster, kv),
            KeyChange::Delete { key, .. } => self.delete(cluster, key),
        }
        self.revision = self.revision.max(change.revision());
    }

    fn put(&mut self, cluster: ClusterId, kv: &KeyValue) {
        let Some(key) = Key::parse(cluster, &kv.key) else {
            return;
        };
        let read = match key {
            Key::Meta => entry(kv).map(|e| self.meta = Some(e)),
            Key::Controller => entry(kv).map(|e| self.controller = Some(e)),
            Key::Orders => entry(kv).map(|e| self.orders = Some(e)),
            Key::History => entry(kv).map(|e| self.history = e),
            Key::Node(node) => entry(kv).map(|e| drop(self.nodes.insert(node, e))),
            Key::Alive(node) => entry(kv).map(|e| drop(self.alive.insert(node, e))),
            Key::Spec(bucket) => entry(kv).map(|e| drop(self.specs.insert(bucket, e))),
            Key::Manifest(bucket) => Some(text(kv)).map(|e| drop(self.manifests.insert(bucket, e))),
            Key::Users => Some(text(kv)).map(|e| self.users = Some(e)),
            Key::Map(bucket, chunk) => {
                entry(kv).map(|e| drop(self.maps.insert((bucket, chunk), e)))
            }
        };
        if read.is_some() {
            self.unreadable.remove(&kv.key);
        } else {
            self.unreadable.insert(kv.key.clone());
        }
    }

    fn delete(&mut self, cluster: ClusterId, text: &str) {
        self.unreadable.remove(text);
        match Key::parse(cluster, text) {
            None => {}
            Some(Key::Meta) => self.meta = None,
            Some(Key::Controller) => self.controller = None,
            Some(Key::Orders) => self.orders = None,
            Some(Key::History) => self.history = Entry::default(),
            Some(Key::Node(node)) => drop(self.nodes.remove(&node)),
            Some(Key::Alive(node)) => drop(self.alive.remove(&node)),
            Some(Key::Spec(bucket)) => drop(self.specs.remove(&bucket)),
            Some(Key::Manifest(bucket)) => drop(self.manifests.remove(&bucket)),
            Some(Key::Users) => self.users = None,
            Some(Key::Map(bucket, chunk)) => drop(self.maps.remove(&(bucket, chunk))),
        }
    }

    /// Returns the epoch of the cluster.
    pub fn epoch(&self) -> u64 {
        self.meta.as_ref().map_or(0, |meta| meta.value.epoch)
    }

    /// Returns the newest version and transaction of this view.
    pub fn seen(&self) -> Seen {
        let (epoch, revision) = (self.epoch(), self.revision);
        Seen {
            version: Version { epoch, revision },
            mark: self.history.value.newest(),
        }
    }

    /// Whether this view contains the state that a node has seen, or an adoption of copies has replaced that
    /// state. If neither, etcd was restored from a backup, unless this view is older.
    pub fn has(&self, seen: &Seen) -> bool {
        self.has_adopted_since(seen) || seen.is_in(self.revision, &self.history.value)
    }

    /// Whether copies were adopted since that state, so that it proves nothing.
    pub fn has_adopted_since(&self, seen: &Seen) -> bool {
        self.history.value.adopted > seen.version.epoch
    }

    /// Returns the times and limits of the cluster.
    pub fn settings(&self) -> Settings {
        let meta = self.meta.as_ref();
        Settings::of_lease(meta.and_then(|meta| meta.value.lease_ms))
    }

    /// Whether a node renews its lease, and its disk works.
    pub fn is_well(&self, node: NodeId) -> bool {
        let alive = self.alive.get(&node);
        alive.is_some_and(|alive| !alive.value.health.disk_dead)
    }

    /// Whether a node reports a full disk: no seal and no new copy of any bucket gets on disk there.
    pub fn is_full(&self, node: NodeId) -> bool {
        let alive = self.alive.get(&node);
        alive.is_some_and(|alive| alive.value.health.disk_full)
    }

    /// Whether a node reports that it cannot make a bucket.
    pub fn lacks(&self, node: NodeId, bucket: BucketId) -> bool {
        let alive = self.alive.get(&node);
        alive.is_some_and(|alive| alive.value.health.unmade.contains(&bucket))
    }

    /// Whether no seal and no new copy of a bucket gets on disk at a node.
    pub fn has_no_disk(&self, node: NodeId, bucket: BucketId) -> bool {
        self.is_full(node) || self.lacks(node, bucket)
    }

    /// Returns the condition of a node's copy, as the node reports it.
    pub fn condition(&self, node: NodeId, vb: Vb) -> Condition {
        let alive = self.alive.get(&node);
        let of_bucket = alive.and_then(|alive| alive.value.health.damaged.get(&vb.bucket));
        let known = of_bucket.and_then(|of_bucket| of_bucket.get(&vb.number));
        known.copied().unwrap_or_default()
    }

    /// Whether a move of a row to another chain would wait for a term on a full disk: the move seals the old
    /// active copy, and all copies of the new chain follow at a new term.
    pub fn lacks_space(&self, bucket: BucketId, row: &Row, to: &Chain) -> bool {
        let mut nodes = row
            .chain
            .active()
            .into_iter()
            .chain(to.nodes().iter().copied());
        nodes.any(|node| self.has_no_disk(node, bucket))
    }

    /// Whether a move of a row to another chain waits for memory: a copy gets no more changes.
    pub fn lacks_memory(&self, bucket: BucketId, to: &Chain) -> bool {
        let is_starved = |node| {
            let alive = self.alive.get(node);
            alive.is_some_and(|alive| alive.value.health.starved.contains(&bucket))
        };
        to.nodes().iter().any(is_starved)
    }

    /// Returns all rows, each with the version of its chunk.
    pub fn rows(&self) -> impl Iterator<Item = (Vb, Version, &Row)> {
        let epoch = self.epoch();
        self.maps.iter().flat_map(move |((bucket, chunk), entry)| {
            let revision = entry.mod_revision;
            let version = Version { epoch, revision };
            let first = chunk * CHUNK_VBUCKETS;
            entry
                .value
                .rows
                .iter()
                .zip(first..)
                .map(move |(row, number)| {
                    let bucket = *bucket;
                    (Vb { bucket, number }, version, row)
                })
        })
    }

    /// Whether the whole map of a bucket is known: a new bucket has none before the controller makes it.
    pub fn has_map(&self, bucket: BucketId) -> bool {
        let known = |chunk| self.maps.contains_key(&(bucket, chunk));
        let spec = self.specs.get(&bucket);
        let chunks = spec.map(|spec| spec.value.vbuckets.div_ceil(CHUNK_VBUCKETS));
        chunks.is_some_and(|chunks| (0..chunks).all(known))
    }

    /// Whether each vBucket of a bucket has an elected copy, and none is being elected.
    pub fn is_served(&self, bucket: BucketId) -> bool {
        let spec = self.specs.get(&bucket);
        let elected = |number| {
            let row = self.row(Vb { bucket, number });
            row.is_some_and(|row| row.term > 0 && row.intent.is_none())
        };
        spec.is_some_and(|spec| (0..spec.value.vbuckets).all(elected))
    }

    /// Returns the row of a vBucket.
    pub fn row(&self, vb: Vb) -> Option<&Row> {
        let chunk = self.maps.get(&(vb.bucket, vb.number / CHUNK_VBUCKETS))?;
        chunk
            .value
            .rows
            .get(usize::from(vb.number % CHUNK_VBUCKETS))
    }
}

fn text(kv: &KeyValue) -> Entry<Arc<str>> {
    Entry {
        value: kv.value.as_str().into(),
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        lease: kv.lease,
    }
}

fn entry<T: DeserializeOwned>(kv: &KeyValue) -> Option<Entry<T>> {
    Some(Entry {
        value: serde_json::from_str(&kv.value).ok()?,
        create_revision: kv.create_revision,
        mod_revision: kv.mod_revision,
        lease: kv.lease,
    })
}
