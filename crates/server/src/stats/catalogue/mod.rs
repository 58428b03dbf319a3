//! Every statistic there is, one row each: the groups it is part of, its name, its unit, what it
//! means, how it is had, and what it is called on the metrics page.
//!
//! In names `N` stands for a number, `STATE` for `active`, `replica` or `pending`, and `OP` for
//! the name of an opcode in small letters.

mod bucket;
mod dcp;
mod left_out;
mod node;
mod others;
mod page;
mod pressure;
mod settings;
mod vbuckets;

pub(super) use bucket::STATES;
pub(super) use dcp::{CONSUMERS, PREFIX_SUMS, PRODUCERS, STREAMS, TOTALS};
pub(super) use left_out::LEFT_OUT;
pub(super) use node::NODE;
pub(super) use others::OTHERS;
#[cfg(test)]
pub(super) use page::rows_of;
pub use page::stats_page;
pub(super) use vbuckets::VBUCKETS;

use super::figures::{BucketFigures, NodeFigures, StateSums, VbFigures};
use super::rows::Value;

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// Things.
    Count,
    Bytes,
    Seconds,
    Millis,
    Micros,
    Nanos,
    /// Seconds since 1970.
    Unix,
    Percent,
    /// 0 to 1.
    Ratio,
    Seqno,
    Bool,
    Text,
    Json,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::Count => "",
            Self::Bytes => "B",
            Self::Seconds => "s",
            Self::Millis => "ms",
            Self::Micros => "us",
            Self::Nanos => "ns",
            Self::Unix => "unix s",
            Self::Percent => "%",
            Self::Ratio => "ratio",
            Self::Seqno => "seqno",
            Self::Bool => "bool",
            Self::Text => "text",
            Self::Json => "JSON",
        }
    }
}

/// What a statistic is called on the metrics page, without `settee_`, unit and `_total`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Metric {
    /// It only grows.
    Counter(&'static str),
    /// It comes and goes.
    Gauge(&'static str),
}

/// What is known of a statistic.
#[derive(Clone, Copy, Debug)]
pub(super) struct About {
    pub(super) groups: &'static [&'static str],
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    /// One sentence without its full stop.
    pub(super) help: &'static str,
}

/// A statistic and how it is had.
pub(super) struct Row<F: 'static> {
    pub(super) about: About,
    pub(super) metric: Option<Metric>,
    pub(super) value: F,
}

