//! Writes of the controller, with a store.

use std::collections::BTreeMap;

use super::policy::FailoverBlock;
use super::seals::Seals;
use super::{Action, Coordinator, LackingVBucket, Tick, forced, unsafe_order};
use crate::agreed::{
    Alive, BucketSpec, Chunk, ClusterId, Controller, Health, Key, Node, NodeState, Orders, View,
};
use crate::coord::{Answer, KeyStore, LeaseId, Op, Range, Request, Txn};
use crate::map::{BucketId, Chain, NodeId, Phase, Row, Vb};
use crate::message::{CopyReport, Message, Need, Order};
use crate::promotion::Position;
use crate::settings::Settings;

const CLUSTER: ClusterId = ClusterId(7);
const NODE: NodeId = NodeId(1);

fn put<T: serde::Serialize>(store: &mut KeyStore, key: Key, value: &T) {
    let (key, lease) = (key.text(CLUSTER), LeaseId(0));
    let value = serde_json::to_string(value).unwrap();
    let then = vec![Op::Put { key, value, lease }];
    write(store, then);
}

fn write(store: &mut KeyStore, then: Vec<Op>) {
    let compare = Vec::new();
    store.answer(&Request::Txn(Txn { compare, then }));
}

fn view(store: &mut KeyStore) -> View {
    let mut view = View::default();
    let range = Range::Prefix(CLUSTER.prefix());
    let Answer::Got { revision, found } = store.answer(&Request::Get(range)) else {
        panic!("no keys");
    };
    view.load(CLUSTER, revision, &found);
    view
}

/// A store with one member, which is the controller.
fn store() -> (KeyStore, Coordinator) {
    let mut store = KeyStore::default();
    let node = Node {
        state: NodeState::Active,
        ..Node::default()
    };
    put(&mut store, Key::Node(NODE), &node);
    let (node, boot) = (NODE, 1);
    put(&mut store, Key::Controller, &Controller::new(node, boot));
    let mut coordinator = Coordinator::new(CLUSTER, Settings::default());
    coordinator.set_term(view(&mut store).controller.map(|c| c.create_revision));
    (store, coordinator)
}

/// Runs a round, always at the same time.
fn round(coordinator: &mut Coordinator, view: &View) -> Vec<Action> {
    coordinator.tick(&Tick {
        view,
        now_ms: Settings::default().settle_ms,
        watching_since_ms: 0,
        heard: &BTreeMap::new(),
    })
}

/// Returns the next transaction.
fn txn(coordinator: &mut Coordinator, view: &View) -> Option<Txn> {
    let actions = round(coordinator, view).into_iter();
    actions.into_iter().find_map(|action| match action {
        Action::Txn(txn) => Some(txn),
        _ => None,
    })
}

/// Makes the next transaction; returns the number of map chunks in it.
fn write_next(store: &mut KeyStore, coordinator: &mut Coordinator) -> Option<usize> {
    let txn = txn(coordinator, &view(store))?;
    let is_chunk = |op: &&Op| matches!(op, Op::Put { key, .. } if key.contains("/map/"));
    let chunks = txn.then.iter().filter(is_chunk).count();
    let answer = store.answer(&Request::Txn(txn));
    assert!(matches!(answer, Answer::Committed(_)));
    let term = coordinator.term().unwrap();
    coordinator.answered(term, &answer);
    Some(chunks)
}

/// Makes all transactions of the controller; returns the number of map chunks in each.
fn settle(store: &mut KeyStore, coordinator: &mut Coordinator) -> Vec<usize> {
    std::iter::from_fn(|| write_next(store, coordinator)).collect()
}

/// Adds nodes 2 and 3, all of them active and alive.
fn put_three_members(store: &mut KeyStore) -> [NodeId; 3] {
    let node = Node {
        state: NodeState::Active,
        ..Node::default()
    };
    let nodes = [NODE, NodeId(2), NodeId(3)];
    for one in nodes {
        put(store, Key::Node(one), &node);
        put(store, Key::Alive(one), &Alive::default());
    }
    nodes
}

