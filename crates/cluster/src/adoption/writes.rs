//! Writes of an adoption to a restored etcd.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use crate::agreed::{
    BucketSpec, CHUNK_VBUCKETS, Chunk, ClusterId, ClusterName, History, Key, Mark, Meta, NodeState,
    Orders, Rebalance, View, name_key,
};
use crate::coord::{KeyValue, LeaseId, Op};
use crate::map::{BucketId, Chain, NodeId, Row, Vb};
use crate::promotion::Position;

/// Operations of a transaction and their bytes, at most; both are below etcd's limits.
const OPS_MAX: usize = 100;
const BYTES_MAX: usize = 1_000_000;

/// All copies, sealed.
pub(super) struct Sealed {
    pub(super) epoch: u64,
    pub(super) term: u64,
    pub(super) mark: Mark,
    pub(super) copies: BTreeMap<Vb, Vec<(NodeId, Position)>>,
    /// Copies with rows that cannot be read. Of copies that have as much, whole ones are kept.
    pub(super) damaged: BTreeSet<(NodeId, Vb)>,
    /// Nodes that answered.
    pub(super) nodes: Vec<NodeId>,
    /// Nodes that are given up.
    pub(super) lost: Vec<NodeId>,
}

impl Sealed {
    /// Makes the row of a vBucket: the copy that has most is the active one. A vBucket without a copy begins empty.
    ///
    /// The chain is not longer than the known one: in a longer one, fewer than a majority may have the acknowledged
    /// writes. The newest one may have been shorter than the known one, too. So copies of an older history, which
    /// were perhaps being built, are elected only after they have reached the history of the adoption.
    fn row(&self, vb: Vb, copies: usize, known: &View) -> Row {
        let Some(found) = self.copies.get(&vb) else {
            let nodes = self.nodes.iter().cycle().skip(usize::from(vb.number));
            let nodes: Vec<NodeId> = nodes.take(copies.min(self.nodes.len())).copied().collect();
            return Row {
                intent: Some(self.term),
                ..Row::new(chain(&nodes), 0)
            };
        };
        let before = known.row(vb).map(|row| row.chain);
        let copies = before.map_or(copies, |chain| copies.min(chain.nodes().len()));
        let place = |node: NodeId| {
            let nodes = before.iter().flat_map(Chain::nodes);
            nodes
                .enumerate()
                .find(|(_, of)| **of == node)
                .map_or(usize::MAX, |(at, _)| at)
        };
        let mut found = found.clone();
        let is_damaged = |node: NodeId| self.damaged.contains(&(node, vb));
        found.sort_by_key(|(node, position)| (Reverse(*position), is_damaged(*node), place(*node)));
        found.truncate(copies);
        let nodes: Vec<NodeId> = found.iter().map(|(node, _)| *node).collect();
        let newest = found[0].1.branch;
        let is_older = found.iter().any(|(_, position)| position.branch < newest);
        Row {
            adopted: if is_older { self.term } else { 0 },
            ..Row::new(chain(&nodes), self.term)
        }
    }

    /// Returns the chunks of a bucket that have copies; the controller makes all others.
    fn chunks(&self, bucket: BucketId, spec: &BucketSpec, known: &View) -> Vec<(u16, Chunk)> {
        let vbs = self.copies.keys().filter(|vb| vb.bucket == bucket);
        let chunks: BTreeSet<u16> = vbs.map(|vb| vb.number / CHUNK_VBUCKETS).collect();
        let rows = |chunk: &u16| {
            let first = chunk * CHUNK_VBUCKETS;
            let numbers = first..spec.vbuckets.min(first + CHUNK_VBUCKETS);
            let row = |number| self.row(Vb { bucket, number }, spec.copies, known);
            let rows = numbers.map(row).collect();
            (*chunk, Chunk { rows })
        };
        chunks.iter().map(rows).collect()
    }
}

fn chain(nodes: &[NodeId]) -> Chain {
    Chain::new(nodes).expect("few nodes, each of them once")
}

fn text<T: Serialize>(value: &T) -> String {
    serde_json::to_string(value).expect("values of ours have no maps")
}

