//! What the controller writes, against a store.

use super::policy::Held;
use super::{Action, Coordinator, Tick};
use crate::agreed::{
    Alive, BucketSpec, ClusterId, Controller, Health, Key, Node, NodeState, Orders, View,
};
use crate::coord::{Answer, LeaseId, Op, Range, Request, Store, Txn};
use crate::map::{BucketId, NodeId};
use crate::message::Order;
use crate::settings::Settings;

const CLUSTER: ClusterId = ClusterId(7);
const NODE: NodeId = NodeId(1);

fn put<T: serde::Serialize>(store: &mut Store, key: Key, value: &T) {
    let (key, lease) = (key.text(CLUSTER), LeaseId(0));
    let value = serde_json::to_string(value).unwrap();
    let then = vec![Op::Put { key, value, lease }];
    write(store, then);
}

fn write(store: &mut Store, then: Vec<Op>) {
    let compare = Vec::new();
    store.answer(&Request::Txn(Txn { compare, then }));
}

fn view(store: &mut Store) -> View {
    let mut view = View::default();
    let range = Range::Prefix(CLUSTER.prefix());
    let Answer::Got { revision, found } = store.answer(&Request::Get(range)) else {
        panic!("no keys");
    };
    view.load(CLUSTER, revision, &found);
    view
}

/// A store with a member, which is the controller.
fn store() -> (Store, Coordinator) {
    let mut store = Store::default();
    let node = Node {
        state: NodeState::Active,
        ..Node::default()
    };
    put(&mut store, Key::Node(NODE), &node);
    let (node, boot) = (NODE, 1);
    put(&mut store, Key::Controller, &Controller { node, boot });
    let mut coordinator = Coordinator::new(CLUSTER, Settings::default());
    coordinator.set_term(view(&mut store).controller.map(|c| c.create_revision));
    (store, coordinator)
}

/// The next transaction.
fn txn(coordinator: &mut Coordinator, view: &View) -> Option<Txn> {
    let tick = Tick {
        view,
        now_ms: Settings::default().settle_ms,
        watching_since_ms: 0,
    };
    let actions = coordinator.tick(&tick);
    actions.into_iter().find_map(|action| match action {
        Action::Txn(txn) => Some(txn),
        _ => None,
    })
}

/// Makes all that the controller wants; returns how many chunks of maps each transaction writes.
fn settle(store: &mut Store, coordinator: &mut Coordinator) -> Vec<usize> {
    let mut chunks = Vec::new();
    while let Some(txn) = txn(coordinator, &view(store)) {
        let is_chunk = |op: &&Op| matches!(op, Op::Put { key, .. } if key.contains("/map/"));
        chunks.push(txn.then.iter().filter(is_chunk).count());
        let answer = store.answer(&Request::Txn(txn));
        assert!(matches!(answer, Answer::Committed(_)));
        let term = coordinator.term().unwrap();
        coordinator.answered(term, &answer);
    }
    chunks
}

fn spec(vbuckets: u16) -> BucketSpec {
    BucketSpec {
        vbuckets,
        copies: 1,
        ..BucketSpec::default()
    }
}

#[test]
fn a_bucket_that_was_dropped_gets_no_map() {
    let (mut store, mut coordinator) = store();
    put(&mut store, Key::Spec(BucketId(1)), &spec(4));
    let seen = view(&mut store);
    let txn = txn(&mut coordinator, &seen).expect("the bucket's map");
    let key = Key::Spec(BucketId(1)).text(CLUSTER);
    write(&mut store, vec![Op::Delete { key }]);
    assert_eq!(store.answer(&Request::Txn(txn)), Answer::Refused);
}

#[test]
fn f7_a_controller_that_was_replaced_writes_nothing() {
    let (mut store, mut coordinator) = store();
    put(&mut store, Key::Spec(BucketId(1)), &spec(4));
    let txn = txn(&mut coordinator, &view(&mut store)).expect("the bucket's map");
    let key = Key::Controller.text(CLUSTER);
    write(&mut store, vec![Op::Delete { key }]);
    let (node, boot) = (NodeId(2), 1);
    put(&mut store, Key::Controller, &Controller { node, boot });
    assert_eq!(store.answer(&Request::Txn(txn)), Answer::Refused);
}

#[test]
fn f15_failovers_end_at_a_quota_until_an_operator_resets_it() {
    let (mut store, mut coordinator) = store();
    let (gone, failovers) = (NodeId(2), Settings::default().failovers_max);
    for node in [NODE, NodeId(3), gone] {
        let state = NodeState::Active;
        let value = Node {
            state,
            ..Node::default()
        };
        put(&mut store, Key::Node(node), &value);
        put(&mut store, Key::Alive(node), &Alive::default());
    }
    let spec = BucketSpec {
        copies: 3,
        ..spec(4)
    };
    put(&mut store, Key::Spec(BucketId(1)), &spec);
    settle(&mut store, &mut coordinator);
    let orders = Orders {
        failovers,
        ..Orders::default()
    };
    put(&mut store, Key::Orders, &orders);
    let health = Health {
        unheard: vec![gone],
        ..Health::default()
    };
    for node in [NODE, NodeId(3)] {
        let health = health.clone();
        put(&mut store, Key::Alive(node), &Alive { boot: 1, health });
    }
    let key = Key::Alive(gone).text(CLUSTER);
    write(&mut store, vec![Op::Delete { key }]);
    settle(&mut store, &mut coordinator);
    assert_eq!(coordinator.progress().held, [(gone, Held::Quota)]);
    coordinator.order(Order::Recover(NODE));
    settle(&mut store, &mut coordinator);
    let state = view(&mut store).nodes[&gone].value.state;
    assert_eq!(state, NodeState::Failed);
}

#[test]
fn f17_maps_larger_than_a_transaction_are_written_in_some() {
    let (mut store, mut coordinator) = store();
    for bucket in 1..=3 {
        put(&mut store, Key::Spec(BucketId(bucket)), &spec(1_024));
    }
    assert_eq!(settle(&mut store, &mut coordinator), [16, 16, 16]);
    assert_eq!(view(&mut store).rows().count(), 3 * 1_024);
}

#[test]
fn a_node_is_removed_when_no_copy_is_on_it() {
    let (mut store, mut coordinator) = store();
    let other = NodeId(2);
    put(&mut store, Key::Node(other), &Node::default());
    put(&mut store, Key::Spec(BucketId(1)), &spec(4));
    settle(&mut store, &mut coordinator);
    coordinator.order(Order::Remove(NODE));
    coordinator.order(Order::Remove(other));
    settle(&mut store, &mut coordinator);
    let nodes: Vec<NodeId> = view(&mut store).nodes.keys().copied().collect();
    assert_eq!(nodes, [NODE]);
}