#[test]
fn unreadable_active_copy_is_replaced_without_a_mark_of_its_node() {
    let (mut store, mut coordinator) = store();
    let bucket = BucketId(1);
    let nodes = put_three_members(&mut store);
    let spec = BucketSpec {
        copies: 3,
        ..spec(1)
    };
    put(&mut store, Key::Spec(bucket), &spec);
    let vb = Vb { bucket, number: 0 };
    let intent = Row {
        intent: Some(4),
        ..Row::new(Chain::new(&nodes).unwrap(), 3)
    };
    put(
        &mut store,
        Key::Map(bucket, 0),
        &Chunk {
            rows: [intent].into(),
        },
    );
    let term = 4;
    let (position, complete) = (Position::default(), false);
    let sealed = Message::Sealed {
        vb,
        term,
        position,
        complete,
        kept: false,
    };
    assert!(settle(&mut store, &mut coordinator).is_empty());
    for (from, message) in [
        (NODE, &Message::Stopped { vb, term }),
        (NodeId(2), &sealed),
        // One more seal is needed.
        (NodeId(2), &sealed),
    ] {
        coordinator.message(from, message, 0);
        assert!(settle(&mut store, &mut coordinator).is_empty());
    }
    coordinator.message(NodeId(3), &sealed, 0);
    assert_eq!(settle(&mut store, &mut coordinator), [1]);
    let view = view(&mut store);
    let elected = Row::new(Chain::new(&[NodeId(2), NodeId(3), NODE]).unwrap(), 4);
    assert_eq!(view.row(vb), Some(&elected));
    let is_active = |node: &Node| node.state == NodeState::Active;
    assert!(view.nodes.values().all(|node| is_active(&node.value)));
}

#[test]
fn restarted_active_copy_waits_for_a_dead_replica_until_it_is_given_up() {
    let (mut store, mut coordinator) = store();
    let (bucket, dead) = (BucketId(1), NodeId(2));
    for (node, state) in [(NODE, NodeState::Active), (dead, NodeState::Failed)] {
        let value = Node {
            state,
            ..Node::default()
        };
        put(&mut store, Key::Node(node), &value);
    }
    put(&mut store, Key::Alive(NODE), &Alive::default());
    let spec = BucketSpec {
        copies: 2,
        ..spec(1)
    };
    put(&mut store, Key::Spec(bucket), &spec);
    let row = Row::new(Chain::new(&[NODE, dead]).unwrap(), 3);
    put(
        &mut store,
        Key::Map(bucket, 0),
        &Chunk { rows: [row].into() },
    );
    settle(&mut store, &mut coordinator);
    let vb = Vb { bucket, number: 0 };
    assert_eq!(view(&mut store).row(vb), Some(&row));
    assert_eq!(forced(&view(&mut store), dead), []);

    let revision = view(&mut store).maps[&(bucket, 0)].mod_revision;
    let need = Need::Election { term: 3 };
    let report = CopyReport { vb, revision, need };
    coordinator.message(NODE, &Message::Report(vec![report]), 0);
    settle(&mut store, &mut coordinator);
    let seen = view(&mut store);
    let intent = Some(4);
    assert_eq!(seen.row(vb), Some(&Row { intent, ..row }), "it is shown");
    let sealed = Message::Sealed {
        vb,
        term: 4,
        position: Position::default(),
        complete: false,
        kept: false,
    };
    coordinator.message(NODE, &sealed, 0);
    assert!(settle(&mut store, &mut coordinator).is_empty());
    let waiting = &coordinator.progress().waiting;
    assert_eq!(waiting[..], [LackingVBucket { vb, missing: 1 }]);

    assert_eq!(forced(&seen, dead).len(), 1);
    coordinator.order(unsafe_order(&seen, dead));
    settle(&mut store, &mut coordinator);
    let seen = view(&mut store);
    assert_eq!(seen.row(vb), Some(&Row::new(row.chain, 4)));
}

/// Half of the vBuckets are to move from the controller's node to node 2; as many moves as allowed run.
fn moving(vbuckets: u16) -> (KeyStore, Coordinator) {
    let (mut store, mut coordinator) = store();
    put(&mut store, Key::Spec(BucketId(1)), &spec(vbuckets));
    settle(&mut store, &mut coordinator);
    for number in 0..vbuckets {
        let answer = Message::Sealed {
            vb: Vb {
                bucket: BucketId(1),
                number,
            },
            term: 1,
            position: Position::default(),
            complete: false,
            kept: false,
        };
        coordinator.message(NODE, &answer, 0);
    }
    settle(&mut store, &mut coordinator);
    let state = NodeState::Active;
    let node = Node {
        state,
        ..Node::default()
    };
    put(&mut store, Key::Node(NodeId(2)), &node);
    for node in [NODE, NodeId(2)] {
        put(&mut store, Key::Alive(node), &Alive::default());
    }
    coordinator.order(Order::Rebalance);
    settle(&mut store, &mut coordinator);
    (store, coordinator)
}

