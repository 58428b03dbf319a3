//! `settee cluster status` and `settee cluster nodes`.

use std::fmt::Write as _;

use server::{BucketStatus, ClusterStatus, NodeStatus};

use super::view::MemberLink;
use crate::connect::ConnectArgs;
use crate::exit::Failure;
use crate::output;

/// Show nodes, buckets and current work, as the controller sees them
///
/// Any member may be asked: it names the controller, which is then asked. Exit code 75 when vBuckets of a bucket
/// have no active copy.
#[derive(Debug, clap::Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Print the status as JSON
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
}

/// List the nodes of the cluster
#[derive(Debug, clap::Args)]
pub(crate) struct NodesArgs {
    #[command(flatten)]
    connect: ConnectArgs,
    /// Print them as a JSON array
    #[arg(long, env = "SETTEE_JSON")]
    json: bool,
}

/// Runs `cluster status`.
///
/// # Errors
/// The member cannot be asked, or vBuckets are not served.
pub(super) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let (value, status) = MemberLink::connect(&args.connect)?.status_of_controller()?;
    if args.json {
        output::print_json(&value)?;
    } else {
        output::print(text(&status).as_bytes())?;
    }
    let unserved = |bucket: &&BucketStatus| bucket.served < bucket.vbuckets.into();
    let unserved = status.buckets.iter().find(unserved);
    unserved.map_or(Ok(()), |bucket| {
        let left = usize::from(bucket.vbuckets) - bucket.served;
        let reason = format!("{left} vBuckets of bucket {} are not served", bucket.name);
        Err(Failure::new(crate::exit::Sysexit::TempFail, reason))
    })
}

/// Runs `cluster nodes`.
///
/// # Errors
/// The member cannot be asked.
pub(super) fn nodes(args: &NodesArgs) -> Result<(), Failure> {
    let (value, status) = MemberLink::connect(&args.connect)?.status()?;
    if args.json {
        return output::print_json(&value["nodes"]);
    }
    output::print(table(&node_rows(&status.nodes)).as_bytes())
}

fn text(status: &ClusterStatus) -> String {
    let mut text = String::new();
    let mut line = |of: std::fmt::Arguments<'_>| {
        let written = writeln!(text, "{of}");
        debug_assert!(written.is_ok(), "a text takes everything");
    };
    let ClusterStatus {
        cluster,
        epoch,
        revision,
        node,
        ..
    } = status;
    line(format_args!(
        "cluster {cluster}, epoch {epoch}, revision {revision}, as {node} sees it"
    ));
    let controller = status.controller.as_deref().unwrap_or("none");
    let tenths = |ms: u64| format!("{}.{}", ms / 1000, ms % 1000 / 100);
    line(format_args!(
        "controller: {controller}; etcd silent for {} s; lease of {node} for {} s",
        tenths(status.etcd_silent_ms),
        tenths(status.lease_left_ms)
    ));
    if let Some(problem) = &status.etcd_problem {
        line(format_args!(
            "etcd does not carry out requests of {node}: {problem}"
        ));
    }
    if status.etcd_went_back {
        line(format_args!(
            "etcd has less than {node} had seen: it was restored from a backup, and is not followed: settee cluster adopt goes on with the copies that there are"
        ));
    }
    let left = status.moves_left.map(|left| format!(", {left} to begin"));
    line(format_args!(
        "rebalance: {}; moves: {}{}; elections: {}; failovers: {}",
        status.rebalance,
        status.moves,
        left.unwrap_or_default(),
        status.elections,
        status.failovers
    ));
    for of in &waiting_moves(status) {
        line(format_args!("{of}"));
    }
    if let Some(vbuckets) = uneven(status) {
        line(format_args!(
            "copies are uneven: settee cluster rebalance would change {vbuckets} vBuckets"
        ));
    }
    for of in copy_lines(status).iter().chain(&node_lines(status)) {
        line(format_args!("{of}"));
    }
    text.push('\n');
    text += &table(&node_rows(&status.nodes));
    if !status.buckets.is_empty() {
        text.push('\n');
        text += &table(&bucket_rows(status));
    }
    text
}

