//! `settee cluster adopt`.

use serde_json::json;
use server::ClusterStatus;

use super::orders::{SILENT_MS, give, tell};
use super::view::{MemberLink, find_node};
use crate::connect::ConnectArgs;
use crate::exit::{Failure, Sysexit};
use crate::stderr::note;

/// Continue with the copies on the nodes, after etcd was restored from a backup or
/// lost everything
///
/// All copies are sealed, and the best one of each vBucket becomes active. Every node must run, except those
/// given up with --lost. Exit code 75 when some nodes do not answer, or when it does not end in time: then order
/// it again.
#[derive(Debug, clap::Args)]
pub(crate) struct AdoptArgs {
    /// Name of a node that does not come back: durable writes that only its copies have are lost
    #[arg(long, value_name = "NODE")]
    lost: Vec<String>,
    #[command(flatten)]
    connect: ConnectArgs,
    /// Print the cluster afterwards as JSON
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
}

/// Runs `cluster adopt`.
///
/// # Errors
/// No member can be asked, or none knows of a restore; nodes do not answer; it does not end in time.
pub(super) fn run(args: &AdoptArgs) -> Result<(), Failure> {
    let (mut link, status) = MemberLink::connect(&args.connect)?.with_most()?;
    if !status.etcd_went_back {
        let reason = "etcd has all that nodes have seen: there is nothing to adopt";
        return Err(Failure::new(Sysexit::Data, reason));
    }
    let lost = args
        .lost
        .iter()
        .map(|name| Ok(find_node(&status, name)?.id));
    let lost = lost.collect::<Result<Vec<u16>, Failure>>()?;
    all_answer(&silent(&status, &lost))?;
    let node = &status.node;
    if status.revision > 0 {
        note(format_args!(
            "buckets, collections, users and nodes are those that {node} knows, of revision {}",
            status.revision
        ));
    } else {
        note(format_args!(
            "no node has run since before the restore: buckets, collections, users and nodes are those of the \
             backup"
        ));
    }
    for name in &args.lost {
        note(format_args!("{name} is given up"));
    }
    let order = json!({ "adopt": { "epoch": status.seen_epoch, "lost": lost } });
    let mut missing = Vec::new();
    let ends = |now: &ClusterStatus| {
        let adopted = !now.etcd_went_back && now.epoch > status.seen_epoch;
        missing = if adopted {
            Vec::new()
        } else {
            silent(now, &lost)
        };
        adopted || !missing.is_empty()
    };
    give(&mut link, &order, ends).map_err(|failure| waits(&mut link, failure))?;
    all_answer(&missing)?;
    for bucket in link.status()?.1.unknown_buckets {
        note(format_args!(
            "of bucket {bucket} nothing is known but copies, which stay on the disks of nodes"
        ));
    }
    tell(&mut link, args.json, "copies are adopted")
}

/// Returns the error of an unfinished adoption: the nodes for which it waits, if known, else `failure`.
fn waits(link: &mut MemberLink, failure: Failure) -> Failure {
    match link.status() {
        Ok((_, status)) if !status.adoption_waits.is_empty() => {
            let nodes = status.adoption_waits.join(", ");
            let reason =
                format!("copies of {nodes} are not sealed yet: see to them, then order it again");
            Failure::new(Sysexit::TempFail, reason)
        }
        _ => failure,
    }
}

/// Returns an error if nodes do not answer.
fn all_answer(silent: &[String]) -> Result<(), Failure> {
    if silent.is_empty() {
        return Ok(());
    }
    let nodes = silent.join(", ");
    let reason = format!(
        "{nodes} do not answer: start them, or give up what only they have with --lost, and order it again"
    );
    Err(Failure::new(Sysexit::TempFail, reason))
}

/// Returns the nodes that do not answer and are not given up.
fn silent(status: &ClusterStatus, lost: &[u16]) -> Vec<String> {
    let others = status.nodes.iter().filter(|node| node.name != status.node);
    let silent = others.filter(|node| {
        let heard = node.silent_ms.is_some_and(|ms| ms < SILENT_MS);
        !heard && !lost.contains(&node.id)
    });
    silent.map(|node| node.name.clone()).collect()
}
