//! The rules of terms, seals, promotion, takeover, leases and old controllers as a model.
//!
//! Each case is explored in full within its budget. `-- --ignored` explores the largest one.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_macros,
    reason = "the sizes are part of a decision record"
)]

mod bugs;
mod cases;
mod controller;
mod model;
mod node;
mod setup;
mod state;

use stateright::{Checker, HasDiscoveries, Model};

use bugs::BUGS;
use cases::{CASES, LARGEST, case_for};
use setup::Cluster;

/// Checks that no state breaks a rule, and that every desired event is possible.
fn holds(name: &str, checker: &impl Checker<Cluster>) {
    let (states, depth) = (checker.unique_state_count(), checker.max_depth());
    println!("{name}: {states} states, depth {depth}");
    checker.assert_properties();
}

#[test]
fn the_rules_hold() {
    for (name, case) in CASES {
        holds(name, &case.checker().threads(2).spawn_bfs().join());
    }
}

#[test]
fn each_planted_bug_is_found() {
    for bug in BUGS {
        let (case, property) = case_for(bug);
        let planted = Cluster {
            bug: Some(bug),
            ..case
        };
        let checker = planted
            .checker()
            .threads(1)
            .finish_when(HasDiscoveries::AnyFailures)
            .spawn_bfs()
            .join();
        let states = checker.unique_state_count();
        let path = checker.discovery(property);
        let path = path.unwrap_or_else(|| panic!("{bug:?} is not found in {states} states"));
        println!(
            "{bug:?}: {states} states, {} steps",
            path.into_actions().len()
        );
    }
}

#[test]
#[ignore = "takes a minute of one core more"]
fn the_rules_hold_in_the_largest_case() {
    // Depth first keeps the queue of unexplored states short.
    holds("largest", &LARGEST.checker().threads(1).spawn_dfs().join());
}
