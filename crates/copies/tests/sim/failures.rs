//! The failure cases of a cluster by their numbers, as far as this crate concerns them. Tests of F3, F11,
//! F14, F15, F16 and F17 are next to the code.

use std::collections::BTreeMap;

use cluster::agreed::{NodeState, View};
use cluster::coordinator::forced;
use cluster::{Copies as _, NodeId, Order, Phase, Version};

use crate::node::Node;
use crate::world::World;

/// Creates a cluster whose nodes are members and serve.
pub(crate) fn ready(nodes: usize, copies: [usize; 2]) -> World {
    let mut world = World::new(1, nodes, copies, None);
    world.run(2_000);
    world.order(Order::Rebalance);
    world.run(8_000);
    assert_eq!(world.lacks(), None);
    world
}

/// Runs the world until a condition holds, for `limit_ms` at most.
pub(crate) fn until(world: &mut World, limit_ms: u64, is: impl Fn(&mut World) -> bool) {
    let end_ms = world.now_ms + limit_ms;
    while !is(world) {
        assert!(
            world.now_ms < end_ms,
            "not in {limit_ms} ms: {:?}",
            world.lacks()
        );
        world.run(world.now_ms + 1);
        assert_eq!(world.checks.failure, None);
    }
}

/// Heals everything; checks that everything is served and nothing was lost.
pub(crate) fn settle(world: &mut World) {
    world.heal();
    world.run(world.now_ms + 8_000);
    assert_eq!(world.recover_all(), Ok(()));
    world.order(Order::Rebalance);
    until(world, 30_000, |world| world.lacks().is_none());
}

/// Counts the active copies by node.
pub(crate) fn active(view: &View) -> BTreeMap<NodeId, usize> {
    let mut active = BTreeMap::new();
    for (_, _, row) in view.rows() {
        *active
            .entry(row.chain.active().expect("copies"))
            .or_default() += 1;
    }
    active
}

pub(crate) fn serves(world: &World, node: usize) -> usize {
    let serves = |vb: &&cluster::Vb| world.nodes[node].serves(**vb, world.now_ms);
    world.vbs.iter().filter(serves).count()
}

pub(crate) fn all_are_served(world: &World) -> bool {
    let nodes = 0..world.nodes.len();
    nodes.map(|node| serves(world, node)).sum::<usize>() == world.vbs.len()
}

fn cut_off(world: &mut World, node: usize, from: impl IntoIterator<Item = usize>) {
    for other in from {
        world.blocked.insert((node, other));
        world.blocked.insert((other, node));
    }
}

/// Returns a node with active copies that is not the controller.
pub(crate) fn victim(world: &mut World) -> usize {
    let view = world.agreed();
    let controller = view.controller.as_ref().map(|entry| entry.value.node);
    let active = active(&view);
    let node = active.keys().find(|node| Some(**node) != controller);
    usize::from(node.expect("active copies are spread").0)
}

pub(crate) fn controller(world: &mut World) -> usize {
    usize::from(
        world
            .agreed()
            .controller
            .expect("a controller")
            .value
            .node
            .0,
    )
}

#[test]
fn f1_a_node_that_dies_is_replaced_within_the_budget() {
    let mut world = ready(3, [2, 3]);
    let node = victim(&mut world);
    world.crash(node);
    until(&mut world, 4_000, |world| all_are_served(world));
    settle(&mut world);
}

#[test]
fn f1_dead_node_with_replicas_only_is_marked_outside_the_quota() {
    let mut world = ready(3, [2, 3]);
    let node = victim(&mut world);
    let id = NodeId(node as u16);
    let state = |world: &mut World| world.agreed().nodes[&id].value.state;
    let failovers = |world: &mut World| world.agreed().orders.map(|entry| entry.value.failovers);
    world.crash(node);
    until(&mut world, 4_000, |world| all_are_served(world));
    world.start(node);
    until(&mut world, 8_000, |world| state(world) == NodeState::New);
    world.run(world.now_ms + 2_000);
    let (before, counted) = (active(&world.agreed()), failovers(&mut world));
    assert!(!before.contains_key(&id) && counted == Some(1));
    world.crash(node);
    until(&mut world, 4_000, |world| state(world) == NodeState::Failed);
    world.run(world.now_ms + 2_000);
    assert!(all_are_served(&world));
    assert_eq!(active(&world.agreed()), before);
    assert_eq!(failovers(&mut world), counted);
    settle(&mut world);
}