/// Returns the vBuckets in a phase of their move, and the revision of their rows.
fn in_phase(view: &View, phase: Phase) -> Vec<(Vb, u64)> {
    let rows = view.rows().filter(|(_, _, row)| row.phase() == Some(phase));
    rows.map(|(vb, version, _)| (vb, version.revision))
        .collect()
}

/// Reports for an active copy that its move can enter the next phase.
fn ready(coordinator: &mut Coordinator, (vb, revision): (Vb, u64), phase: Phase) {
    let need = Need::NextPhase(phase);
    let report = CopyReport { vb, revision, need };
    coordinator.message(NODE, &Message::Report(vec![report]), 0);
}

/// Ends a phase of all moves in it, as far as the controller allows.
fn leave(store: &mut KeyStore, coordinator: &mut Coordinator, phase: Phase) {
    for moves in in_phase(&view(store), phase) {
        ready(coordinator, moves, phase);
    }
    settle(store, coordinator);
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
    put(&mut store, Key::Controller, &Controller::new(node, boot));
    assert_eq!(store.answer(&Request::Txn(txn)), Answer::Refused);
}

/// Three nodes, and a map with this chain. The last node is gone, and the limit of failovers is reached.
fn gone(chain: [u16; 3]) -> (KeyStore, Coordinator, NodeId) {
    let (mut store, mut coordinator) = store();
    let (gone, failovers) = (NodeId(2), Settings::default().failovers_max);
    let health = Health {
        unheard: vec![gone],
        ..Health::default()
    };
    for node in [NODE, NodeId(3), gone] {
        let state = NodeState::Active;
        let value = Node {
            state,
            ..Node::default()
        };
        put(&mut store, Key::Node(node), &value);
        let health = health.clone();
        if node != gone {
            put(&mut store, Key::Alive(node), &Alive { boot: 1, health });
        }
    }
    put(&mut store, Key::Spec(BucketId(1)), &spec(1));
    let row = Row::new(Chain::new(&chain.map(NodeId)).unwrap(), 1);
    let chunk = Chunk { rows: [row].into() };
    put(&mut store, Key::Map(BucketId(1), 0), &chunk);
    let orders = Orders {
        failovers,
        ..Orders::default()
    };
    put(&mut store, Key::Orders, &orders);
    settle(&mut store, &mut coordinator);
    (store, coordinator, gone)
}

#[test]
fn f15_failovers_end_at_a_quota_until_an_operator_resets_it() {
    let (mut store, mut coordinator, gone) = gone([2, 1, 3]);
    assert_eq!(coordinator.progress().held, [(gone, FailoverBlock::Quota)]);
    coordinator.order(Order::Recover(NODE));
    settle(&mut store, &mut coordinator);
    let seen = view(&mut store);
    assert_eq!(seen.nodes[&gone].value.state, NodeState::Failed);
    assert_eq!(seen.orders.unwrap().value.failovers, 1);
}

#[test]
fn controller_is_busy_while_a_node_is_gone_and_while_copies_move() {
    let (mut store, mut coordinator, gone) = gone([1, 2, 3]);
    assert!(coordinator.is_busy(&view(&mut store)));
    put(&mut store, Key::Alive(gone), &Alive::default());
    settle(&mut store, &mut coordinator);
    assert!(!coordinator.is_busy(&view(&mut store)));
    let (mut store, coordinator) = moving(4);
    assert!(coordinator.is_busy(&view(&mut store)));
}

