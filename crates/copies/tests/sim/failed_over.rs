//! Nodes that operators failed over: they stay so, and others take their vBuckets.

use std::collections::BTreeSet;

use cluster::agreed::{Key, Node as Agreed, NodeState};
use cluster::coord::{Op, Request};
use cluster::{Condition, Copies, NodeId, Order, seals_needed};

use crate::failures::{active, all_are_served, controller, ready, serves, settle, until, victim};
use crate::node::CLUSTER;
use crate::world::World;

/// Longest time for this after healing.
const LIMIT_MS: u64 = 30_000;

impl World {
    /// Records the failovers of operators in a transaction that was made. Checks that no node ends such a
    /// failover by itself.
    pub(crate) fn note_failed_over(&mut self, by: usize, request: &Request) {
        let Request::Txn(txn) = request else {
            return;
        };
        for op in &txn.then {
            let (Op::Put { key, .. } | Op::Delete { key }) = op;
            let Some(Key::Node(node)) = Key::parse(CLUSTER, key) else {
                continue;
            };
            let Op::Put { value, .. } = op else {
                // A removed node comes back as a new one.
                self.failed_over.remove(&node);
                continue;
            };
            let written: Agreed = serde_json::from_str(value).expect("a node");
            if written.failed_over {
                self.failed_over.insert(node);
            } else if self.failed_over.remove(&node)
                && written.state != NodeState::Failed
                && usize::from(node.0) == by
            {
                let what = format!("{node:?} comes back though it was failed over");
                self.checks.fail(what);
            }
        }
    }

    /// Returns a vBucket whose active copy is on a failed-over node although there are enough other copies.
    fn not_replaced(&mut self) -> Option<String> {
        let view = self.agreed();
        let failed_over =
            |node: NodeId| view.nodes.get(&node).is_some_and(|of| of.value.failed_over);
        let mut rows = view.rows();
        let found = rows.find(|(vb, _, row)| {
            let nodes = row.chain.nodes();
            let is_whole = |node: &&NodeId| {
                view.is_well(**node) && view.condition(**node, *vb) == Condition::Whole
            };
            let others = nodes.iter().skip(1).filter(is_whole);
            let has_adopted = |node: &NodeId| {
                let copy = self.nodes[usize::from(node.0)].vbs.copy(*vb);
                copy.is_some_and(|copy| copy.position.branch >= row.adopted)
            };
            let is_enough = others.clone().count() >= seals_needed(nodes.len());
            let one_suffices = row.adopted == 0 || others.clone().any(has_adopted);
            row.chain.active().is_some_and(failed_over) && is_enough && one_suffices
        });
        found.map(|(vb, _, row)| format!("{vb:?} is not replaced: {row:?}"))
    }

    /// Waits until others have replaced the failed-over nodes; then operators recover these.
    pub(crate) fn recover_all(&mut self) -> Result<(), String> {
        let end_ms = self.now_ms + LIMIT_MS;
        while let Some(what) = self.not_replaced() {
            if self.now_ms > end_ms {
                self.tell_all();
                return Err(what);
            }
            self.run_on(500)?;
        }
        let end_ms = self.now_ms + LIMIT_MS;
        loop {
            let nodes = self.agreed().nodes.into_iter();
            let out = |of: &Agreed| of.failed_over || of.hands_over;
            let failed_over = nodes.filter(|(_, node)| out(&node.value));
            let failed_over: Vec<NodeId> = failed_over.map(|(node, _)| node).collect();
            if failed_over.is_empty() {
                return Ok(());
            }
            if self.now_ms > end_ms {
                self.tell_all();
                return Err(format!("{failed_over:?} are not recovered"));
            }
            for node in failed_over {
                self.order(Order::Recover(node));
            }
            self.run_on(2_000)?;
        }
    }

    /// Runs for a time. The time stops at a failure.
    fn run_on(&mut self, for_ms: u64) -> Result<(), String> {
        self.run(self.now_ms + for_ms);
        self.checks.failure.clone().map_or(Ok(()), Err)
    }
}

/// Returns the state of a node, and whether it renews its lease.
fn state(world: &mut World, node: NodeId) -> (NodeState, bool) {
    let view = world.agreed();
    (
        view.nodes[&node].value.state,
        view.alive.contains_key(&node),
    )
}

/// Recovers a running node, and gives it its share again.
fn recover(world: &mut World, id: NodeId) {
    world.order(Order::Recover(id));
    until(world, 10_000, |world| {
        state(world, id) == (NodeState::New, true)
    });
    settle(world);
}

