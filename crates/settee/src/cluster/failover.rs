//! `settee cluster failover`.

use std::fmt::Write as _;
use std::thread;
use std::time::Instant;

use serde_json::json;
use server::{ClusterStatus, NodeStatus, PromotedStatus, UnsafeStatus};

use super::orders::{LOOK, PATIENCE, give, state_of, tell};
use super::view::{MemberLink, find_node};
use crate::connect::ConnectArgs;
use crate::exit::{Failure, Sysexit};
use crate::output;
use crate::stderr::note;

/// Number of promoted vBuckets that are listed; --json lists all.
const LISTED_MAX: usize = 64;

/// Replace the active copies of a node by their replicas, if no promised data is lost
///
/// For a node that is gone, if the cluster does not fail it over by itself (settee cluster status shows the
/// reason), or for a running node that should no longer serve. The node stays failed over, even if it runs or
/// starts again, until settee cluster recover. Changes that it had not sent to its replicas are lost, except
/// durable writes; --graceful loses nothing. Exit code 75 when vBuckets have too few copies left.
#[derive(Debug, clap::Args)]
pub(crate) struct FailoverArgs {
    /// Name of the node
    node: String,
    /// Promote the best remaining copy even of vBuckets with too few copies: durable writes may be lost. Lists
    /// these vBuckets first, and afterwards the seqnos from which they continue
    #[arg(long = "unsafe")]
    unsafely: bool,
    /// For a running node: let its replicas take over first, so that nothing is lost, and wait for that. settee
    /// cluster recover makes it a member again
    #[arg(long, conflicts_with = "unsafely")]
    graceful: bool,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Print the cluster afterwards as JSON
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
}

/// Runs `cluster failover`.
///
/// # Errors
/// The member cannot be asked, or no controller accepts the order; the node does not exist; vBuckets have too few
/// copies left.
pub(super) fn run(args: &FailoverArgs) -> Result<(), Failure> {
    let mut link = MemberLink::connect(&args.connect)?;
    let before = link.status_of_controller()?.1;
    let (name, id) = (&args.node, find_node(&before, &args.node)?.id);
    if args.unsafely {
        return fail_over_unsafely(&mut link, &before, args);
    }
    if args.graceful {
        return fail_over_gracefully(&mut link, &before, args);
    }
    let state = |now: &ClusterStatus| state_of(now, name) == Some("failed_over");
    give(&mut link, &json!({ "fail_over": id }), state)?;
    let left = until_replaced(&mut link, name)?;
    if !left.unsafe_failover.is_empty() {
        let reason = format!(
            "{name} is failed over, and too few copies are left of some vBuckets: start what is gone, settee \
             cluster recover what runs and was failed over before, or order settee cluster failover {name} --unsafe, {}",
            cost(&left).replace('\n', "; ")
        );
        return Err(Failure::new(Sysexit::TempFail, reason));
    }
    if left.active > 0 {
        let reason = format!(
            "{name} is failed over, but {} vBuckets stay there: no other copy of them can be elected; settee cluster \
             recover {name} takes it back",
            left.active
        );
        return Err(Failure::new(Sysexit::TempFail, reason));
    }
    tell(&mut link, args.json, &format!("{name} is failed over"))
}

/// Lets other copies take over, and waits until all have done so.
fn fail_over_gracefully(
    link: &mut MemberLink,
    before: &ClusterStatus,
    args: &FailoverArgs,
) -> Result<(), Failure> {
    let (name, node) = (&args.node, find_node(before, &args.node)?);
    if !node.can_hand_over {
        let reason = format!(
            "{name} is no member that runs, or no other copy of some vBucket can take over: see settee cluster status"
        );
        return Err(Failure::new(Sysexit::Data, reason));
    }
    let state =
        |now: &ClusterStatus| matches!(state_of(now, name), Some("handing_over" | "failed_over"));
    give(link, &json!({ "fail_over_gracefully": node.id }), state)?;
    loop {
        let now = link.status_of_controller()?.1;
        match state_of(&now, name) {
            Some("failed_over") => return tell(link, args.json, &format!("{name} is failed over")),
            Some("handing_over") => thread::sleep(LOOK),
            _ => {
                let reason = format!("the failover of {name} was cancelled");
                return Err(Failure::new(Sysexit::TempFail, reason));
            }
        }
    }
}

