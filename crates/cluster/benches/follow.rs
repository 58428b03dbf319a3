//! A node of 100 fails: the writes of its failover to etcd, and their cost for the controller and for each
//! node that follows.
//!
//! One bucket of 1,024 vBuckets with 2 replicas. `follow/failover`: the controller's rounds, from the mark of
//! the failed node to the last new row; all copies answer at once. `follow/apply`: one node applies all
//! writes of the failover. `follow/written`: number of transactions, and bytes that etcd sends to each of the
//! 100 nodes.

use std::collections::BTreeMap;

use benchkit::{Figures, Rows, per};
use cluster::agreed::{Alive, BucketSpec, ClusterId, Controller, Key, Node, NodeState, View};
use cluster::coord::{Answer, KeyChange, KeyStore, LeaseId, Op, Range, Request, Txn};
use cluster::coordinator::{Action, Coordinator, Tick};
use cluster::{BucketId, Message, NodeId, Order, Position, Settings};

const CLUSTER: ClusterId = ClusterId(7);
const BUCKET: BucketId = BucketId(1);
const NODES: u16 = 100;
const FAILED: NodeId = NodeId(50);

fn put<T: serde::Serialize>(store: &mut KeyStore, key: Key, value: &T) {
    let (key, lease) = (key.text(CLUSTER), LeaseId(0));
    let value = serde_json::to_string(value).expect("a value of ours");
    let then = vec![Op::Put { key, value, lease }];
    let compare = Vec::new();
    store.answer(&Request::Txn(Txn { compare, then }));
}

/// A node's view of a store, kept up to date.
#[derive(Clone, Default)]
struct Follower {
    view: View,
    changes: Vec<KeyChange>,
}

impl Follower {
    fn follow(&mut self, store: &KeyStore) {
        let from = self.view.revision + 1;
        if let Answer::Changes { changes, .. } = store.changes_since(&CLUSTER.prefix(), from) {
            for change in &changes {
                self.view.apply(CLUSTER, change);
            }
            self.changes.extend(changes);
        }
    }
}

/// A cluster whose controller runs on node 1.
#[derive(Clone)]
struct World {
    store: KeyStore,
    coordinator: Coordinator,
    follower: Follower,
    now_ms: u64,
}

impl World {
    fn new() -> Self {
        let mut store = KeyStore::default();
        for node in (1..=NODES).map(NodeId) {
            let zone = node.0 % 4;
            let state = NodeState::Active;
            let value = Node {
                zone,
                state,
                ..Node::default()
            };
            put(&mut store, Key::Node(node), &value);
            put(&mut store, Key::Alive(node), &Alive::default());
        }
        let (node, boot) = (NodeId(1), 1);
        put(&mut store, Key::Controller, &Controller::new(node, boot));
        let spec = BucketSpec {
            vbuckets: 1024,
            copies: 3,
            ..BucketSpec::default()
        };
        put(&mut store, Key::Spec(BUCKET), &spec);
        let mut follower = Follower::default();
        let Answer::Got { revision, found } =
            store.answer(&Request::Get(Range::Prefix(CLUSTER.prefix())))
        else {
            unreachable!("a read is answered");
        };
        follower.view.load(CLUSTER, revision, &found);
        let mut coordinator = Coordinator::new(CLUSTER, Settings::default());
        coordinator.set_term(follower.view.controller.as_ref().map(|c| c.mod_revision));
        let mut world = Self {
            store,
            coordinator,
            follower,
            now_ms: Settings::default().settle_ms,
        };
        world.settle();
        world.follower.changes.clear();
        world
    }

    /// Runs rounds until nothing is left to do; returns the number of transactions.
    fn settle(&mut self) -> usize {
        let (mut count, mut idle) = (0, 0);
        while idle < 3 {
            self.now_ms += 1_000;
            let tick = Tick {
                view: &self.follower.view,
                now_ms: self.now_ms,
                watching_since_ms: 0,
                heard: &BTreeMap::new(),
            };
            idle += 1;
            for action in self.coordinator.tick(&tick) {
                idle = match &action {
                    Action::Send(_, Message::Ask) => idle,
                    _ => 0,
                };
                self.make(action, &mut count);
            }
            self.follower.follow(&self.store);
        }
        count
    }

    fn make(&mut self, action: Action, count: &mut usize) {
        match action {
            Action::Txn(txn) => {
                *count += 1;
                let answer = self.store.answer(&Request::Txn(txn));
                let term = self.coordinator.term().unwrap_or_default();
                self.coordinator.answered(term, &answer);
            }
            Action::Send(node, Message::Seal { vb, term, .. }) if node != FAILED || term == 1 => {
                let sealed = Message::Sealed {
                    vb,
                    term,
                    position: Position::default(),
                    complete: false,
                    kept: false,
                };
                self.coordinator.message(node, &sealed, self.now_ms);
            }
            Action::Revoke(node, lease) => self.coordinator.revoked(node, lease, self.now_ms),
            Action::Send(..) => {}
        }
    }

    fn fail_over(&mut self) -> usize {
        let key = Key::Alive(FAILED).text(CLUSTER);
        let (compare, then) = (Vec::new(), vec![Op::Delete { key }]);
        self.store.answer(&Request::Txn(Txn { compare, then }));
        self.follower.follow(&self.store);
        self.coordinator.order(Order::FailOver(FAILED));
        self.settle()
    }
}

fn main() {
    let world = World::new();
    let mut after = world.clone();
    let transactions = after.fail_over();
    let actives = after.follower.view.rows();
    assert!(
        actives
            .into_iter()
            .all(|(_, _, row)| row.chain.active() != Some(FAILED) && row.intent.is_none())
    );
    let changes = after.follower.changes.clone();
    let bytes: usize = changes
        .iter()
        .map(|change| match change {
            KeyChange::Put(kv) => kv.key.len() + kv.value.len(),
            KeyChange::Delete { key, .. } => key.len(),
        })
        .sum();
    let mut rows = Rows::default();
    rows.add("follow/written", move || {
        let to_f64 = |count: usize| per(count as u64, 1);
        Figures::default()
            .and("transactions", to_f64(transactions))
            .and("bytes", to_f64(bytes))
    });
    rows.add_timed("follow/failover", || world.clone(), World::fail_over);
    rows.add_timed(
        "follow/apply",
        || world.follower.view.clone(),
        |view| {
            for change in &changes {
                view.apply(CLUSTER, change);
            }
        },
    );
    rows.run();
}