#[test]
fn controller_waits_only_for_nodes_that_it_has_not_heard_yet() {
    let (mut store, mut coordinator, gone) = gone([2, 1, 3]);
    let seen = view(&mut store);
    let watching_since_ms = 1_000;
    let mut held = |heard_ms: Option<u64>, after_ms: u64| {
        let heard = heard_ms.map(|at| (gone, at)).into_iter().collect();
        drop(coordinator.tick(&Tick {
            view: &seen,
            now_ms: watching_since_ms + after_ms,
            watching_since_ms,
            heard: &heard,
        }));
        coordinator.progress().held.clone()
    };
    let guard_ms = Settings::default().settle_ms;
    let (waited_for, judged) = (
        [(gone, FailoverBlock::Settling)],
        [(gone, FailoverBlock::Quota)],
    );
    assert_eq!(held(None, guard_ms - 1), waited_for);
    assert_eq!(held(None, guard_ms), judged);
    assert_eq!(held(Some(watching_since_ms - 1), guard_ms - 1), waited_for);
    assert_eq!(held(Some(watching_since_ms), 1), judged);
}

#[test]
fn f15_a_node_with_replicas_only_is_marked_whatever_the_quota() {
    let (mut store, coordinator, gone) = gone([1, 2, 3]);
    assert_eq!(coordinator.progress().held, []);
    let seen = view(&mut store);
    assert_eq!(seen.nodes[&gone].value.state, NodeState::Failed);
    let failovers = Settings::default().failovers_max;
    assert_eq!(seen.orders.unwrap().value.failovers, failovers);
}

#[test]
fn failed_over_node_stays_failed_until_it_is_recovered() {
    let (mut store, mut coordinator, gone) = gone([1, 2, 3]);
    let node = |store: &mut KeyStore, id| view(store).nodes[&id].value.clone();
    assert!(!node(&mut store, gone).failed_over);
    for (id, revoke) in [(gone, None), (NodeId(3), Some(LeaseId(0)))] {
        coordinator.order(Order::FailOver(id));
        settle(&mut store, &mut coordinator);
        let marked = node(&mut store, id);
        assert_eq!(
            (marked.state, marked.failed_over),
            (NodeState::Failed, true)
        );
        assert_eq!(marked.revoke, revoke);
        coordinator.order(Order::FailOver(id));
        coordinator.order(Order::Rebalance);
        settle(&mut store, &mut coordinator);
        assert_eq!(node(&mut store, id), marked);
        coordinator.order(Order::Recover(id));
        settle(&mut store, &mut coordinator);
        let failed_over = false;
        assert_eq!(
            node(&mut store, id),
            Node {
                failed_over,
                ..marked
            }
        );
    }
}

#[test]
fn failed_over_nodes_do_not_count_as_gone() {
    let (mut store, mut coordinator, gone) = gone([2, 1, 3]);
    coordinator.order(Order::FailOver(NodeId(3)));
    settle(&mut store, &mut coordinator);
    assert_eq!(coordinator.progress().held, [(gone, FailoverBlock::Quota)]);
}

#[test]
fn gone_nodes_without_copies_do_not_count_as_gone() {
    let (mut store, mut coordinator, gone) = gone([2, 1, 3]);
    for id in 4..=9 {
        put(&mut store, Key::Node(NodeId(id)), &Node::default());
    }
    settle(&mut store, &mut coordinator);
    assert_eq!(coordinator.progress().held, [(gone, FailoverBlock::Quota)]);
}

#[test]
fn rebalance_leaves_new_nodes_that_are_gone_and_takes_those_that_come() {
    let (mut store, mut coordinator) = store();
    put(&mut store, Key::Spec(BucketId(1)), &spec(1));
    put(&mut store, Key::Node(NodeId(2)), &Node::default());
    // The key of node 2 is older than a lease, that of node 3 is new: it is not alive yet.
    settle(&mut store, &mut coordinator);
    put(&mut store, Key::Node(NodeId(3)), &Node::default());
    coordinator.order(Order::Rebalance);
    settle(&mut store, &mut coordinator);
    let seen = view(&mut store);
    let states = [2, 3].map(|id| seen.nodes[&NodeId(id)].value.state);
    assert_eq!(states, [NodeState::New, NodeState::Active]);
}

#[test]
fn f17_large_maps_are_written_in_several_transactions() {
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
    let seen = view(&mut store);
    let nodes: Vec<NodeId> = seen.nodes.keys().copied().collect();
    assert_eq!(nodes, [NODE]);
    let orders = seen.orders.expect("orders").value;
    assert_eq!(orders.removed, other.0, "no other node gets the number");
}

