//! The modelled etcd with its watchers.

use std::collections::BTreeMap;

use cluster::agreed::{CHUNK_VBUCKETS, Chunk, History, Key, Meta};
use cluster::coord::{Answer, Compare, KeyStore, LeaseId, Op, Request, RequestId, Txn};
use cluster::{NodeId, Row, Vb};

use crate::bugs::Bug;
use crate::node::CLUSTER;

/// A watch of a node.
struct Watcher {
    boot: u64,
    id: RequestId,
    prefix: String,
    next: u64,
}

#[derive(Default)]
pub(crate) struct Etcd {
    pub(crate) store: KeyStore,
    watchers: BTreeMap<usize, Watcher>,
    pub(crate) down_until_ms: u64,
    /// Number of restores so far; a restore ends all connections.
    pub(crate) life: u64,
    /// End of a leader election, during which some answers are lost.
    pub(crate) elects_until_ms: u64,
}

impl Etcd {
    /// Answers a request of a node; [`Self::flush`] answers a watch.
    pub(crate) fn request(
        &mut self,
        (node, boot, id): (usize, u64, RequestId),
        request: &Request,
        bug: Option<Bug>,
    ) -> Option<Answer> {
        if let Request::Watch { prefix, from } = request {
            let (prefix, next) = (prefix.clone(), *from);
            let watcher = Watcher {
                boot,
                id,
                prefix,
                next,
            };
            self.watchers.insert(node, watcher);
            return None;
        }
        let mut request = request.clone();
        if let (Request::Txn(txn), Some(bug)) = (&mut request, bug) {
            forget(txn, bug);
        }
        Some(self.store.answer(&request))
    }

    /// Returns the copies that a transaction would pass over: active ones whose node is marked as failed and
    /// does not answer. The transaction must require the mark.
    pub(crate) fn passed_over_by(&self, request: &Request) -> Vec<(Vb, usize)> {
        let Request::Txn(txn) = request else {
            return Vec::new();
        };
        let requires = |node: NodeId| {
            let key = Key::Node(node).text(CLUSTER);
            let is =
                |compare: &Compare| matches!(compare, Compare::ModRevision(of, _) if *of == key);
            txn.compare.iter().any(is)
        };
        let replaced = txn.then.iter().flat_map(|op| self.replaced_by(op));
        let passed = replaced.filter(|(_, node)| requires(*node));
        passed.map(|(vb, node)| (vb, usize::from(node.0))).collect()
    }

    /// Returns the elections that a transaction would begin and that give copies up, with their terms, and
    /// whether each is the first of the vBucket to give up these copies.
    pub(crate) fn ordered_by(&self, request: &Request) -> Vec<(Vb, u64, bool)> {
        let Request::Txn(txn) = request else {
            return Vec::new();
        };
        let pairs = txn.then.iter().flat_map(|op| self.rows_of(op));
        let ordered = pairs.filter(|(_, old, new)| new.without.is_some() && old != new);
        let first = |old: &Row, new: &Row| old.without != new.without;
        ordered
            .map(|(vb, old, new)| (vb, new.highest_term(), first(&old, &new)))
            .collect()
    }

    /// Whether a transaction would end a second adoption of copies.
    pub(crate) fn adopts_again(&self, request: &Request) -> bool {
        let Request::Txn(txn) = request else {
            return false;
        };
        let put = |of: &Key| {
            let of = of.text(CLUSTER);
            let mut values = txn.then.iter().filter_map(move |op| match op {
                Op::Put { key, value, .. } if *key == of => Some(value.clone()),
                _ => None,
            });
            values.next()
        };
        let (Some(_), Some(new)) = (put(&Key::Meta), put(&Key::History)) else {
            return false;
        };
        let adopted = |text: &str| {
            let history: History = serde_json::from_str(text).expect("JSON");
            history.adopted
        };
        let old = self.store.get(&Key::History.text(CLUSTER));
        let old = old.map_or(0, |kv| adopted(&kv.value));
        old > 0 && adopted(&new) != old
    }

    /// Returns the epoch of the cluster.
    pub(crate) fn epoch(&self) -> u64 {
        let meta = self.store.get(&Key::Meta.text(CLUSTER)).expect("a cluster");
        let meta: Meta = serde_json::from_str(&meta.value).expect("JSON");
        meta.epoch
    }