#[test]
fn f15_a_node_that_comes_back_is_not_marked_again_before_it_is_alive() {
    let mut world = ready(3, [2, 3]);
    let node = victim(&mut world);
    let id = NodeId(node as u16);
    world.crash(node);
    until(&mut world, 4_000, |world| all_are_served(world));
    world.start(node);
    let state = |world: &mut World| world.agreed().nodes[&id].value.state;
    until(&mut world, 4_000, |world| state(world) == NodeState::New);
    // Its mark is cleared, and it reads the map.
    assert!(!world.agreed().alive.contains_key(&id));
    world.etcd.elects_until_ms = world.now_ms + 1_000;
    for _ in 0..1_500 {
        world.run(world.now_ms + 1);
        assert_eq!(state(&mut world), NodeState::New);
    }
    until(&mut world, 4_000, |world| {
        world.agreed().alive.contains_key(&id)
    });
    world.order(Order::Recover(id));
    until(&mut world, 1_000, |world| state(world) == NodeState::Active);
    settle(&mut world);
}

#[test]
fn f2_isolated_node_stops_before_another_one_starts() {
    let mut world = ready(3, [2, 3]);
    let node = victim(&mut world);
    cut_off(&mut world, node, 0..=3);
    world.run(world.now_ms + 2_000);
    assert_eq!(serves(&world, node), 0);
    until(&mut world, 3_000, |world| all_are_served(world));
    settle(&mut world);
}

#[test]
fn f3_node_without_etcd_serves_until_it_is_failed_over() {
    let mut world = ready(3, [2, 3]);
    let node = victim(&mut world);
    let before = active(&world.agreed());
    cut_off(&mut world, node, [3]);
    world.run(world.now_ms + 20_000);
    assert!(all_are_served(&world));
    assert_eq!(active(&world.agreed()), before);
    let order = Order::FailOver(world.nodes[node].id);
    world.order(order);
    until(&mut world, 3_000, |world| {
        serves(world, node) == 0 && all_are_served(world)
    });
    settle(&mut world);
}

#[test]
fn f3_failed_over_node_with_the_most_writes_is_replaced() {
    let mut world = ready(3, [3, 3]);
    let node = victim(&mut world);
    cut_off(&mut world, node, [3]);
    // Replicas take few changes at a time, so active copies are always ahead.
    world.changes_max = 0;
    world.run(world.now_ms + 2_500);
    let order = Order::FailOver(world.nodes[node].id);
    world.order(order);
    let id = NodeId(node as u16);
    until(&mut world, 8_000, |world| {
        !active(&world.agreed()).contains_key(&id)
    });
    let highest = world.agreed().rows().map(|(_, _, row)| row.term).max();
    assert!(highest < Some(5), "{highest:?}");
    world.changes_max = 8;
    settle(&mut world);
}

#[test]
fn f4_without_etcd_data_goes_on_and_nothing_changes() {
    let mut world = ready(3, [2, 3]);
    let before = active(&world.agreed());
    world.etcd.down_until_ms = world.now_ms + 60_000;
    world.order(Order::Drain(NodeId(0)));
    for _ in 0..50 {
        world.run(world.now_ms + 1_000);
        assert!(all_are_served(&world));
    }
    assert_eq!(active(&world.agreed()), before);
    settle(&mut world);
}

#[test]
fn f5_vbuckets_of_a_node_that_dies_without_etcd_wait_for_etcd() {
    let mut world = ready(3, [2, 3]);
    let node = victim(&mut world);
    let had = serves(&world, node);
    world.etcd.down_until_ms = world.now_ms + 20_000;
    world.crash(node);
    world.run(world.now_ms + 19_000);
    let nodes = 0..3;
    let served: usize = nodes.map(|node| serves(&world, node)).sum();
    // A vBucket whose only other copy is on the dead node waits as well.
    assert!(had > 0 && served > 0 && served <= world.vbs.len() - had);
    until(&mut world, 9_000, |world| all_are_served(world));
    settle(&mut world);
}

