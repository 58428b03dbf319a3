//! A draft of a controller's transaction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde::Serialize;

use crate::agreed::{CHUNK_VBUCKETS, Chunk, ClusterId, Controller, Key, View};
use crate::coord::{Compare, LeaseId, Op, Txn};
use crate::map::{BucketId, NodeId, Row, Vb};

/// Chunks of a transaction at most: about 2 KB each, within etcd's 1.5 MiB and 128 operations.
pub(super) const CHUNKS_MAX: usize = 16;

/// Marks a transaction of the controller with the number `issued` of its node's start.
pub(super) fn mark(cluster: ClusterId, view: &View, issued: u64, txn: &mut Txn) {
    let Some(controller) = &view.controller else {
        return;
    };
    let Controller { node, boot, .. } = controller.value;
    let history = view.history.value.with((node, boot), issued);
    let key = Key::History.text(cluster);
    let seen = view.history.mod_revision;
    txn.compare.push(Compare::ModRevision(key.clone(), seen));
    let value = serde_json::to_string(&history).expect("values of ours have no maps");
    let lease = LeaseId(0);
    txn.then.push(Op::Put { key, value, lease });
}

/// Conditions and writes of one controller.
pub(super) struct Draft<'a> {
    cluster: ClusterId,
    view: &'a View,
    compare: BTreeSet<Compare>,
    then: Vec<Op>,
    chunks: BTreeMap<(BucketId, u16), Chunk>,
}

impl<'a> Draft<'a> {
    /// Creates a draft for the controller whose key has the revision `term`.
    pub(super) fn new(cluster: ClusterId, view: &'a View, term: u64) -> Self {
        let controller = Key::Controller.text(cluster);
        Self {
            cluster,
            view,
            compare: BTreeSet::from([Compare::ModRevision(controller, term)]),
            then: Vec::new(),
            chunks: BTreeMap::new(),
        }
    }

    /// Writes a key whose last write was at `seen`.
    pub(super) fn put<T: Serialize>(&mut self, key: Key, seen: u64, value: &T) {
        let key = key.text(self.cluster);
        let value = serde_json::to_string(value).expect("values of ours have no maps");
        self.compare.insert(Compare::ModRevision(key.clone(), seen));
        let lease = LeaseId(0);
        self.then.push(Op::Put { key, value, lease });
    }

    /// Removes a key whose last write was at `seen`.
    pub(super) fn delete(&mut self, key: Key, seen: u64) {
        let key = key.text(self.cluster);
        self.compare.insert(Compare::ModRevision(key.clone(), seen));
        self.then.push(Op::Delete { key });
    }

    /// Requires that a node is unchanged since it was seen.
    pub(super) fn require_node(&mut self, node: NodeId) {
        let seen = self
            .view
            .nodes
            .get(&node)
            .map_or(0, |entry| entry.mod_revision);
        let key = Key::Node(node).text(self.cluster);
        self.compare.insert(Compare::ModRevision(key, seen));
    }

    /// Requires that the `alive` key of a node is unchanged, present or absent.
    pub(super) fn require_alive(&mut self, node: NodeId) {
        let seen = self.view.alive.get(&node);
        let seen = seen.map_or(0, |entry| entry.mod_revision);
        let key = Key::Alive(node).text(self.cluster);
        self.compare.insert(Compare::ModRevision(key, seen));
    }

    /// Requires that the `alive` key of a node is unchanged, and removes it if it is present.
    pub(super) fn end_alive(&mut self, node: NodeId) {
        self.require_alive(node);
        if self.view.alive.contains_key(&node) {
            let key = Key::Alive(node).text(self.cluster);
            self.then.push(Op::Delete { key });
        }
    }

    /// Whether a row of `vb` can be added.
    pub(super) fn takes(&self, vb: Vb) -> bool {
        let chunk = (vb.bucket, vb.number / CHUNK_VBUCKETS);
        self.chunks.contains_key(&chunk) || self.chunks.len() < CHUNKS_MAX
    }

    /// Writes a row of a chunk that exists.
    pub(super) fn row(&mut self, vb: Vb, row: Row) {
        let at = (vb.bucket, vb.number / CHUNK_VBUCKETS);
        let view = self.view;
        let chunk = self
            .chunks
            .entry(at)
            .or_insert_with(|| view.maps[&at].value.clone());
        Arc::make_mut(&mut chunk.rows)[usize::from(vb.number % CHUNK_VBUCKETS)] = row;
    }

    /// Writes a new chunk, provided that its bucket was not dropped meanwhile.
    pub(super) fn new_chunk(&mut self, bucket: BucketId, chunk: u16, rows: Vec<Row>) {
        let key = Key::Spec(bucket).text(self.cluster);
        let created = self
            .view
            .specs
            .get(&bucket)
            .map_or(0, |entry| entry.create_revision);
        self.compare.insert(Compare::CreateRevision(key, created));
        let rows = rows.into();
        self.chunks.insert((bucket, chunk), Chunk { rows });
    }

    /// Returns the transaction; `None` if it writes nothing.
    pub(super) fn finish(mut self) -> Option<Txn> {
        for ((bucket, chunk), value) in std::mem::take(&mut self.chunks) {
            let seen = self.view.maps.get(&(bucket, chunk));
            let seen = seen.map_or(0, |entry| entry.mod_revision);
            self.put(Key::Map(bucket, chunk), seen, &value);
        }
        (!self.then.is_empty()).then(|| Txn {
            compare: self.compare.into_iter().collect(),
            then: self.then,
        })
    }
}
