//! `settee cluster rebalance`, `drain`, `recover` and `remove`.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use server::{ClusterStatus, NodeStatus};

use super::view::{MemberLink, find_node};
use super::watch;
use crate::connect::ConnectArgs;
use crate::exit::{Failure, Sysexit};
use crate::output;

/// Interval of checks whether an order was carried out, and their longest duration.
pub(super) const LOOK: Duration = Duration::from_millis(100);
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Silence after which a node counts as not answering.
pub(super) const SILENT_MS: u64 = 3_000;

/// Make new nodes members, and move copies to their planned nodes
///
/// The moves continue without this command. Exit code 75 when the cluster does not begin in time; 66 when nothing runs
/// that could be paused or cancelled.
#[derive(Debug, clap::Args)]
#[expect(clippy::struct_excessive_bools, reason = "they are flags of a command")]
pub(crate) struct RebalanceArgs {
    /// Show the progress until it ends
    #[arg(long)]
    watch: bool,
    /// Start no more moves; those under way go on. Without --pause the rebalance goes on
    #[arg(long, conflicts_with_all = ["watch", "cancel"])]
    pause: bool,
    /// Start no more moves, and undo those that can be undone
    #[arg(long, conflicts_with = "watch")]
    cancel: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Print the cluster afterwards as JSON
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
}

/// Move all copies off a node
///
/// The node may be stopped once it has no copies. settee cluster recover makes it a member again.
#[derive(Debug, clap::Args)]
pub(crate) struct DrainArgs {
    /// Name of the node
    node: String,
    /// Show the progress until it ends
    #[arg(long)]
    watch: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Print the cluster afterwards as JSON
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
}

/// Make a node a member again after it came back, was failed over or drained, and reset the count of failovers
///
/// The node keeps its data, and fetches the changes that it lacks. settee cluster rebalance moves copies to it.
#[derive(Debug, clap::Args)]
pub(crate) struct RecoverArgs {
    /// Name of the node
    node: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Print the cluster afterwards as JSON
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
}

/// Take a node without copies out of the cluster
///
/// Move its copies away first: settee cluster drain for a node that runs, or settee cluster rebalance for one that has
/// failed. Then stop it: it serves nothing any more. If it is started again with the same --cluster, it joins as a new
/// node, and gets copies with the next rebalance. Ask another node than the one that is removed (--connect).
#[derive(Debug, clap::Args)]
pub(crate) struct RemoveArgs {
    /// Name of the node
    node: String,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Print the cluster afterwards as JSON
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
}

/// Runs `cluster rebalance`.
///
/// # Errors
/// The member cannot be asked, or no controller accepts the order; nothing runs that could be paused or cancelled.
pub(super) fn rebalance(args: &RebalanceArgs) -> Result<(), Failure> {
    let mut link = MemberLink::connect(&args.connect)?;
    let before = link.status()?.1;
    let (order, wanted, done) = match (args.pause, args.cancel) {
        (true, _) => ("pause", "paused", "no more moves begin"),
        (_, true) if before.rebalance == "idle" => {
            ("cancel", "idle", "no node hands over any more")
        }
        (_, true) => ("cancel", "idle", "the rebalance is cancelled"),
        _ => ("rebalance", "running", "the rebalance has begun"),
    };
    check_runs(order, &before)?;
    let begun = |now: &ClusterStatus| match order {
        "rebalance" => now.rebalance_began_after(&before),
        "cancel" => now.rebalance == wanted && !hands_over(now),
        _ => now.rebalance == wanted,
    };
    give(&mut link, &json!(order), begun)?;
    if args.watch {
        watch::until_settled(&mut link)?;
        return tell(&mut link, args.json, "the rebalance is done");
    }
    tell(&mut link, args.json, done)
}

/// Refuses to pause or cancel what does not run. A cancel ends graceful failovers as well.
fn check_runs(order: &str, now: &ClusterStatus) -> Result<(), Failure> {
    let word = match order {
        "pause" => "paused",
        "cancel" if !hands_over(now) => "cancelled",
        _ => return Ok(()),
    };
    if now.rebalance != "idle" {
        return Ok(());
    }
    let reason = format!("there is no rebalance that could be {word}");
    Err(Failure::new(Sysexit::NoInput, reason))
}

