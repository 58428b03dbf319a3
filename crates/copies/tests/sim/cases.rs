//! The runs of the simulation.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, thread};

use cluster::{Condition, Copies as _, Order};
use copies::ConfirmedPosition;

use crate::bugs::{BUGS, Bug};
use crate::failures::ready;
use crate::moments::Theme;
use crate::producer::Reads;
use crate::subscriber::Subscriber;
use crate::world::World;

/// Themes of runs with an odd seed.
const THEMES: [Theme; 5] = [
    Theme::Moments,
    Theme::Elections,
    Theme::Cascades,
    Theme::Moves,
    Theme::Returns,
];
/// Of each 16 seeds, those whose runs restore etcd from a backup.
const RESTORES: [u64; 2] = [0, 9];
/// Number of seeds in a test run without `SETTEE_SEEDS`; they find each planted bug.
const SEEDS: u64 = 5_000;

#[expect(clippy::disallowed_methods, reason = "a run is chosen from outside")]
fn number(variable: &str) -> Option<u64> {
    env::var(variable).ok()?.parse().ok()
}

/// Runs a seed; returns its trace, or the failure.
fn run(seed: u64, bug: Option<Bug>, verbose: bool) -> Result<u64, String> {
    let nodes = 3 + usize::from(seed.is_multiple_of(3));
    let copies = [3, 2 + (seed % 2) as usize];
    let mut world = World::new(seed, nodes, copies, bug);
    world.verbose = verbose;
    if seed % 4 > 1 {
        world.strikes = 27;
        world.sync_per_mille = if seed % 4 == 2 { 500 } else { 50 };
    }
    world.risky = seed % 5 == 1;
    world.fills = seed % 7 == 2;
    world.damages = seed % 11 == 8;
    world.stops = seed % 7 == 5;
    world.deletes = seed / 16 % 3 == 1;
    world.squeezes = seed / 16 % 4 == 1;
    world.collects = seed / 16 % 5 == 2;
    world.expires = matches!(seed / 16 % 8, 5 | 6);
    world.divides = seed / 16 % 7 > 4;
    world.skews = seed / 16 % 3 == 2;
    if world.skews {
        world.skew_all();
    }
    if seed / 16 % 2 == 1 {
        let reads = match seed % 3 {
            1 => Reads::Unkeyed,
            _ => [Reads::All, Reads::Scope, Reads::Collection][(seed / 32 % 3) as usize],
        };
        world.subscriber = Some(Subscriber::new(seed, reads));
    }
    world.run(1_500);
    world.order(Order::Rebalance);
    world.run(4_000);
    if seed % 2 == 1 {
        world.theme = THEMES[(seed / 2) as usize % THEMES.len()];
        world.changes_max = [8, 2, 1][world.rng.index(3)];
    }
    let strikes = world.rng.range(5, 40);
    let (mut backup, restores) = (None, RESTORES.contains(&(seed % 16)));
    let backed_up = if restores {
        world.rng.range(0, strikes)
    } else {
        strikes
    };
    for strike in 0..strikes {
        if strike == backed_up {
            backup = Some((world.etcd.store.clone(), world.rng.range(strike, strikes)));
        }
        if let Some((backup, _)) = backup.take_if(|(_, at)| *at == strike) {
            world.restore(&backup);
        }
        // The election of an active copy that runs waits for the end of its lease.
        let longest_ms = [2_500, 6_000][usize::from(world.theme == Theme::Elections)];
        let until_ms = world.now_ms + world.rng.range(50, longest_ms);
        world.run(until_ms);
        if world.checks.failure.is_none() {
            world.strike();
        }
    }
    if world.restored.is_some() {
        adopt(&mut world)?;
    }
    settle(&mut world)
}

/// Heals everything, and adopts copies if a node knows that etcd was restored.
fn adopt(world: &mut World) -> Result<(), String> {
    world.heal();
    world.run(world.now_ms + 8_000);
    world.check_restored();
    // Nodes that were held back start during the adoption.
    world.nodes.iter_mut().for_each(|node| node.held = false);
    let begun_ms = world.now_ms;
    let mut needed = world.adopt(&[]);
    world.contend();
    world.run(world.now_ms + 500);
    world.heal();
    world.run(world.now_ms + 3_000);
    while !world.is_adopted() {
        needed |= world.adopt(&[]);
        if !needed {
            break;
        }
        if let Some(failure) = &world.checks.failure {
            return Err(failure.clone());
        }
        if world.now_ms > begun_ms + 60_000 {
            world.tell_all();
            return Err("no adoption in 60 s".to_owned());
        }
        world.run(world.now_ms + 3_000);
    }
    world.end_restore();
    Ok(())
}