/// Waits until a failed-over node has no active copies, or must keep some; returns the node's last status.
fn until_replaced(link: &mut MemberLink, name: &str) -> Result<NodeStatus, Failure> {
    let began = Instant::now();
    loop {
        let now = link.status_of_controller()?.1;
        let node = find_node(&now, name)?;
        let waiting: usize = now.waiting.iter().flatten().map(|one| one.vbuckets).sum();
        let waits = now.elections == 0 && waiting >= node.active;
        let decided = waits || !node.unsafe_failover.is_empty();
        if decided || began.elapsed() >= PATIENCE {
            return Ok(node.clone());
        }
        thread::sleep(LOOK);
    }
}

/// Prints the expected losses, orders the failover, and prints the result.
fn fail_over_unsafely(
    link: &mut MemberLink,
    before: &ClusterStatus,
    args: &FailoverArgs,
) -> Result<(), Failure> {
    let (name, node) = (&args.node, find_node(before, &args.node)?);
    if node.alive && !node.disk_dead {
        let reason = format!(
            "{name} renews its lease, so nothing has to be given up: settee cluster failover {name} does"
        );
        return Err(Failure::new(Sysexit::Data, reason));
    }
    if node.unsafe_failover.is_empty() {
        let reason = format!(
            "of {name} nothing has to be given up, or no copy is left that could be promoted: settee cluster failover \
             {name} does, and settee cluster status tells what waits"
        );
        return Err(Failure::new(Sysexit::Data, reason));
    }
    note(format_args!("an unsafe failover of {name}, {}", cost(node)));
    let well = |node: &&NodeStatus| node.alive && !node.disk_dead;
    let lost = before.nodes.iter().filter(|node| !well(node));
    for gone in lost.clone() {
        note(format_args!("{} is given up: {}", gone.name, silence(gone)));
    }
    let lost: Vec<u16> = lost.map(|node| node.id).collect();
    let (epoch, revision) = (before.epoch, before.revision);
    let order = json!({ "node": node.id, "epoch": epoch, "revision": revision, "lost": lost });
    let raised = |now: &ClusterStatus| now.epoch > before.epoch;
    give(link, &json!({ "fail_over_unsafe": order }), raised)?;
    let began = Instant::now();
    loop {
        let (value, now) = link.status_of_controller()?;
        if find_node(&now, name)?.unsafe_failover.is_empty() {
            if args.json {
                return output::print_json(&value);
            }
            return output::print(promoted(&now, before).as_bytes());
        }
        if began.elapsed() >= PATIENCE {
            let reason = "not all of them are promoted yet: see settee cluster status, and maybe order it again";
            return Err(Failure::new(Sysexit::TempFail, reason));
        }
        thread::sleep(LOOK);
    }
}

/// Returns the possible cost of an unsafe failover of a node, by bucket.
fn cost(node: &NodeStatus) -> String {
    let of = |bucket: &UnsafeStatus| {
        let without: Vec<_> = bucket.without.iter().map(String::as_str).collect();
        format!(
            "of {} vBuckets of bucket {} ({}), which lack {} copies more: those on {} are given up",
            bucket.vbuckets,
            bucket.bucket,
            bucket.ranges,
            bucket.missing,
            without.join(", ")
        )
    };
    let buckets: Vec<_> = node.unsafe_failover.iter().map(of).collect();
    let buckets = buckets.join("\n");
    format!("which may lose durable writes that were acknowledged,\n{buckets}")
}

fn silence(node: &NodeStatus) -> String {
    match node.silent_ms {
        _ if node.disk_dead => "its disk died".to_owned(),
        Some(ms) => format!("not heard for {} s", ms / 1000),
        None => "not heard since the controller started".to_owned(),
    }
}

/// Returns the vBuckets promoted since `before`, and the seqnos from which they continue.
fn promoted(now: &ClusterStatus, before: &ClusterStatus) -> String {
    let known = |one: &&PromotedStatus| {
        let mut known = before.promoted.iter().flatten();
        known
            .any(|old| (&old.bucket, old.vbucket, old.term) == (&one.bucket, one.vbucket, one.term))
    };
    let new: Vec<_> = now
        .promoted
        .iter()
        .flatten()
        .filter(|one| !known(one))
        .collect();
    let mut text = format!("{} vBuckets were promoted\n", new.len());
    for one in new.iter().take(LISTED_MAX) {
        let PromotedStatus {
            bucket,
            vbucket,
            node,
            seqno,
            ..
        } = one;
        let written = writeln!(
            text,
            "bucket {bucket}, vBucket {vbucket}: {node}, from seqno {seqno}"
        );
        debug_assert!(written.is_ok(), "a text takes everything");
    }
    if new.len() > LISTED_MAX {
        text += "--json has all of them\n";
    }
    text
}