#[test]
fn report_stays_valid_when_other_rows_of_its_chunk_change() {
    let (mut store, mut coordinator) = moving(4);
    let moves = in_phase(&view(&mut store), Phase::Build);
    assert_eq!(moves.len(), 2);
    ready(&mut coordinator, moves[0], Phase::Build);
    settle(&mut store, &mut coordinator);
    ready(&mut coordinator, moves[1], Phase::Build);
    settle(&mut store, &mut coordinator);
    assert_eq!(in_phase(&view(&mut store), Phase::CatchUp).len(), 2);
    // A report from before the change of its row does not count.
    let (vb, revision) = moves[0];
    ready(&mut coordinator, (vb, revision), Phase::CatchUp);
    settle(&mut store, &mut coordinator);
    assert_eq!(in_phase(&view(&mut store), Phase::CatchUp).len(), 2);
}

/// Returns the number of moves in each phase.
fn phases(store: &mut KeyStore) -> [usize; 4] {
    let seen = view(store);
    let phases = [
        Phase::Build,
        Phase::CatchUp,
        Phase::TwoChains,
        Phase::TakeOver,
    ];
    phases.map(|phase| in_phase(&seen, phase).len())
}

/// Fills the new copies of all moves.
fn fill(store: &mut KeyStore, coordinator: &mut Coordinator) {
    for phase in [Phase::Build, Phase::CatchUp, Phase::TwoChains] {
        leave(store, coordinator, phase);
    }
}

#[test]
fn takeovers_of_a_node_begin_when_there_are_enough_of_them() {
    let (mut store, mut coordinator) = moving(256);
    let Settings {
        moves_per_node,
        takeovers_per_node,
        ..
    } = Settings::default();
    for filled in (moves_per_node..takeovers_per_node).step_by(moves_per_node) {
        fill(&mut store, &mut coordinator);
        assert_eq!(phases(&mut store), [moves_per_node, 0, filled, 0]);
    }
    fill(&mut store, &mut coordinator);
    let [filling, _, waiting, together] = phases(&mut store);
    assert_eq!((filling, waiting), (moves_per_node, 0));
    assert!(together >= takeovers_per_node, "{together}");
    // Others wait until these are over, and only a limited number of them.
    for _ in 0..takeovers_per_node {
        fill(&mut store, &mut coordinator);
    }
    let [filling, catching_up, waiting, still] = phases(&mut store);
    assert_eq!((filling, catching_up, still), (0, 0, together));
    let open = waiting + still;
    assert!((2 * takeovers_per_node..2 * takeovers_per_node + moves_per_node).contains(&open));
}

#[test]
fn takeovers_begin_when_no_more_moves_are_coming() {
    let (mut store, mut coordinator) = moving(8);
    let at_once = Settings::default().moves_per_node;
    fill(&mut store, &mut coordinator);
    assert_eq!(phases(&mut store), [4 - at_once, 0, at_once, 0]);
    fill(&mut store, &mut coordinator);
    assert_eq!(phases(&mut store), [0, 0, 0, 4]);
}

#[test]
fn takeover_waits_for_others_only_a_limited_time() {
    let (mut store, mut coordinator) = moving(4);
    for phase in [Phase::Build, Phase::CatchUp] {
        leave(&mut store, &mut coordinator, phase);
    }
    let of_two = in_phase(&view(&mut store), Phase::TwoChains);
    ready(&mut coordinator, of_two[0], Phase::TwoChains);
    let seen = view(&mut store);
    let mut after = |ms| {
        let actions = coordinator.tick(&Tick {
            view: &seen,
            now_ms: Settings::default().settle_ms + ms,
            watching_since_ms: 0,
            heard: &BTreeMap::new(),
        });
        let is_txn = |action: &Action| matches!(action, Action::Txn(_));
        actions.iter().any(is_txn)
    };
    assert!(!after(0));
    assert!(!after(Settings::default().together_ms - 1));
    assert!(after(Settings::default().together_ms));
}