fn hands_over(now: &ClusterStatus) -> bool {
    now.nodes.iter().any(|node| node.state == "handing_over")
}

/// Runs `cluster drain`.
///
/// # Errors
/// As [`rebalance`]; the node does not exist.
pub(super) fn drain(args: &DrainArgs) -> Result<(), Failure> {
    let mut link = MemberLink::connect(&args.connect)?;
    let status = link.status()?.1;
    let node = find_node(&status, &args.node)?;
    if matches!(&*node.state, "failed" | "failed_over") {
        let reason = format!(
            "{} has failed: settee cluster rebalance puts its copies elsewhere",
            args.node
        );
        return Err(Failure::new(Sysexit::Data, reason));
    }
    let takes = |other: &NodeStatus| {
        other.id != node.id && other.alive && matches!(&*other.state, "active" | "new")
    };
    if !status.nodes.iter().any(takes) {
        let reason = format!(
            "no other node runs that could take the copies of {}",
            args.node
        );
        return Err(Failure::new(Sysexit::Data, reason));
    }
    let state = |now: &ClusterStatus| state_of(now, &args.node) == Some("draining");
    give(&mut link, &json!({ "drain": node.id }), state)?;
    let name = &args.node;
    if !args.watch {
        return tell(&mut link, args.json, &format!("{name} is being drained"));
    }
    watch::until_settled(&mut link)?;
    let status = link.status()?.1;
    let node = find_node(&status, name)?;
    let copies = node.active + node.replicas;
    if copies > 0 {
        let reason = format!("{name} still has {copies} copies: see settee cluster status");
        return Err(Failure::new(Sysexit::TempFail, reason));
    }
    tell(&mut link, args.json, &format!("{name} is drained"))
}

/// Runs `cluster recover`.
///
/// # Errors
/// As [`rebalance`]; the node does not exist, or has not come back.
pub(super) fn recover(args: &RecoverArgs) -> Result<(), Failure> {
    let mut link = MemberLink::connect(&args.connect)?;
    let status = link.status()?.1;
    let node = find_node(&status, &args.node)?;
    let order = json!({ "recover": node.id });
    let followed = |now: &ClusterStatus| {
        let state = state_of(now, &args.node);
        now.failovers == 0 && matches!(state, Some("active" | "failed"))
    };
    give(&mut link, &order, followed)?;
    let runs = node.state == "failed_over" && comes_back(&mut link, &args.node)?;
    if runs {
        give(&mut link, &order, followed)?;
    }
    let done = if state_of(&link.status()?.1, &args.node) == Some("failed") {
        "failovers are counted anew; the node is still failed: start it, and recover it then"
    } else {
        "the node is a member; settee cluster rebalance moves copies to it"
    };
    tell(&mut link, args.json, done)
}

/// Waits until a failed-over node removes its mark, which a running node does. Returns whether it did.
fn comes_back(link: &mut MemberLink, name: &str) -> Result<bool, Failure> {
    let began = Instant::now();
    loop {
        let now = link.status_of_controller()?.1;
        let silent_ms = find_node(&now, name)?.silent_ms;
        if state_of(&now, name) != Some("failed") {
            return Ok(true);
        }
        if silent_ms.is_none_or(|ms| ms > SILENT_MS) || began.elapsed() >= PATIENCE {
            return Ok(false);
        }
        thread::sleep(LOOK);
    }
}

/// Runs `cluster remove`.
///
/// # Errors
/// As [`rebalance`]; the node does not exist, or has copies.
pub(super) fn remove(args: &RemoveArgs) -> Result<(), Failure> {
    let mut link = MemberLink::connect(&args.connect)?;
    let status = link.status()?.1;
    let node = find_node(&status, &args.node)?;
    let copies = node.active + node.replicas;
    if copies > 0 {
        let reason = format!("{} has {copies} copies: {}", node.name, emptying(node));
        return Err(Failure::new(Sysexit::TempFail, reason));
    }
    let gone = |now: &ClusterStatus| now.nodes.iter().all(|other| other.id != node.id);
    give(&mut link, &json!({ "remove": node.id }), gone)?;
    tell(&mut link, args.json, &format!("{} is removed", args.node))
}