#[test]
fn running_node_that_is_failed_over_stays_so_until_recovery() {
    for find in [victim, controller] {
        let mut world = ready(3, [2, 3]);
        let node = find(&mut world);
        let id = NodeId(node as u16);
        assert!(serves(&world, node) > 0);
        world.order(Order::FailOver(id));
        until(&mut world, 8_000, |world| {
            serves(world, node) == 0 && all_are_served(world)
        });
        let stays = |world: &mut World| {
            world.run(world.now_ms + 12_000);
            assert_eq!(state(world, id), (NodeState::Failed, false));
            assert!(!active(&world.agreed()).contains_key(&id));
            assert!(all_are_served(world));
            assert_eq!(world.checks.failure, None);
        };
        stays(&mut world);
        world.crash(node);
        world.start(node);
        stays(&mut world);
        // The node continues to see changes of etcd.
        world.watch_stalls_until_ms[node] = world.now_ms + 2_000;
        let revision = world.etcd.store.revision();
        world.etcd.store.compact(revision);
        stays(&mut world);
        recover(&mut world, id);
        until(&mut world, 10_000, |world| serves(world, node) > 0);
    }
}

#[test]
fn dead_node_that_was_failed_over_waits_for_its_recovery() {
    let mut world = ready(3, [2, 3]);
    let node = victim(&mut world);
    let id = NodeId(node as u16);
    world.crash(node);
    until(&mut world, 8_000, |world| all_are_served(world));
    world.order(Order::FailOver(id));
    world.run(world.now_ms + 1_000);
    world.start(node);
    world.run(world.now_ms + 12_000);
    assert_eq!(state(&mut world, id), (NodeState::Failed, false));
    recover(&mut world, id);
}

#[test]
fn graceful_failover_serves_clients_and_ends_with_a_failover() {
    let mut world = ready(3, [2, 3]);
    let node = victim(&mut world);
    let id = NodeId(node as u16);
    let chains = |world: &mut World| {
        let copies = |row: &cluster::Row| BTreeSet::from_iter(row.chain.nodes().to_vec());
        let view = world.agreed();
        view.rows()
            .map(|(_, _, row)| copies(row))
            .collect::<Vec<_>>()
    };
    let before = chains(&mut world);
    world.order(Order::FailOverGracefully(id));
    until(&mut world, 10_000, |world| {
        state(world, id).0 == NodeState::Failed
    });
    // Its active copies were taken over before.
    assert!(!active(&world.agreed()).contains_key(&id));
    assert!(all_are_served(&world));
    assert!(world.agreed().nodes[&id].value.failed_over);
    // No copy moved to another node.
    assert_eq!(chains(&mut world), before);
    recover(&mut world, id);
    until(&mut world, 10_000, |world| serves(world, node) > 0);
}

#[test]
fn a_graceful_failover_is_cancelled_or_ends_with_the_node() {
    let mut world = ready(3, [2, 3]);
    let node = victim(&mut world);
    let id = NodeId(node as u16);
    let hands_over = |world: &mut World| world.agreed().nodes[&id].value.hands_over;
    world.order(Order::FailOverGracefully(id));
    until(&mut world, 1_000, |world| hands_over(world));
    world.order(Order::Cancel);
    until(&mut world, 1_000, |world| !hands_over(world));
    world.run(world.now_ms + 5_000);
    assert_eq!(state(&mut world, id), (NodeState::Active, true));
    assert_eq!(world.lacks(), None);
    world.order(Order::FailOverGracefully(id));
    until(&mut world, 1_000, |world| hands_over(world));
    world.crash(node);
    until(&mut world, 8_000, |world| {
        state(world, id).0 == NodeState::Failed && all_are_served(world)
    });
    assert!(world.agreed().nodes[&id].value.failed_over);
    // A vBucket without another copy is not handed over.
    let mut world = ready(3, [1, 3]);
    let node = victim(&mut world);
    world.order(Order::FailOverGracefully(NodeId(node as u16)));
    world.run(world.now_ms + 3_000);
    assert!(
        world
            .agreed()
            .nodes
            .values()
            .all(|node| !node.value.hands_over)
    );
}

#[test]
fn nodes_that_are_all_failed_over_are_recovered_without_a_controller() {
    let mut world = ready(3, [2, 3]);
    for node in 0..3 {
        world.order(Order::FailOver(NodeId(node)));
        world.run(world.now_ms + 8_000);
    }
    let view = world.agreed();
    assert!(view.controller.is_none() && view.alive.is_empty());
    settle(&mut world);
}