#[test]
fn moves_waiting_for_space_do_not_block_other_moves() {
    let (mut store, mut coordinator) = store();
    let (other, to) = (NodeId(2), NodeId(3));
    for node in [NODE, other, to] {
        let state = if node == to {
            NodeState::Active
        } else {
            NodeState::Draining
        };
        let value = Node {
            state,
            ..Node::default()
        };
        put(&mut store, Key::Node(node), &value);
        put(&mut store, Key::Alive(node), &Alive::default());
    }
    let at = |node: NodeId| Row::new(Chain::new(&[node]).unwrap(), 1);
    let rows = [[at(NODE); 8], [at(other); 8]].concat().into();
    put(&mut store, Key::Spec(BucketId(1)), &spec(16));
    put(&mut store, Key::Map(BucketId(1), 0), &Chunk { rows });
    coordinator.order(Order::Rebalance);
    settle(&mut store, &mut coordinator);
    let moving_from = |store: &mut KeyStore, node| {
        let seen = view(store);
        let is_of = |row: &Row| row.change.is_some() && row.chain.active() == Some(node);
        seen.rows().filter(|(_, _, row)| is_of(row)).count()
    };
    let moves_per_node = Settings::default().moves_per_node;
    assert_eq!(moving_from(&mut store, NODE), moves_per_node);
    assert_eq!(moving_from(&mut store, other), 0);
    let mut full = Alive::default();
    full.health.disk_full = true;
    put(&mut store, Key::Alive(NODE), &full);
    settle(&mut store, &mut coordinator);
    assert_eq!(moving_from(&mut store, NODE), moves_per_node);
    assert_eq!(moving_from(&mut store, other), moves_per_node);
}

#[test]
fn moves_waiting_for_memory_are_counted() {
    let (mut store, mut coordinator) = store();
    let to = NodeId(2);
    let draining = Node {
        state: NodeState::Draining,
        ..Node::default()
    };
    let active = Node {
        state: NodeState::Active,
        ..Node::default()
    };
    for (node, value) in [(NODE, draining), (to, active)] {
        put(&mut store, Key::Node(node), &value);
        put(&mut store, Key::Alive(node), &Alive::default());
    }
    let rows = [Row::new(Chain::new(&[NODE]).unwrap(), 1); 8].into();
    put(&mut store, Key::Spec(BucketId(1)), &spec(8));
    put(&mut store, Key::Map(BucketId(1), 0), &Chunk { rows });
    coordinator.order(Order::Rebalance);
    for (starved, bucket) in [(false, 2), (true, 1)] {
        let mut alive = Alive::default();
        alive.health.starved.insert(BucketId(bucket));
        put(&mut store, Key::Alive(to), &alive);
        settle(&mut store, &mut coordinator);
        let progress = coordinator.progress();
        let waiting = if starved { progress.moves } else { 0 };
        assert!(progress.moves > 0);
        assert_eq!(progress.moves_without_memory, waiting);
    }
}

/// Three members, and a new row that its replica is sealed for, before some of them prove to have no disk for it.
fn new_row_without_disks(vb: Vb, full: &[NodeId], health: &Health) -> (KeyStore, Coordinator) {
    let (mut store, mut coordinator) = store();
    put_three_members(&mut store);
    let spec = BucketSpec {
        copies: 2,
        ..spec(1)
    };
    put(&mut store, Key::Spec(vb.bucket), &spec);
    let row = Row {
        intent: Some(1),
        ..Row::new(Chain::new(&[NodeId(3), NODE]).unwrap(), 0)
    };
    put(
        &mut store,
        Key::Map(vb.bucket, 0),
        &Chunk { rows: [row].into() },
    );
    let begun = coordinator.tick(&Tick {
        view: &view(&mut store),
        now_ms: 0,
        watching_since_ms: 0,
        heard: &BTreeMap::new(),
    });
    assert!(!begun.iter().any(|one| matches!(one, Action::Txn(_))));
    let sealed = Message::Sealed {
        vb,
        term: 1,
        position: Position::default(),
        complete: false,
        kept: false,
    };
    coordinator.message(NODE, &sealed, 0);
    let health = health.clone();
    let alive = Alive { boot: 1, health };
    for one in full {
        put(&mut store, Key::Alive(*one), &alive);
    }
    (store, coordinator)
}