/// Heals everything, and waits until the cluster is in its desired state.
fn settle(world: &mut World) -> Result<u64, String> {
    world.heal();
    world.run(world.now_ms + 8_000);
    world.recover_all()?;
    let healed_ms = world.now_ms;
    world.order(Order::Rebalance);
    loop {
        let until_ms = world.now_ms + 500;
        world.run(until_ms);
        world.start_all();
        if let Some(failure) = &world.checks.failure {
            return Err(failure.clone());
        }
        // Then an operator restarts them, and moves need as long again as without damage.
        if world.now_ms > healed_ms + 30_000 {
            world.restart_damaged();
        }
        match world.lacks() {
            None => break,
            Some(lacks) if world.now_ms > healed_ms + 90_000 => {
                world.tell_all();
                return Err(format!("90 s after healing: {lacks}"));
            }
            Some(_) => {}
        }
    }
    let before = world.checks.acknowledged.clone();
    world.sync_per_mille = 500;
    let settled_ms = world.now_ms;
    loop {
        world.run(world.now_ms + 500);
        if let Some(failure) = &world.checks.failure {
            return Err(failure.clone());
        }
        if world.now_ms > settled_ms + 10_000 {
            // Where no copy is whole, all stay, and replicas do not follow.
            world.restart_damaged();
        }
        let served = |vb| world.checks.acknowledged.get(vb) > before.get(vb);
        match world.vbs.iter().find(|vb| !served(vb)).copied() {
            None => return same(world),
            Some(vb) if world.now_ms > settled_ms + 20_000 => {
                world.tell_all();
                return Err(format!("no write of {vb:?} is acknowledged"));
            }
            Some(_) => {}
        }
    }
}

/// Waits until all copies are equal, without writes of clients.
fn same(world: &mut World) -> Result<u64, String> {
    world.quiet = true;
    world.set_clocks();
    let quiet_ms = world.now_ms;
    loop {
        world.run(world.now_ms + 500);
        if let Some(failure) = &world.checks.failure {
            return Err(failure.clone());
        }
        match world.differs().or_else(|| world.subscriber_differs()) {
            None => return Ok(world.trace),
            Some(what) if world.now_ms > quiet_ms + 40_000 => return Err(what),
            Some(_) => {}
        }
    }
}

#[test]
fn clusters_keep_their_promises() {
    let (one, many) = (number("SETTEE_SEED"), number("SETTEE_SEEDS"));
    let from = one.unwrap_or(0);
    let count = many.unwrap_or(if one.is_some() { 1 } else { SEEDS });
    let verbose = one.is_some() && many.is_none();
    let fails = |seed: u64| Some((seed, run(seed, None, verbose).err()?));
    let half = |first: u64| (first..from + count).step_by(2).find_map(fails);
    let failed = thread::scope(|scope| {
        let other = scope.spawn(|| half(from + 1));
        half(from).or(other.join().expect("a run does not panic"))
    });
    if let Some((seed, wrong)) = failed {
        panic!("seed {seed}: {wrong}");
    }
}

#[test]
fn the_same_seed_has_the_same_trace() {
    for seed in 0..20 {
        assert_eq!(run(seed, None, false), run(seed, None, false));
    }
}

#[test]
fn a_node_that_dies_is_replaced_and_comes_back() {
    let mut world = World::new(1, 3, [2, 3], None);
    world.run(2_000);
    world.order(Order::Rebalance);
    world.run(8_000);
    assert_eq!(world.lacks(), None);
    world.crash(0);
    world.run(8_000 + 6_000);
    assert_eq!(world.lacks(), None);
    world.start(0);
    world.run(20_000);
    world.order(Order::Rebalance);
    world.run(40_000);
    assert_eq!(world.lacks(), None);
    let view = world.agreed();
    let active = view
        .rows()
        .filter(|(_, _, row)| row.chain.active() == Some(world.nodes[0].id));
    assert!(active.count() > 0);
    assert_eq!(world.checks.failure, None);
}

#[test]
fn node_that_dies_as_a_move_target_blocks_no_vbucket() {
    for seed in 0..200 {
        let mut world = World::new(seed, 3, [2, 3], None);
        world.run(2_000);
        world.order(Order::Rebalance);
        world.run(8_000);
        world.crash(0);
        world.run(8_000 + 8_000);
        world.start(0);
        world.run(20_000);
        world.order(Order::Rebalance);
        // At a random moment of the moves back.
        world.run(20_000 + 20 * (seed % 60));
        world.crash(0);
        world.run(world.now_ms + 15_000);
        let view = world.agreed();
        let elected = view.rows().filter(|(_, _, row)| row.intent.is_some());
        assert_eq!((seed, elected.count()), (seed, 0));
        assert_eq!(world.checks.failure, None);
    }
}

#[test]
fn dropped_bucket_is_removed_from_every_node() {
    let mut world = ready(3, [2, 3]);
    world.crash(2);
    let dropped = world.vbs[0].bucket;
    world.drop_bucket(dropped);
    world.make_bucket(2);
    world.run(world.now_ms + 2_000);
    let is_there = |node: usize| world.nodes[node].disks.contains_key(&dropped);
    assert_eq!([0, 1, 2].map(is_there), [false, false, true]);
    world.start(2);
    world.run(world.now_ms + 10_000);
    world.order(Order::Rebalance);
    world.run(world.now_ms + 10_000);
    assert_eq!(world.lacks(), None);
    assert_eq!(world.checks.failure, None);
}

