//! Groups about the node: connections, threads, clocks, timings.

use std::collections::BTreeMap;
use std::time::Duration;

use bucket::{Counters, HistogramBucket, WarmupStage};
use registry::timings::{Merged, Timings};
use registry::{BucketKind, ClusterStatus, Registry, ServedBucket};
use serde_json::{Value, json};
use wire::{Opcode, Status};

use super::catalogue::CLUSTER;
use super::figures::{BucketFigures, NodeFigures, workers};
use super::listed::node_rows;
use super::rows::Rows;
use super::scope::{GroupRequest, StatError, StatScope};

const NO_CLUSTER: StatError = StatError::NothingToTell("the node is in no cluster");
/// Number of clock reads that are timed together.
const LOOKS: u64 = 64;

/// Writes a group that needs no bucket.
pub(super) fn collect(
    request: GroupRequest<'_>,
    scope: &StatScope<'_>,
    rows: &mut Rows<'_, '_>,
) -> Result<(), StatError> {
    let (node, group) = (scope.node, request.group.name);
    match (group, request.arguments) {
        ("connections", ["self"]) => {
            let asks = scope.connection.ok_or(StatError::UnknownGroup)?;
            connection(asks, scope, rows);
        }
        ("connections", [id]) => {
            let id = id
                .parse()
                .map_err(|_| StatError::Argument("the connection is not a number"))?;
            connection(id, scope, rows);
        }
        ("bucket_details", []) => rows.row("bucket details", bucket_details(node)),
        ("threads", []) => {
            node_rows(group, &NodeFigures::of(node), rows);
            for (index, timings) in workers(node).enumerate() {
                rows.row(format_args!("worker_{index}:commands"), timings.total());
            }
        }
        ("cluster", []) => {
            let member = node.cluster.get().ok_or(NO_CLUSTER)?;
            let status = ClusterStatus::with_plan(&**member);
            let json = serde_json::to_string(&status).expect("its keys are texts");
            rows.row("status", json);
            for row in CLUSTER {
                rows.value(row.about.name, &(row.value)(&status));
            }
        }
        ("settings", []) => rows.row("", settings(node)),
        ("audit", []) => node_rows(group, &NodeFigures::of(node), rows),
        ("clocks", []) => clocks(node, rows),
        ("responses", []) => responses(node, false, rows),
        ("responses", ["all"]) => responses(node, true, rows),
        ("reset", [] | ["timings"]) => workers(node).for_each(Timings::reset),
        _ => return Err(StatError::UnknownGroup),
    }
    Ok(())
}

/// Number of connections in one part.
const PART_CONNECTIONS: usize = 8;

/// Writes the rows of some connections after a given one; returns the last one written if there are more.
pub(super) fn some_connections(
    after: u64,
    scope: &StatScope<'_>,
    rows: &mut Rows<'_, '_>,
) -> Option<u64> {
    let some = scope.node.connections.some_after(after, PART_CONNECTIONS);
    for info in &some {
        rows.row("", info.to_json());
    }
    let last = some.last().filter(|_| some.len() == PART_CONNECTIONS);
    last.map(|info| info.id)
}

fn connection(id: u64, scope: &StatScope<'_>, rows: &mut Rows<'_, '_>) {
    let some = scope.node.connections.some_after(id.saturating_sub(1), 1);
    if let Some(info) = some.first().filter(|info| info.id == id) {
        rows.row("", info.to_json());
    }
}

fn bucket_details(node: &Registry) -> Value {
    let mut clients: BTreeMap<String, u64> = BTreeMap::new();
    for info in node.connections.all() {
        let selected = info.to_json()["bucket"].as_str().unwrap_or("").to_owned();
        *clients.entry(selected).or_default() += 1;
    }
    let clients_of = |name: &str| clients.get(name).copied().unwrap_or(0);
    let mut buckets = vec![json!({
        "index": 0, "name": "", "state": "ready", "type": "No Bucket", "clients": clients_of(""),
    })];
    for (index, served) in node.all_buckets().iter().enumerate() {
        let state = match served.bucket.warmup().stage() {
            WarmupStage::Done => "ready",
            WarmupStage::Loading => "loading",
            WarmupStage::Failed => "failed",
        };
        let kind = match served.kind() {
            BucketKind::Couchbase => "Couchbase",
            BucketKind::Ephemeral => "Ephemeral",
        };
        buckets.push(json!({
            "index": index + 1, "name": served.name(), "state": state, "type": kind,
            "clients": clients_of(served.name()),
        }));
    }
    json!({ "buckets": buckets })
}