#[test]
fn new_row_leaves_a_full_disk_without_a_mark_of_its_node() {
    let vb = Vb {
        bucket: BucketId(1),
        number: 0,
    };
    let all = [NODE, NodeId(2), NodeId(3)];
    let is_full = Health {
        disk_full: true,
        ..Health::default()
    };
    let healths = [is_full, lacking(vb.bucket)];
    let cases = [&all[2..], &all].map(|full| healths.clone().map(|health| (full, health)));
    for (full, health) in cases.into_iter().flatten() {
        let (mut store, mut coordinator) = new_row_without_disks(vb, full, &health);
        settle(&mut store, &mut coordinator);
        let view = view(&mut store);
        let states: Vec<_> = view.nodes.values().map(|node| node.value.state).collect();
        assert_eq!(states, [NodeState::Active; 3], "full: {full:?}");
        let row = view.row(vb).unwrap();
        let waits = full.len() == all.len();
        assert_eq!(row.chain.holds(NodeId(3)), waits, "{row:?}");
        assert_eq!((row.term, row.intent), (0, Some(if waits { 1 } else { 2 })));
        assert_eq!(row.chain.nodes().len(), 2);
        assert_eq!(coordinator.progress().waiting.len(), usize::from(waits));
    }
}

/// Health of a node that cannot make a bucket.
fn lacking(bucket: BucketId) -> Health {
    Health {
        unmade: [bucket].into(),
        ..Health::default()
    }
}

/// Three members, the last of which cannot make its replicas of a bucket; a vBucket has `copies`.
fn unmade_replica(vb: Vb, copies: usize) -> (KeyStore, Coordinator) {
    let (mut store, mut coordinator) = store();
    let nodes = put_three_members(&mut store);
    let spec = BucketSpec { copies, ..spec(1) };
    put(&mut store, Key::Spec(vb.bucket), &spec);
    let mut chain = vec![NODE];
    chain.extend(&nodes[4 - copies..]);
    let rows = [Row::new(Chain::new(&chain).unwrap(), 1)].into();
    put(&mut store, Key::Map(vb.bucket, 0), &Chunk { rows });
    let health = lacking(vb.bucket);
    put(&mut store, Key::Alive(nodes[2]), &Alive { boot: 1, health });
    settle(&mut store, &mut coordinator);
    (store, coordinator)
}

#[test]
fn replica_that_its_node_cannot_make_is_made_elsewhere_without_a_rebalance() {
    let vb = Vb {
        bucket: BucketId(1),
        number: 0,
    };
    let (mut store, mut coordinator) = unmade_replica(vb, 2);
    let to = Chain::new(&[NODE, NodeId(2)]).unwrap();
    let row = |store: &mut KeyStore| *view(store).row(vb).unwrap();
    assert_eq!(row(&mut store).change, Some((to, Phase::Build)));
    fill(&mut store, &mut coordinator);
    let sealed = |complete| Message::Sealed {
        vb,
        term: 2,
        position: Position::default(),
        complete,
        kept: false,
    };
    assert_eq!(row(&mut store).intent, Some(2));
    coordinator.message(NODE, &sealed(true), 0);
    settle(&mut store, &mut coordinator);
    assert_eq!(row(&mut store), Row::new(to, 2));
    let states = view(&mut store).nodes.into_values();
    assert!(
        states
            .map(|node| node.value.state)
            .eq([NodeState::Active; 3])
    );
    // A chain does not get shorter for it.
    let (mut store, _) = unmade_replica(vb, 3);
    assert_eq!(row(&mut store).change, None);
}

#[test]
fn unmade_bucket_hinders_no_new_one_and_stays_where_no_node_can_make_it() {
    let [vb, other] = [1, 2].map(|bucket| Vb {
        bucket: BucketId(bucket),
        number: 0,
    });
    let (mut store, mut coordinator) = unmade_replica(vb, 3);
    let health = lacking(vb.bucket);
    let alive = Alive { boot: 1, health };
    for node in [NODE, NodeId(2), NodeId(3)] {
        put(&mut store, Key::Alive(node), &alive);
    }
    let before = *view(&mut store).row(vb).unwrap();
    put(&mut store, Key::Spec(other.bucket), &spec(1));
    settle(&mut store, &mut coordinator);
    let view = view(&mut store);
    assert_eq!(view.row(vb), Some(&before));
    assert!(view.row(other).unwrap().chain.active().is_some());
}