/// Returns a line for each reason why moves wait.
fn waiting_moves(status: &ClusterStatus) -> Vec<String> {
    let has_no_disk = |node: &&NodeStatus| node.disk_full || !node.unmade.is_empty();
    let is_starved = |node: &&NodeStatus| !node.starved.is_empty();
    let waits = |moves: Option<usize>, what, lacks: &dyn Fn(&&NodeStatus) -> bool| {
        let moves = moves.filter(|moves| *moves > 0)?;
        let names: Vec<_> = status
            .nodes
            .iter()
            .filter(lacks)
            .map(|node| node.name.as_str())
            .collect();
        Some(format!(
            "{} for {what} of {}",
            waiting(moves, "move"),
            names.join(", ")
        ))
    };
    let space = waits(
        status.moves_without_space,
        "space on the disk",
        &has_no_disk,
    );
    let memory = waits(status.moves_without_memory, "memory", &is_starved);
    space.into_iter().chain(memory).collect()
}

/// Returns "1 THING waits" or "2 THINGs wait".
fn waiting(count: usize, thing: &str) -> String {
    if count == 1 {
        format!("1 {thing} waits")
    } else {
        format!("{count} {thing}s wait")
    }
}

/// Returns the number of vBuckets that a rebalance would change, if all else is settled: a node that comes back may need none.
fn uneven(status: &ClusterStatus) -> Option<usize> {
    let idle = status.rebalance == "idle" && status.moves + status.elections == 0;
    let settled = status.nodes.iter().all(|node| node.state == "active");
    status
        .misplaced
        .filter(|vbuckets| *vbuckets > 0 && idle && settled)
}

/// Returns lines about nodes: those that are not failed over, cannot make a bucket, have no memory, or are not reached.
fn node_lines(status: &ClusterStatus) -> Vec<String> {
    let nodes = || status.nodes.iter();
    let held = nodes().filter_map(|node| {
        let why = node.held.as_deref()?;
        Some(format!("{} is not failed over: {why}", node.name))
    });
    let advised = nodes().filter_map(|node| {
        let advice = match (&*node.state, node.alive) {
            ("new", true) => "settee cluster rebalance makes it a member",
            ("failed", false) => {
                "start it again, or settee cluster rebalance makes its copies on other nodes"
            }
            ("failed_over", _) => "settee cluster recover makes it a member again",
            ("draining", _) if node.active + node.replicas == 0 => {
                "it has no copies left: settee cluster remove takes it out"
            }
            _ => return None,
        };
        Some(format!("{} is {}: {advice}", node.name, node.state))
    });
    let unmade = nodes().filter(|node| !node.unmade.is_empty());
    let unmade = unmade.map(|node| {
        let buckets = node.unmade.join(", ");
        format!("{} cannot make {buckets}; its log says why", node.name)
    });
    let starved = nodes().filter(|node| !node.starved.is_empty());
    let starved = starved.map(|node| {
        let (name, buckets) = (&node.name, node.starved.join(", "));
        format!(
            "{name} has no memory for changes of {buckets}: delete documents, or give more quota"
        )
    });
    let unheard = nodes().filter(|node| !node.unheard.is_empty());
    let unheard = unheard.map(|node| {
        let (name, others) = (&node.name, node.unheard.join(", "));
        format!("{name} is not reached by {others}, where the log says why")
    });
    let advised = advised.chain(held);
    advised
        .chain(unmade)
        .chain(starved)
        .chain(unheard)
        .collect()
}