#[test]
fn f6_etcd_from_an_old_backup_is_not_followed_before_an_adoption() {
    restore(0);
}

#[test]
fn f6_old_backup_with_grown_revisions_is_not_followed() {
    restore(1_000);
}

/// Restores etcd from a backup with `writes` further writes.
fn restore(writes: usize) {
    let mut world = ready(3, [3, 3]);
    let backup = world.etcd.store.clone();
    let node = victim(&mut world);
    world.order(Order::FailOver(NodeId(node as u16)));
    world.make_bucket(2);
    world.run(world.now_ms + 10_000);
    settle(&mut world);
    let rows = |world: &World| -> Vec<(Version, cluster::Row)> {
        let agent = world.nodes[0].participant.agent();
        world
            .vbs
            .iter()
            .map(|vb| agent.row(*vb).expect("a row"))
            .map(|(version, row)| (version, *row))
            .collect()
    };
    let known = rows(&world);
    world.etcd.store = backup;
    for _ in 0..writes {
        world.etcd.put("/settee/other".to_owned(), String::new());
    }
    for second in 0..30 {
        world.run(world.now_ms + 1_000);
        assert!(all_are_served(&world), "{second}");
    }
    assert!(
        world
            .nodes
            .iter()
            .all(|node| node.participant.etcd_went_back())
    );
    assert_eq!(rows(&world), known);
    assert!(world.adopt(&[]));
    until(&mut world, 10_000, World::is_adopted);
    settle(&mut world);
    assert!(
        world
            .nodes
            .iter()
            .all(|node| !node.participant.etcd_went_back())
    );
    assert_eq!(world.nodes[0].participant.newest().version.epoch, 2);
}

#[test]
fn f6_adoption_waits_for_all_nodes_that_are_not_given_up() {
    let mut world = ready(3, [3, 3]);
    let backup = world.etcd.store.clone();
    let node = victim(&mut world);
    world.order(Order::FailOver(NodeId(node as u16)));
    world.run(world.now_ms + 5_000);
    world.restore(&backup);
    world.run(world.now_ms + 8_000);
    world.crash(node);
    assert!(world.adopt(&[]));
    world.run(world.now_ms + 10_000);
    assert!(!world.is_adopted());
    assert!(world.adopt(&[NodeId(node as u16)]));
    until(&mut world, 10_000, World::is_adopted);
    world.end_restore();
    until(&mut world, 10_000, |world| all_are_served(world));
    world.start(node);
    settle(&mut world);
}

#[test]
fn f16_an_operator_gives_up_the_active_and_a_replica_once() {
    let mut world = ready(3, [3, 3]);
    let node = victim(&mut world);
    let other = (0..3).find(|other| *other != node).expect("three nodes");
    world.crash(node);
    world.crash(other);
    world.run(world.now_ms + 10_000);
    let left = 3 - node - other;
    let had = serves(&world, left);
    let (id, epoch) = (NodeId(node as u16), world.agreed().epoch());
    let takes = forced(&world.agreed(), id).len();
    assert!(takes > 0 && had + takes < world.vbs.len());
    world.fail_over_unsafely(id);
    let order = world.last_unsafe.clone().expect("an order");
    until(&mut world, 5_000, |world| {
        serves(world, left) == had + takes
    });
    assert_eq!(world.agreed().epoch(), epoch + 1);
    // The same order again, when copies that it could take exist again.
    world.order(order.clone());
    world.run(world.now_ms + 2_000);
    world.order(Order::FailOver(NodeId(other as u16)));
    world.order(order);
    world.run(world.now_ms + 5_000);
    assert_eq!(serves(&world, left), had + takes);
    assert_eq!(world.agreed().epoch(), epoch + 1);
    settle(&mut world);
}