    /// Returns the active copies of rows to which a write gives a newer term.
    fn replaced_by(&self, op: &Op) -> Vec<(Vb, NodeId)> {
        let newer = self.rows_of(op).into_iter();
        let newer = newer.filter(|(_, old, new)| new.term > old.term);
        let active = newer.filter_map(|(vb, old, _)| Some((vb, old.chain.active()?)));
        active.collect()
    }

    /// Returns the rows that a write changes, old and new.
    fn rows_of(&self, op: &Op) -> Vec<(Vb, Row, Row)> {
        let Op::Put { key, value, .. } = op else {
            return Vec::new();
        };
        let (Some(Key::Map(bucket, chunk)), Some(before)) =
            (Key::parse(CLUSTER, key), self.store.get(key))
        else {
            return Vec::new();
        };
        let rows = |text: &str| serde_json::from_str::<Chunk>(text).expect("a chunk").rows;
        let (old, new) = (rows(&before.value), rows(value));
        let pairs = old.iter().zip(new.iter()).zip(chunk * CHUNK_VBUCKETS..);
        let rows = pairs.map(|((old, new), number)| (Vb { bucket, number }, *old, *new));
        rows.collect()
    }

    /// Returns the pending changes of a node's watch.
    pub(crate) fn flush(&mut self, node: usize) -> Option<(u64, RequestId, Answer)> {
        let watcher = self.watchers.get_mut(&node)?;
        let answer = self.store.changes_since(&watcher.prefix, watcher.next);
        let (boot, id) = (watcher.boot, watcher.id);
        match &answer {
            Answer::Changes { revision, .. } if *revision < watcher.next => return None,
            Answer::Changes { revision, .. } => watcher.next = revision + 1,
            _ => drop(self.watchers.remove(&node)),
        }
        Some((boot, id, answer))
    }

    /// Ends all watches; returns their nodes, starts and requests.
    pub(crate) fn end_watches(&mut self) -> Vec<(usize, u64, RequestId)> {
        let ended = std::mem::take(&mut self.watchers).into_iter();
        ended.map(|(node, of)| (node, of.boot, of.id)).collect()
    }

    pub(crate) fn put(&mut self, key: String, value: String) {
        let lease = LeaseId(0);
        self.write(vec![Op::Put { key, value, lease }]);
    }

    pub(crate) fn delete(&mut self, keys: &[String]) {
        let delete = |key: &String| Op::Delete { key: key.clone() };
        self.write(keys.iter().map(delete).collect());
    }

    fn write(&mut self, then: Vec<Op>) {
        let compare = Vec::new();
        self.store.answer(&Request::Txn(Txn { compare, then }));
    }
}

/// Drops the conditions and writes that the bug forgets.
fn forget(txn: &mut Txn, bug: Bug) {
    if bug == Bug::EpochNotRaised {
        let meta = Key::Meta.text(CLUSTER);
        txn.then
            .retain(|op| !matches!(op, Op::Put { key, .. } if *key == meta));
    }
    if bug == Bug::FailoverForgotten {
        for op in &mut txn.then {
            if let Op::Put { value, .. } = op {
                *value = value.replace(r#""failed_over":true"#, r#""failed_over":false"#);
            }
        }
    }
    let writes = |key: &str| {
        txn.then.iter().any(|op| match op {
            Op::Put { key: written, .. } | Op::Delete { key: written } => written == key,
        })
    };
    let of_node = |compare: &Compare| match compare {
        Compare::ModRevision(key, _) => key.contains("/nodes/").then_some(key.clone()),
        _ => None,
    };
    let joins = txn
        .then
        .iter()
        .any(|op| matches!(op, Op::Put { lease, .. } if lease.0 > 0));
    // A controller does not write its own key again.
    let controller = Key::Controller.text(CLUSTER);
    let adopts = writes(&controller);
    let of_controller =
        |compare: &Compare| matches!(compare, Compare::ModRevision(key, _) if *key == controller);
    let keep: Vec<Compare> = txn
        .compare
        .iter()
        .filter(|compare| match bug {
            Bug::NothingCompared => joins,
            Bug::PromotionWithoutMark => of_node(compare).is_none_or(|key| joins || writes(&key)),
            Bug::AdoptionKeyNotRequired => !(adopts && of_controller(compare)),
            Bug::LeaseWithoutReading => of_node(compare).is_none_or(|_| !joins),
            _ => true,
        })
        .cloned()
        .collect();
    txn.compare = keep;
}