/// Returns lines about missing and damaged copies.
fn copy_lines(status: &ClusterStatus) -> Vec<String> {
    let lacking = status.waiting.iter().flatten().map(|lacking| {
        let first: Vec<_> = lacking.first.iter().map(u16::to_string).collect();
        let more = if lacking.vbuckets > first.len() {
            ", ..."
        } else {
            ""
        };
        let has = |bucket: &&BucketStatus| bucket.name == lacking.bucket;
        let of = status.buckets.iter().find(has).map(|of| &of.nodes);
        let is_full =
            |node: &&NodeStatus| node.disk_full && of.is_some_and(|of| of.contains_key(&node.name));
        let full = status.nodes.iter().filter(is_full);
        let full: Vec<_> = full.map(|node| node.name.as_str()).collect();
        let why = if full.is_empty() {
            String::new()
        } else {
            format!("; the disk is full: {}", full.join(", "))
        };
        format!(
            "bucket {}: {} for copies ({} missing): {}{more}{why}",
            lacking.bucket,
            waiting(lacking.vbuckets, "vBucket"),
            lacking.missing,
            first.join(", ")
        )
    });
    let damaged = status.damaged.iter().map(|damaged| {
        let unreadable = match damaged.unreadable.as_str() {
            "" => String::new(),
            ranges => format!("; not readable at all: {ranges}"),
        };
        let (bucket, node, ranges) = (&damaged.bucket, &damaged.node, &damaged.ranges);
        format!("bucket {bucket}: damaged copies on {node}: {ranges}{unreadable}")
    });
    lacking.chain(damaged).collect()
}

fn node_rows(nodes: &[NodeStatus]) -> Vec<Vec<String>> {
    let names = [
        "node", "state", "alive", "zone", "address", "version", "active", "replicas",
    ];
    let mut rows = vec![names.map(str::to_owned).to_vec()];
    rows.extend(nodes.iter().map(|node| {
        let alive = match node {
            NodeStatus { alive: false, .. } => "no",
            NodeStatus {
                disk_dead: true, ..
            } => "disk dead",
            NodeStatus {
                disk_full: true, ..
            } => "disk full",
            _ => "yes",
        };
        vec![
            node.name.clone(),
            node.state.clone(),
            alive.to_owned(),
            node.zone.to_string(),
            format!("{}:{}", node.host, node.kv),
            node.version.clone(),
            node.active.to_string(),
            node.replicas.to_string(),
        ]
    }));
    rows
}

/// Returns a row for each bucket; the copies on each node are counted as active ones and replicas.
fn bucket_rows(status: &ClusterStatus) -> Vec<Vec<String>> {
    let names = ["bucket", "vBuckets", "served", "copies", "lacking"];
    let nodes = status.nodes.iter().map(|node| node.name.clone());
    let mut rows = vec![
        names
            .iter()
            .map(|name| (*name).to_owned())
            .chain(nodes)
            .collect::<Vec<_>>(),
    ];
    rows.extend(status.buckets.iter().map(|bucket| {
        let on = status.nodes.iter().map(|node| {
            let copies = bucket.nodes.get(&node.name);
            copies.map_or_else(
                || "0+0".to_owned(),
                |copies| format!("{}+{}", copies.active, copies.replicas),
            )
        });
        let figures = [
            bucket.name.clone(),
            bucket.vbuckets.to_string(),
            bucket.served.to_string(),
            bucket.copies.to_string(),
            bucket.lacking.to_string(),
        ];
        figures.into_iter().chain(on).collect()
    }));
    rows
}