/// Returns what takes the copies off a node.
fn emptying(node: &NodeStatus) -> String {
    let name = &node.name;
    match &*node.state {
        "failed" | "failed_over" if node.active > 0 => format!(
            "{} of them are active, and no other copies can take over: start nodes that are gone, or settee cluster \
             recover one that was failed over, {name} or another",
            node.active
        ),
        "failed" | "failed_over" => {
            "settee cluster rebalance makes them anew on other nodes, unless their vBuckets wait for copies (settee \
             cluster status)"
                .to_owned()
        }
        _ => format!("settee cluster drain {name} moves them"),
    }
}

pub(super) fn state_of<'a>(status: &'a ClusterStatus, name: &str) -> Option<&'a str> {
    let node = status.nodes.iter().find(|node| node.name == name);
    node.map(|node| node.state.as_str())
}

/// Sends an order repeatedly until it has an effect: it may be lost on its way to the controller.
pub(super) fn give(
    link: &mut MemberLink,
    order: &Value,
    mut done: impl FnMut(&ClusterStatus) -> bool,
) -> Result<(), Failure> {
    let began = Instant::now();
    loop {
        link.order(order)?;
        let sent = Instant::now();
        while sent.elapsed() < LOOK * 20 {
            if done(&link.status()?.1) {
                return Ok(());
            }
            thread::sleep(LOOK);
        }
        if began.elapsed() >= PATIENCE {
            let reason = "the order was given, and the cluster has not followed it yet: see settee cluster status";
            return Err(Failure::new(Sysexit::TempFail, reason));
        }
    }
}

pub(super) fn tell(link: &mut MemberLink, json: bool, done: &str) -> Result<(), Failure> {
    if json {
        return output::print_json(&link.status()?.0);
    }
    output::print(format!("{done}\n").as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the status of a cluster with one node.
    fn status(rebalance: &str, state: &str) -> ClusterStatus {
        let told = json!({
            "cluster": "ours", "epoch": 1, "revision": 9, "node": "n1", "controller": "n1",
            "etcd_silent_ms": 0, "lease_left_ms": 4200, "rebalance": rebalance, "failovers": 0,
            "elections": 0, "moves": 0, "moves_left": 0,
            "nodes": [{ "name": "n1", "id": 1, "state": state, "alive": true, "disk_dead": false, "zone": 0,
                "host": "h", "kv": 11210, "version": "0.1.0", "active": 5, "replicas": 6, "held": null }],
            "buckets": [],
        });
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn a_rebalance_has_not_begun_because_of_another_change() {
        let before = status("idle", "active");
        let another = ClusterStatus {
            revision: 10,
            ..before.clone()
        };
        assert!(!another.rebalance_began_after(&before));
        assert!(status("running", "active").rebalance_began_after(&before));
        let without_moves = ClusterStatus {
            orders_revision: 11,
            ..another
        };
        assert!(without_moves.rebalance_began_after(&before));
    }

    #[test]
    fn a_node_with_copies_is_emptied_as_its_state_allows() {
        for (state, active, order) in [
            ("active", 5, "drain n1"),
            ("failed", 0, "rebalance"),
            ("failed_over", 0, "rebalance"),
            ("failed_over", 5, "recover"),
        ] {
            let mut node = status("idle", state).nodes.remove(0);
            node.active = active;
            let hint = emptying(&node);
            assert!(hint.contains(&format!("settee cluster {order}")), "{hint}");
        }
    }

    #[test]
    fn only_what_runs_is_paused_or_cancelled() {
        let refused = |order, rebalance, state| {
            let checked = check_runs(order, &status(rebalance, state));
            checked.err().map(|why| (why.code(), why.to_string()))
        };
        for (order, word) in [("pause", "paused"), ("cancel", "cancelled")] {
            assert_eq!(refused(order, "running", "active"), None);
            assert_eq!(refused(order, "paused", "active"), None);
            let reason = format!("there is no rebalance that could be {word}");
            assert_eq!(
                refused(order, "idle", "active"),
                Some((Sysexit::NoInput, reason))
            );
        }
        assert!(refused("pause", "idle", "handing_over").is_some());
        assert_eq!(refused("cancel", "idle", "handing_over"), None);
        assert_eq!(refused("rebalance", "idle", "active"), None);
    }
}