/// Returns the settings for connections.
fn settings(node: &Registry) -> Value {
    json!({
        "max_connections": node.connections.max(),
        "threads": node.timings.len(),
        "connections_held_limit": node.buffers.limit(),
        "interfaces": {
            "host": node.listen.to_string(), "kv": node.ports.kv, "kv_tls": node.ports.kv_tls,
            "http": node.ports.http, "https": node.ports.https,
            "memcached": node.ports.memcached,
        },
        "seqno_persistence_timeout": node.waits.persistence.as_secs(),
        "pending_vbucket_timeout": node.waits.pending.as_secs(),
        "dcp_idle_timeout": node.waits.silence.as_secs(),
        "audit_enabled": node.audit.is_on(),
    })
}

fn clocks(node: &Registry, rows: &mut Rows<'_, '_>) {
    let clock = &node.clock;
    let cost_ns = |look: &dyn Fn() -> u64| {
        let start = clock.mono_ns();
        let mut last = start;
        for _ in 0..LOOKS {
            last = last.max(look());
        }
        (last - start) / LOOKS
    };
    rows.row("clock_fine_overhead_ns", cost_ns(&|| clock.now().mono_ns));
    rows.row("clock_coarse_overhead_ns", cost_ns(&|| clock.mono_ns()));
    rows.row(
        "clock_measurement_period_ns",
        Duration::from_nanos(1).as_nanos(),
    );
}

/// Writes rows for every opcode that was used. The edges of the histogram are powers of two, in microseconds.
pub(super) fn timings(node: &Registry, rows: &mut Rows<'_, '_>) {
    for opcode in Opcode::all() {
        let merged = Merged::of(workers(node), opcode.0);
        let total = merged.total();
        if total == 0 {
            continue;
        }
        let name = opcode.name().to_ascii_lowercase();
        rows.prefix(format_args!("{name}_cmd_"));
        rows.row("mean", merged.sum_ns() / total / 1000);
        for (low_us, high_us, count) in power_buckets(&merged) {
            rows.row(format_args!("{low_us},{high_us}"), count);
        }
    }
    rows.prefix("");
}

/// Writes the histogram of commits, with names that begin with `prefix`.
pub(super) fn commit_timings(served: &ServedBucket, prefix: &str, rows: &mut Rows<'_, '_>) {
    rows.prefix(format_args!("{prefix}commit_"));
    let counters = served.bucket.counters();
    let [took_us, commits] = [&counters.commit_us, &counters.commits].map(Counters::read);
    if let Some(mean_us) = took_us.checked_div(commits) {
        rows.row("mean", mean_us);
    }
    for HistogramBucket { low, high, count } in counters.commit_times_us.powers_of_two() {
        rows.row(format_args!("{low},{}", high + 1), count);
    }
    rows.prefix("");
}

/// Writes the figures of the store. One store serves all vBuckets; it is shown as the first read-write shard.
pub(super) fn store(figures: &BucketFigures<'_>, rows: &mut Rows<'_, '_>) {
    let counters = figures.counters();
    rows.prefix("rw_0:");
    let backend = if figures.is_durable() {
        "runs"
    } else {
        "memory"
    };
    rows.row("backend_type", backend);
    for (name, total) in [
        ("failure_get", &counters.fetch_failed),
        ("failure_set", &counters.commits_failed),
        ("failure_compaction", &figures.compaction().failed),
        ("io_bg_fetch_docs_read", &counters.fetched),
        ("io_num_write", &counters.rows_persisted),
        ("io_document_write_bytes", &counters.bytes_persisted),
    ] {
        rows.row(name, Counters::read(total));
    }
    rows.prefix("");
}

/// Writes the number of responses by status.
fn responses(node: &Registry, all: bool, rows: &mut Rows<'_, '_>) {
    let mut counts = serde_json::Map::new();
    for status in Status::all() {
        let count: u64 = workers(node).map(|timings| timings.responses(status)).sum();
        if count > 0 || all {
            counts.insert(format!("{:x}", status.0), count.into());
        }
    }
    rows.row("responses", Value::Object(counts));
}

/// Returns lower edge (included), upper edge (excluded) and number of commands; empty ones are left out.
fn power_buckets(merged: &Merged) -> Vec<(u64, u64, u64)> {
    let mut buckets: Vec<(u64, u64, u64)> = Vec::new();
    for (upper_ns, count) in merged.rows() {
        let us = upper_ns / 1000;
        let low = if us == 0 { 0 } else { 1 << us.ilog2() };
        match buckets.last_mut() {
            Some(last) if last.0 == low => last.2 += count,
            _ => buckets.push((low, (low * 2).max(1), count)),
        }
    }
    buckets
}

#[cfg(test)]
mod tests {
    use super::*;
    use registry::timings::Timings;

    #[test]
    fn timing_buckets_are_powers_of_two_and_complete() {
        let timings = Timings::default();
        for ns in [200, 1_100, 9_000, 12_000, 12_500, 70_000] {
            timings.record(0, ns);
        }
        let buckets = power_buckets(&Merged::of([&timings].into_iter(), 0));
        assert_eq!(buckets, [(0, 1, 1), (1, 2, 1), (8, 16, 3), (64, 128, 1)]);
    }
}
