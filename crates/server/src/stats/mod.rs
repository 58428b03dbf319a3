//! Statistics: groups of rows for STAT, and the metrics page.
//!
//! ```text
//!   STAT "vbucket-details 7"        GET /metrics
//!            |                           |
//!        collect()                   metrics()
//!            \                           /
//!             catalogue: one row per key     -> docs/stats.md
//!                        |
//!             figures: one look at node, bucket, vBucket
//! ```

mod catalogue;
mod collections;
mod dcp;
mod document;
mod figures;
mod long;
mod metrics;
mod moment;
mod node;
mod replication;
mod rows;
mod scans;
mod vbuckets;

#[cfg(test)]
mod tests;

pub use catalogue::stats_page;
pub(crate) use long::Walk;
pub(crate) use metrics::metrics;
pub(crate) use moment::utc;

use identity::Role;
use registry::{Registry, ServedBucket};

use catalogue::{BucketRow, GROUPS, NODE, NodeRow, STATES};
use figures::{BucketFigures, NodeFigures};
use rows::Rows;

/// What a request for statistics may look at.
pub(crate) struct StatScope<'a> {
    pub(crate) node: &'a Registry,
    /// The selected bucket.
    pub(crate) bucket: Option<&'a ServedBucket>,
    /// Who asks, if it is a connection.
    pub(crate) connection: Option<u64>,
}

/// Why there are no statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatError {
    /// No such group, or no such document.
    UnknownGroup,
    NoBucket,
    NoVbucket,
    UnknownCollection,
    UnknownScope,
    Argument(&'static str),
}

/// Where rows go: key and value.
pub(crate) type Sink<'a> = dyn FnMut(&str, &str) + 'a;

/// Whether a peer in this role may ask for a group; of groups that are none, everybody may hear so.
pub(crate) fn allows(role: Role, request: &str) -> bool {
    let name = request.split_ascii_whitespace().next().unwrap_or("");
    let group = GROUPS.iter().find(|group| group.name == name);
    match role {
        Role::Admin => true,
        Role::Memcached => group.is_none_or(|group| group.memcached),
    }
}

/// Gives the next rows of a group that may be long, from where `walk` stands; `None` for the
/// beginning, and at the end. See [`collect`].
///
/// Cost: some 8 KiB of rows, or figures of some vBuckets.
pub(crate) fn collect_part(
    request: &str,
    scope: &StatScope<'_>,
    walk: Option<Walk>,
    sink: &mut Sink<'_>,
) -> Result<Option<Walk>, StatError> {
    let mut words = request.split_ascii_whitespace();
    let name = words.next().unwrap_or("");
    let arguments: Vec<&str> = words.collect();
    let group = GROUPS
        .iter()
        .find(|group| group.name == name)
        .ok_or(StatError::UnknownGroup)?;
    if group.arguments.is_empty() && !arguments.is_empty() {
        return Err(StatError::UnknownGroup);
    }
    if group.of_bucket && scope.bucket.is_none() {
        return Err(StatError::NoBucket);
    }
    long::part((name, &arguments), scope, walk, &mut Rows::new(sink))
}

/// Gives the rows of a group; `request` is its name and arguments, separated by spaces.
///
/// Cost: O(rows). Of vBuckets at most one is locked at a time, for O(1). Only the groups
/// `diskinfo`, `vkey` and the general one ask the store, which may read files.
pub(crate) fn collect(
    request: &str,
    scope: &StatScope<'_>,
    sink: &mut Sink<'_>,
) -> Result<(), StatError> {
    let mut walk = collect_part(request, scope, None, sink)?;
    while walk.is_some() {
        walk = collect_part(request, scope, walk, sink)?;
    }
    Ok(())
}

/// All rows of a short group.
fn whole(
    (name, arguments): (&str, &[&str]),
    scope: &StatScope<'_>,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    let of_bucket = GROUPS
        .iter()
        .any(|group| group.name == name && group.of_bucket);
    match scope.bucket {
        Some(served) if of_bucket => bucket_group(name, arguments, (scope.node, served), rows),
        _ => node::collect(name, arguments, scope, rows),
    }
}

fn bucket_group(
    name: &str,
    arguments: &[&str],
    (node, served): (&Registry, &ServedBucket),
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    let figures = BucketFigures::of(node, served);
    match name {
        "" => {
            bucket_rows(name, &figures, rows);
            state_rows(&figures, rows);
            node_rows(name, &NodeFigures::of(node), rows);
            Ok(())
        }
        "timings" => {
            node::timings(node, rows);
            node::commit_timings(served, rows);
            Ok(())
        }
        "manifest" => collections::manifest(arguments, served, rows),
        "range-scans" => scans::collect(arguments, served, rows),
        "key" | "vkey" => document::key(name == "vkey", arguments, &figures, rows),
        "diskinfo" => match arguments {
            [] => {
                bucket_rows(name, &figures, rows);
                Ok(())
            }
            _ => Err(StatError::UnknownGroup),
        },
        "memory" | "locks" | "warmup" | "config" | "workload" | "uuid" => {
            bucket_rows(name, &figures, rows);
            Ok(())
        }
        "dcpagg" | "dcp-vbtakeover" => dcp::collect(name, arguments, served, rows),
        _ => Err(StatError::UnknownGroup),
    }
}

fn bucket_rows(group: &str, figures: &BucketFigures<'_>, rows: &mut Rows<'_, '_>) {
    let in_group = |row: &&BucketRow| row.about.groups.contains(&group);
    for row in catalogue::bucket_rows().filter(in_group) {
        rows.value(row.about.name, &(row.value)(figures));
    }
}

fn node_rows(group: &str, figures: &NodeFigures<'_>, rows: &mut Rows<'_, '_>) {
    let in_group = |row: &&NodeRow| row.about.groups.contains(&group);
    for row in NODE.iter().filter(in_group) {
        rows.value(row.about.name, &(row.value)(figures));
    }
}

fn state_rows(figures: &BucketFigures<'_>, rows: &mut Rows<'_, '_>) {
    let sums = figures.sums();
    let states = [
        ("active", &sums.active),
        ("replica", &sums.replica),
        ("pending", &sums.pending),
    ];
    for (state, sums) in states {
        rows.prefix(format_args!("vb_{state}_"));
        for row in STATES {
            rows.value(row.about.name, &(row.value)(sums));
        }
    }
    rows.prefix("");
}