#[test]
fn f16_an_operator_gives_up_a_dead_replica_beside_an_active_copy_that_restarted() {
    let mut world = ready(3, [2, 3]);
    let dead = victim(&mut world);
    let restarted = (0..3).find(|other| *other != dead).expect("three nodes");
    world.crash(dead);
    world.run(world.now_ms + 10_000);
    assert!(all_are_served(&world));
    world.crash(restarted);
    world.start(restarted);
    world.run(world.now_ms + 10_000);
    assert!(!all_are_served(&world), "memory of two copies is lost");
    let (dead, view) = (NodeId(dead as u16), world.agreed());
    let served = (0..3).map(|node| serves(&world, node)).sum::<usize>();
    assert_eq!(forced(&view, dead).len(), world.vbs.len() - served);
    world.fail_over_unsafely(dead);
    until(&mut world, 5_000, |world| all_are_served(world));
    settle(&mut world);
}

#[test]
fn active_copies_of_a_node_that_stopped_cleanly_need_no_dead_replica() {
    let mut world = ready(3, [2, 3]);
    let dead = victim(&mut world);
    let stopped = (0..3).find(|other| *other != dead).expect("three nodes");
    world.crash(dead);
    world.run(world.now_ms + 10_000);
    assert!(all_are_served(&world));
    let before = serves(&world, stopped);
    world.shut_down(stopped);
    world.start(stopped);
    until(&mut world, 5_000, |world| all_are_served(world));
    assert!(before > 0 && serves(&world, stopped) == before);
    settle(&mut world);
}

#[test]
fn f8_a_controller_that_stops_in_an_election_is_overtaken() {
    let mut world = ready(3, [2, 3]);
    let (node, old) = (victim(&mut world), controller(&mut world));
    world.order(Order::FailOver(NodeId(node as u16)));
    until(&mut world, 2_000, |world| {
        world
            .agreed()
            .rows()
            .any(|(_, _, row)| row.intent.is_some())
    });
    world.run(world.now_ms + 50);
    world.nodes[old].paused_until_ms = world.now_ms + 6_000;
    until(&mut world, 5_999, |world| controller_is_not(world, old));
    settle(&mut world);
}

fn controller_is_not(world: &mut World, node: usize) -> bool {
    let controller = world.agreed().controller;
    controller.is_some_and(|entry| usize::from(entry.value.node.0) != node)
}

#[test]
fn f9_an_election_whose_controller_crashes_is_completed_by_the_next_one() {
    let mut world = ready(3, [3, 3]);
    let (node, old) = (victim(&mut world), controller(&mut world));
    cut_off(&mut world, node, 0..=3);
    let is_sealed = |world: &mut World| {
        let sealed = |node: &Node| {
            let vbs = node.vbs.vbuckets().into_iter();
            vbs.filter_map(|vb| node.vbs.copy(vb))
                .filter(|copy| copy.sealed)
                .count()
        };
        world.nodes.iter().map(sealed).sum::<usize>() > 1
    };
    until(&mut world, 5_000, is_sealed);
    world.crash(old);
    world.start(old);
    // vBuckets that were active on the controller's node wait for its copies: only one other copy is left.
    until(&mut world, 10_000, |world| {
        !active(&world.agreed()).contains_key(&NodeId(node as u16))
    });
    settle(&mut world);
}

#[test]
fn f10_takeover_continues_after_a_crash_of_the_old_active_copy() {
    let mut world = ready(4, [2, 3]);
    let node = victim(&mut world);
    world.order(Order::Drain(NodeId(node as u16)));
    until(&mut world, 10_000, |world| {
        let taken = |row: &cluster::Row| row.phase() == Some(Phase::TakeOver);
        let view = world.agreed();
        let mut vbs = view
            .rows()
            .filter(|(_, _, row)| taken(row))
            .map(|(vb, _, _)| vb);
        vbs.any(|vb| {
            let copy = world.nodes[node].vbs.copy(vb);
            copy.is_some_and(|copy| copy.sealed)
        })
    });
    world.crash(node);
    world.start(node);
    settle(&mut world);
    assert!(!active(&world.agreed()).contains_key(&NodeId(node as u16)));
}

#[test]
fn f12_machine_that_slept_through_its_lease_serves_nothing() {
    let mut world = ready(3, [2, 3]);
    let node = victim(&mut world);
    let wakes_ms = world.now_ms + 8_000;
    world.nodes[node].paused_until_ms = wakes_ms;
    world.run(wakes_ms - 1);
    assert!(all_are_served(&world));
    // Before any input, since its clock was running.
    world.now_ms = wakes_ms;
    assert!(world.nodes[node].runs(wakes_ms));
    assert_eq!(serves(&world, node), 0);
    settle(&mut world);
}