#[test]
fn move_away_from_an_unmade_replica_ends_once_it_is_made() {
    let vb = Vb {
        bucket: BucketId(1),
        number: 0,
    };
    let (mut store, mut coordinator) = unmade_replica(vb, 2);
    put(&mut store, Key::Alive(NodeId(3)), &Alive::default());
    settle(&mut store, &mut coordinator);
    let chain = Chain::new(&[NODE, NodeId(3)]).unwrap();
    assert_eq!(view(&mut store).row(vb), Some(&Row::new(chain, 1)));
}

#[test]
fn node_that_cannot_make_one_bucket_counts_in_elections_of_another() {
    let [one, other] = [1, 2].map(|bucket| Vb {
        bucket: BucketId(bucket),
        number: 0,
    });
    let (mut store, mut coordinator) = store();
    let nodes = put_three_members(&mut store);
    let health = lacking(other.bucket);
    put(&mut store, Key::Alive(nodes[2]), &Alive { boot: 1, health });
    write(
        &mut store,
        vec![Op::Delete {
            key: Key::Alive(nodes[1]).text(CLUSTER),
        }],
    );
    let failed = Node {
        state: NodeState::Failed,
        ..Node::default()
    };
    put(&mut store, Key::Node(nodes[1]), &failed);
    for vb in [one, other] {
        let spec = BucketSpec {
            copies: 2,
            ..spec(1)
        };
        put(&mut store, Key::Spec(vb.bucket), &spec);
        let rows = [Row::new(Chain::new(&nodes[1..]).unwrap(), 1)].into();
        put(&mut store, Key::Map(vb.bucket, 0), &Chunk { rows });
    }
    settle(&mut store, &mut coordinator);
    let view = view(&mut store);
    let intents = [one, other].map(|vb| view.row(vb).unwrap().intent);
    assert_eq!(intents, [Some(2), None]);
    let waiting: Vec<_> = coordinator
        .progress()
        .waiting
        .iter()
        .map(|of| of.vb)
        .collect();
    assert_eq!(waiting, [other]);
}

#[test]
fn adopted_copy_of_an_older_history_is_elected_only_after_it_caught_up() {
    let row = Row {
        adopted: 1_000,
        intent: Some(1_001),
        ..Row::new(Chain::new(&[NODE, NodeId(2)]).unwrap(), 1_000)
    };
    let elected = |branches: &[(NodeId, u64)]| {
        let mut seals = Seals::new(1_001, 0);
        for (node, branch) in branches {
            let position = Position {
                branch: *branch,
                ..Position::default()
            };
            seals.sealed(*node, 1_001, position, 0);
        }
        let chain = seals.elected(&row, |_| false);
        let without = seals.elected_without(&row, NODE);
        [chain, without].map(|chain| chain.and_then(|chain| chain.active()))
    };
    let (adopted, other) = ((NODE, 4), NodeId(2));
    assert_eq!(elected(&[(other, 3)]), [None, None]);
    assert_eq!(elected(&[(other, 3), adopted]), [Some(NODE), None]);
    assert_eq!(elected(&[(other, 1_000)]), [Some(other); 2]);
}

#[test]
fn takeover_seals_its_copies_in_order_without_delay() {
    let (mut store, mut coordinator) = moving(2);
    for phase in [Phase::Build, Phase::CatchUp] {
        leave(&mut store, &mut coordinator, phase);
    }
    let (vb, revision) = in_phase(&view(&mut store), Phase::TwoChains)[0];
    ready(&mut coordinator, (vb, revision), Phase::TwoChains);
    write_next(&mut store, &mut coordinator);
    let seen = view(&mut store);
    let sealed = |coordinator: &mut Coordinator| {
        let actions = round(coordinator, &seen).into_iter();
        let seals = actions.filter_map(|action| match action {
            Action::Send(node, Message::Seal { at_least, .. }) => Some((node, at_least)),
            _ => None,
        });
        seals.collect::<Vec<_>>()
    };
    assert_eq!(sealed(&mut coordinator), [(NODE, None)]);
    assert_eq!(sealed(&mut coordinator), []);
    let position = Position {
        seqno: 9,
        ..Position::default()
    };
    let answer = Message::Sealed {
        vb,
        term: seen.row(vb).unwrap().intent.unwrap(),
        position,
        complete: true,
        kept: false,
    };
    coordinator.message(NODE, &answer, 0);
    assert_eq!(sealed(&mut coordinator), [(NodeId(2), Some(position))]);
}