/// Returns the writes of each transaction. They restore the state that the node knew, or the state in etcd if
/// it knew none. The last one ends the adoption.
pub(super) fn transactions(
    cluster: ClusterId,
    (known, read): (&View, &View),
    found: &[KeyValue],
    sealed: &Sealed,
) -> Vec<Vec<Op>> {
    let base = if known.revision > 0 { known } else { read };
    let wanted = wanted_keys(cluster, (base, read), sealed);
    let has: BTreeMap<&str, &str> = found
        .iter()
        .map(|kv| (kv.key.as_str(), kv.value.as_str()))
        .collect();
    let names = cluster.prefix() + "bucket_names/";
    let is_of_buckets = |key: &str| {
        let parsed = Key::parse(cluster, key);
        let of = matches!(parsed, Some(Key::Spec(_) | Key::Manifest(_) | Key::Map(..)));
        of || key.starts_with(&names)
    };
    let gone = has
        .keys()
        .filter(|key| is_of_buckets(key) && !wanted.contains_key(**key));
    let mut ops: Vec<Op> = gone
        .map(|key| Op::Delete {
            key: (*key).to_owned(),
        })
        .collect();
    let lease = LeaseId(0);
    for (key, value) in &wanted {
        if has.get(key.as_str()) != Some(&value.as_str()) {
            let (key, value) = (key.clone(), value.clone());
            ops.push(Op::Put { key, value, lease });
        }
    }
    let mut txns = split(ops);
    txns.push(last(cluster, (base, read), sealed));
    txns
}

/// Returns the keys and values that etcd must have, without the history and the epoch.
fn wanted_keys(
    cluster: ClusterId,
    (base, read): (&View, &View),
    sealed: &Sealed,
) -> BTreeMap<String, String> {
    let mut wanted = BTreeMap::new();
    let mut put = |key: Key, value: String| drop(wanted.insert(key.text(cluster), value));
    // Only etcd knows nodes that joined after the last view of this node.
    for (node, entry) in read.nodes.iter().chain(&base.nodes) {
        let mut value = entry.value.clone();
        if sealed.lost.contains(node) {
            value.state = NodeState::Failed;
        }
        put(Key::Node(*node), text(&value));
    }
    for (bucket, entry) in &base.specs {
        put(Key::Spec(*bucket), text(&entry.value));
        for (chunk, rows) in sealed.chunks(*bucket, &entry.value, base) {
            put(Key::Map(*bucket, chunk), text(&rows));
        }
    }
    for (bucket, entry) in &base.manifests {
        put(Key::Manifest(*bucket), entry.value.as_ref().to_owned());
    }
    if let Some(users) = &base.users {
        put(Key::Users, users.value.as_ref().to_owned());
    }
    let orders = base.orders.as_ref().map(|entry| entry.value.clone());
    let orders = Orders {
        rebalance: Rebalance::Idle,
        ..orders.unwrap_or_default()
    };
    put(Key::Orders, text(&orders));
    for (bucket, entry) in &base.specs {
        let name = format!("{}bucket_names/{}", cluster.prefix(), entry.value.name);
        wanted.insert(name, bucket.to_string());
    }
    wanted
}

/// Returns the last writes: nodes follow the epoch in them, and there may be a controller again.
fn last(cluster: ClusterId, (base, read): (&View, &View), sealed: &Sealed) -> Vec<Op> {
    let buckets: BTreeSet<BucketId> = sealed.copies.keys().map(|vb| vb.bucket).collect();
    let histories = [&base.history.value, &read.history.value];
    let number = histories.map(|history| history.number).into_iter().max();
    let number = number.unwrap_or(0) + 1;
    let mark = Mark {
        number,
        ..sealed.mark
    };
    let history = History {
        number,
        reigns: vec![mark],
        adopted: sealed.epoch,
        unknown: buckets
            .into_iter()
            .filter(|id| !base.specs.contains_key(id))
            .collect(),
    };
    let meta = base.meta.as_ref().map(|entry| entry.value.clone());
    let meta = Meta {
        epoch: sealed.epoch,
        ..meta.unwrap_or_default()
    };
    let lease = LeaseId(0);
    let put = |key: Key, value| Op::Put {
        key: key.text(cluster),
        value,
        lease,
    };
    // Nodes that start find the cluster by its name.
    let named = Op::Put {
        key: name_key(&meta.name),
        value: text(&ClusterName {
            uuid: cluster.uuid(),
        }),
        lease,
    };
    vec![
        put(Key::History, text(&history)),
        put(Key::Meta, text(&meta)),
        named,
        Op::Delete {
            key: Key::Controller.text(cluster),
        },
    ]
}

/// Splits writes into transactions within etcd's limits.
fn split(ops: Vec<Op>) -> Vec<Vec<Op>> {
    let size = |op: &Op| match op {
        Op::Put { key, value, .. } => key.len() + value.len(),
        Op::Delete { key } => key.len(),
    };
    let (mut txns, mut bytes) = (vec![Vec::new()], 0);
    for op in ops {
        bytes += size(&op);
        let full = txns.last().is_none_or(|txn| txn.len() >= OPS_MAX) || bytes > BYTES_MAX;
        if full {
            txns.push(Vec::new());
            bytes = size(&op);
        }
        if let Some(txn) = txns.last_mut() {
            txn.push(op);
        }
    }
    txns.retain(|txn| !txn.is_empty());
    txns
}