#[test]
fn moves_that_need_a_full_disk_wait_for_space_and_clients_do_not() {
    let mut world = ready(4, [2, 3]);
    let node = victim(&mut world);
    world.fill(node, true);
    world.run(world.now_ms + 1_000);
    let had = serves(&world, node);
    world.order(Order::Drain(NodeId(node as u16)));
    for _ in 0..100 {
        world.run(world.now_ms + 100);
        assert_eq!(serves(&world, node), had);
    }
    assert!(all_are_served(&world));
    let index = controller(&mut world);
    let waiting = |world: &World| {
        let coordinator = world.nodes[index].participant.coordinator();
        coordinator.progress().moves_without_space
    };
    assert!(had > 0 && waiting(&world) >= had);
    world.fill(node, false);
    until(&mut world, 30_000, |world| world.lacks().is_none());
    assert_eq!((serves(&world, node), waiting(&world)), (0, 0));
}

#[test]
fn takeover_from_a_full_disk_costs_no_more_than_a_failover() {
    let mut world = ready(4, [2, 3]);
    let node = victim(&mut world);
    world.order(Order::Drain(NodeId(node as u16)));
    until(&mut world, 10_000, |world| {
        let view = world.agreed();
        let of = |row: &cluster::Row| row.chain.active() == Some(NodeId(node as u16));
        let taken = |row: &cluster::Row| of(row) && row.phase() == Some(Phase::TakeOver);
        view.rows().any(|(_, _, row)| taken(row))
    });
    world.fill(node, true);
    until(&mut world, 3_700, |world| all_are_served(world));
    world.run(world.now_ms + 5_000);
    assert!(all_are_served(&world));
    settle(&mut world);
}

#[test]
fn node_with_a_full_disk_is_replaced_and_returns_once_it_has_space() {
    let mut world = ready(3, [3, 3]);
    let node = victim(&mut world);
    let id = NodeId(node as u16);
    world.fill(node, true);
    world.run(world.now_ms + 1_000);
    world.crash(node);
    world.start(node);
    until(&mut world, 8_000, |world| all_are_served(world));
    world.run(world.now_ms + 10_000);
    assert!(all_are_served(&world));
    assert_eq!(world.agreed().nodes[&id].value.state, NodeState::Failed);
    let highest = world.agreed().rows().map(|(_, _, row)| row.term).max();
    assert!(highest < Some(5), "{highest:?}");
    world.fill(node, false);
    until(&mut world, 5_000, |world| {
        world.agreed().nodes[&id].value.state == NodeState::New
    });
    settle(&mut world);
}

#[test]
fn a_new_bucket_has_no_copies_on_a_full_disk() {
    let mut world = ready(3, [2, 2]);
    let node = victim(&mut world);
    world.fill(node, true);
    world.run(world.now_ms + 1_000);
    world.make_bucket(2);
    until(&mut world, 3_000, |world| all_are_served(world));
    let bucket = world.vbs.last().expect("a bucket").bucket;
    let id = NodeId(node as u16);
    let view = world.agreed();
    let mut rows = view.rows().filter(|(vb, _, _)| vb.bucket == bucket);
    assert!(rows.all(|(_, _, row)| !row.has_copy(id)));
    settle(&mut world);
}

#[test]
fn new_bucket_is_served_although_a_node_dies_before_its_first_election() {
    for node in 0..3 {
        let mut world = ready(3, [2, 2]);
        world.crash(node);
        world.make_bucket(2);
        world.make_bucket(3);
        until(&mut world, 20_000, |world| all_are_served(world));
        world.start(node);
        settle(&mut world);
    }
}

#[test]
fn f13_a_node_whose_disk_died_serves_nothing_and_is_replaced() {
    let mut world = ready(3, [2, 3]);
    let node = victim(&mut world);
    world.disk_dies(node);
    assert_eq!(serves(&world, node), 0);
    until(&mut world, 5_000, |world| all_are_served(world));
    settle(&mut world);
}