/// A row of the node.
pub(super) type NodeRow = Row<fn(&NodeFigures<'_>) -> Value>;
/// A row of a bucket.
pub(super) type BucketRow = Row<fn(&BucketFigures<'_>) -> Value>;
/// A row of the vBuckets of a bucket that are in one state; its name follows `vb_STATE_`.
pub(super) type StateRow = Row<fn(&StateSums) -> Value>;
/// A row of a vBucket; its name follows `vb_N:`.
pub(super) type VbRow = Row<fn(&VbFigures) -> Value>;

/// `GROUPS "name" Unit "help" [Counter|Gauge "metric"], |figures| value;`
macro_rules! rows {
    ($($groups:ident $name:literal $unit:ident $help:literal $($kind:ident $metric:literal)?,
        |$figures:ident| $value:expr;)*) => {
        &[$($crate::stats::catalogue::Row {
            about: $crate::stats::catalogue::About {
                groups: $groups,
                name: $name,
                unit: $crate::stats::catalogue::Unit::$unit,
                help: $help,
            },
            metric: rows!(@metric $($kind $metric)?),
            value: |$figures| $crate::stats::rows::Value::from($value),
        }),*]
    };
    (@metric) => { None };
    (@metric $kind:ident $metric:literal) => {
        Some($crate::stats::catalogue::Metric::$kind($metric))
    };
}
use rows;

/// A group of statistics.
pub(super) struct Group {
    /// As it is asked for; empty for the general one.
    pub(super) name: &'static str,
    /// What may follow the name.
    pub(super) arguments: &'static str,
    /// Whether a bucket must be selected.
    pub(super) of_bucket: bool,
    /// Whether [`identity::Role::Memcached`] may ask for it.
    pub(super) memcached: bool,
    pub(super) help: &'static str,
}

const fn bucket_group(name: &'static str, arguments: &'static str, help: &'static str) -> Group {
    Group {
        name,
        arguments,
        of_bucket: true,
        memcached: false,
        help,
    }
}

const fn node_group(name: &'static str, arguments: &'static str, help: &'static str) -> Group {
    Group {
        name,
        arguments,
        of_bucket: false,
        memcached: false,
        help,
    }
}

/// The role of the memcached port may ask for it, too.
const fn open_to_memcached(mut group: Group) -> Group {
    group.memcached = true;
    group
}

/// Every group, in the order of the page.
pub(super) static GROUPS: &[Group] = &[
    open_to_memcached(bucket_group("", "", "Totals of the bucket and of the node")),
    bucket_group("vbucket", "[VB]", "State of every vBucket"),
    bucket_group(
        "prev-vbucket",
        "",
        "State of every vBucket before the bucket was opened",
    ),
    bucket_group("vbucket-details", "[VB]", "Figures of every vBucket"),
    bucket_group("vbucket-seqno", "[VB]", "Seqnos of every vBucket"),
    bucket_group(
        "durability-monitor",
        "[VB]",
        "Durable writes under way, and how far each node has come",
    ),
    bucket_group(
        "vbucket-durability-state",
        "[VB]",
        "Replication topology of every vBucket",
    ),
    bucket_group(
        "failovers",
        "[VB]",
        "Histories of every vBucket, 0 is the newest",
    ),
    bucket_group("checkpoint", "[VB]", "Changes held in memory, by vBucket"),
    bucket_group("hash", "[detail]", "Hash table of every vBucket"),
    bucket_group("range-scans", "[VB]", "Range scans that are under way"),
    open_to_memcached(bucket_group("memory", "", "Memory of the bucket")),
    bucket_group(
        "timings",
        "",
        "How long commands took, of all buckets together, and commits",
    ),
    bucket_group("locks", "", "How long vBuckets were locked"),
    open_to_memcached(bucket_group("warmup", "", "Progress of loading the bucket")),
    bucket_group("diskinfo", "[detail]", "Bytes on disk"),
    bucket_group("config", "", "Settings of the bucket"),
    bucket_group("workload", "", "Threads that work for the bucket"),
    open_to_memcached(bucket_group("uuid", "", "Identity of the bucket")),
    bucket_group(
        "collections",
        "[SCOPE.COLLECTION]",
        "Figures of every collection",
    ),
    bucket_group("collections-byid", "ID", "Figures of a collection"),
    bucket_group(
        "collections-details",
        "[VB]",
        "What every vBucket has of every collection",
    ),
    bucket_group("scopes", "[SCOPE]", "Figures of every scope"),
    bucket_group(
        "scopes-byid",
        "ID",
        "Figures of a scope and of its collections",
    ),
    bucket_group(
        "scopes-details",
        "[VB]",
        "Documents of every collection in every vBucket",
    ),
    bucket_group("manifest", "", "Names of scopes and collections"),
    bucket_group(
        "replication",
        "",
        "Whom the bucket follows, or who follows it",
    ),
    bucket_group(
        "dcp",
        "[JSON]",
        "Connections that stream changes, and their streams",
    ),
    bucket_group(
        "dcpagg",
        "[SEPARATOR]",
        "Connections that stream changes, by what their names begin with",
    ),
    bucket_group(
        "dcp-vbtakeover",
        "VB NAME",
        "What is left to be sent before a vBucket can be handed over",
    ),
    open_to_memcached(bucket_group(
        "key",
        "KEY VB [SCOPE.COLLECTION \\| 0xID]",
        "Metadata of a document",
    )),
    bucket_group(
        "vkey",
        "KEY VB [SCOPE.COLLECTION \\| 0xID]",
        "Metadata of a document, and whether the store has it too",
    ),
    node_group(
        "connections",
        "[ID \\| self]",
        "One row for each connection",
    ),
    node_group("bucket_details", "", "One row about all buckets"),
    node_group(
        "threads",
        "",
        "What every thread that serves connections did",
    ),
    node_group("clocks", "", "What reading the clocks costs"),
    node_group(
        "responses",
        "[all]",
        "How often each status was answered; with `all` those that never were, too",
    ),
    node_group(
        "reset",
        "[timings]",
        "Not statistics: forgets timings and counts of commands",
    ),
];

/// Where a row is told about: one group, or its metrics.
const GENERAL: &[&str] = &[""];

/// Every row of a bucket.
pub(super) fn bucket_rows() -> impl Iterator<Item = &'static BucketRow> {
    let buckets = bucket::BUCKET.iter().chain(pressure::PRESSURE);
    buckets.chain(settings::SETTINGS)
}

/// Every statistic of every group.
pub(super) fn all() -> impl Iterator<Item = (About, Option<Metric>)> {
    let node = NODE.iter().map(|row| (row.about, row.metric));
    let bucket = bucket_rows().map(|row| (row.about, row.metric));
    let states = STATES.iter().map(|row| (row.about, row.metric));
    let vbuckets = VBUCKETS.iter().map(|row| (row.about, row.metric));
    let others = OTHERS.iter().map(|about| (*about, None));
    bucket
        .chain(states)
        .chain(node)
        .chain(vbuckets)
        .chain(others)
}