/// Formats rows in columns as wide as their longest word.
fn table(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |at: usize| {
        rows.iter()
            .map(|row| row[at].chars().count())
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<_> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells: Vec<_> = row
            .iter()
            .zip(&widths)
            .map(|(cell, width)| format!("{cell:width$}"))
            .collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> ClusterStatus {
        let told = serde_json::json!({
            "cluster": "ours", "epoch": 1, "revision": 9, "node": "n1", "controller": "n2",
            "etcd_silent_ms": 120, "etcd_problem": "no space", "lease_left_ms": 4200, "rebalance": "running", "failovers": 1,
            "elections": 0, "moves": 4, "moves_left": 300, "misplaced": 3,
            "moves_without_space": 2, "moves_without_memory": 1,
            "damaged": [
                { "bucket": "a", "node": "n1", "vbuckets": 3, "ranges": "1-2, 5", "unreadable": "5" },
                { "bucket": "a", "node": "node-2", "vbuckets": 1, "ranges": "7", "unreadable": "" },
            ],
            "waiting": [{ "bucket": "a", "vbuckets": 3, "missing": 1, "first": [7, 9] }],
            "nodes": [
                { "name": "n1", "id": 1, "state": "active", "alive": true, "disk_dead": false, "disk_full": true, "zone": 0,
                  "host": "h", "kv": 11210, "version": "0.1.0", "active": 5, "replicas": 6, "held": null,
                  "unheard": ["n3", "n4"], "unmade": ["a"] },
                { "name": "node-2", "id": 2, "state": "active", "alive": false, "disk_dead": false, "zone": 1,
                  "host": "h", "kv": 2, "version": "0.1.0", "active": 6, "replicas": 5, "held": "why",
                  "starved": ["a", "b"] },
            ],
            "buckets": [{ "name": "a", "vbuckets": 16, "copies": 2, "served": 13, "lacking": 3,
                "nodes": { "n1": { "active": 5, "replicas": 6 } } }],
        });
        serde_json::from_value(told).unwrap()
    }

    #[test]
    fn status_is_shown_in_columns() {
        let status = sample();
        let expected = "\
cluster ours, epoch 1, revision 9, as n1 sees it
controller: n2; etcd silent for 0.1 s; lease of n1 for 4.2 s
etcd does not carry out requests of n1: no space
rebalance: running; moves: 4, 300 to begin; elections: 0; failovers: 1
2 moves wait for space on the disk of n1
1 move waits for memory of node-2
bucket a: 3 vBuckets wait for copies (1 missing): 7, 9, ...; the disk is full: n1
bucket a: damaged copies on n1: 1-2, 5; not readable at all: 5
bucket a: damaged copies on node-2: 7
node-2 is not failed over: why
n1 cannot make a; its log says why
node-2 has no memory for changes of a, b: delete documents, or give more quota
n1 is not reached by n3, n4, where the log says why

node    state   alive      zone  address  version  active  replicas
n1      active  disk full  0     h:11210  0.1.0    5       6
node-2  active  no         1     h:2      0.1.0    6       5

bucket  vBuckets  served  copies  lacking  n1   node-2
a       16        13      2       3        5+6  0+0
";
        assert_eq!(text(&status), expected);
        let uneven = "copies are uneven: settee cluster rebalance would change 3 vBuckets\n";
        assert!(!text(&status).contains(uneven), "it runs");
        let idle = ClusterStatus {
            rebalance: "idle".to_owned(),
            moves: 0,
            ..status.clone()
        };
        assert!(text(&idle).contains(uneven));
        let missing = super::super::view::find_node(&status, "n3")
            .err()
            .unwrap()
            .to_string();
        assert!(missing.ends_with("there are: n1, node-2"), "{missing}");
    }

    #[test]
    fn status_names_the_order_that_goes_on() {
        for (state, alive, advised) in [
            ("new", true, true),
            ("new", false, false),
            ("failed", false, true),
            ("failed", true, false),
            ("failed_over", true, true),
            ("active", true, false),
            ("draining", true, false),
        ] {
            let mut status = sample();
            (status.nodes[1].state, status.nodes[1].alive) = (state.to_owned(), alive);
            let line = format!("\nnode-2 is {state}: ");
            assert_eq!(text(&status).contains(&line), advised, "{state}, {alive}");
        }
        let mut drained = sample();
        let node = &mut drained.nodes[1];
        node.state = "draining".to_owned();
        (node.active, node.replicas) = (0, 0);
        assert!(text(&drained).contains("\nnode-2 is draining: it has no copies left"));
    }
}