#[test]
fn drained_node_is_removed_and_returns_as_a_new_node() {
    let mut world = ready(4, [2, 3]);
    let node = world.nodes[3].id;
    world.order(Order::Remove(node));
    world.run(world.now_ms + 2_000);
    assert!(world.agreed().nodes.contains_key(&node), "it has copies");
    world.order(Order::Drain(node));
    world.run(world.now_ms + 10_000);
    assert_eq!(world.lacks(), None);
    world.order(Order::Remove(node));
    world.run(world.now_ms + 3_000);
    let view = world.agreed();
    assert!(!view.nodes.contains_key(&node) && !view.alive.contains_key(&node));
    assert!(world.nodes[3].participant.is_removed());
    assert_ne!(view.controller.map(|c| c.value.node), Some(node));
    world.heal();
    world.run(world.now_ms + 3_000);
    world.order(Order::Rebalance);
    world.run(world.now_ms + 15_000);
    assert_eq!(world.lacks(), None);
    let view = world.agreed();
    assert!(view.rows().any(|(_, _, row)| row.has_copy(node)));
    assert_eq!(world.checks.failure, None);
}

#[test]
fn damaged_copies_are_renewed_without_an_operator() {
    for (place, runs) in [(0, true), (0, false), (1, true), (1, false)] {
        let mut world = ready(3, [2, 3]);
        let vb = world.vbs[0];
        let before = *world.agreed().row(vb).expect("a row");
        let node = before.chain.nodes()[place];
        let copy = |world: &World| {
            let copy = world.nodes[usize::from(node.0)].vbs.copy(vb);
            copy.map(|copy| copy.condition)
        };
        world.harm(usize::from(node.0), vb, runs);
        assert_ne!(copy(&world), Some(Condition::Whole));
        world.run(world.now_ms + 10_000);
        let after = *world.agreed().row(vb).expect("a row");
        assert_eq!(after.chain.nodes().len(), before.chain.nodes().len());
        assert!(after.chain.holds(node) && after.term > before.term);
        assert_eq!(
            (copy(&world), world.lacks()),
            (Some(Condition::Whole), None)
        );
        assert_eq!(world.checks.failure, None);
    }
}

#[test]
fn damaged_only_copy_stays_as_it_is() {
    for runs in [true, false] {
        let mut world = ready(3, [1, 1]);
        let vb = world.vbs[0];
        let before = *world.agreed().row(vb).expect("a row");
        let node = usize::from(before.chain.nodes()[0].0);
        world.harm(node, vb, runs);
        world.order(Order::Drain(world.nodes[node].id));
        world.run(world.now_ms + 20_000);
        assert_eq!(world.agreed().row(vb), Some(&before));
        assert_eq!(world.nodes[node].serves(vb, world.now_ms), runs);
        assert_eq!(world.checks.failure, None);
    }
}

/// Searches for a planted bug, beginning with the seed that found it last.
fn find(bug: Bug, first: u64, seeds: u64) -> Option<(u64, String)> {
    let seeds = (first..seeds).chain(0..first.min(seeds));
    let mut runs = seeds.map(|seed| (seed, run(seed, Some(bug), false)));
    runs.find_map(|(seed, run)| Some((seed, run.err()?)))
}

#[test]
#[expect(
    clippy::disallowed_macros,
    reason = "the seeds are for the decision record"
)]
fn planted_bugs_are_found() {
    let seeds = number("SETTEE_SEEDS").unwrap_or(SEEDS);
    let next = AtomicUsize::new(0);
    let look = || {
        let mut hidden = Vec::new();
        while let Some((bug, found)) = BUGS.get(next.fetch_add(1, Ordering::Relaxed)) {
            match find(*bug, *found, seeds) {
                Some((seed, wrong)) => eprintln!("{bug:?}: seed {seed}: {wrong}"),
                None => hidden.push(*bug),
            }
        }
        hidden
    };
    let hidden = thread::scope(|scope| {
        let other = scope.spawn(look);
        let mut hidden = look();
        hidden.extend(other.join().expect("a run does not panic"));
        hidden
    });
    assert_eq!(hidden, Vec::new());
}

#[test]
fn unchanged_copies_are_confirmed_without_a_list() {
    let mut world = ready(3, [2, 3]);
    let (peer, of) = (world.nodes[1].id, &mut world.nodes[0]);
    let mut answer = |known| {
        let told = of.confirms_to.entry(peer).or_default();
        let all = of.vbs.buckets.values().map(|bucket| &bucket.copies);
        let answer = told.answer((peer, known), of.boot, all);
        answer.expect("copies follow the peer")
    };
    let whole = answer(ConfirmedPosition::default());
    assert!(whole.since == 0 && !whole.buckets.is_empty());
    let again = answer(whole.at);
    let unchanged = (whole.at.version, whole.at, 0);
    assert_eq!((again.since, again.at, again.buckets.len()), unchanged);
    let of_former_start = ConfirmedPosition {
        boot: 0,
        ..whole.at
    };
    assert_eq!(answer(of_former_start), whole);
}
