//! Samples of a bucket for monitoring, under the names of the management interface.

use std::collections::BTreeMap;

use registry::timings::CountedResult;
use registry::{Registry, ServedBucket};
use wire::{Family, Opcode};

use crate::collect::collect;
use crate::dcp::{self, DcpTotals};
use crate::figures::NodeFigures;
use crate::scope::StatScope;

/// Statistics of the bucket and of the node that only rise. A sample is their rise per second.
const RATES: &[&str] = &[
    "bytes_read",
    "bytes_written",
    "cas_badval",
    "cmd_get",
    "cmd_lookup",
    "cmd_set",
    "decr_hits",
    "decr_misses",
    "delete_hits",
    "delete_misses",
    "disk_commit_count",
    "disk_commit_total",
    "ep_active_ahead_exceptions",
    "ep_active_hlc_drift",
    "ep_active_hlc_drift_count",
    "ep_bg_fetched",
    "ep_clock_cas_drift_threshold_exceeded",
    "ep_data_read_failed",
    "ep_data_write_failed",
    "ep_diskqueue_drain",
    "ep_diskqueue_fill",
    "ep_item_commit_failed",
    "ep_items_auto_deleted",
    "ep_num_ops_del_meta",
    "ep_num_ops_get_meta",
    "ep_num_ops_set_meta",
    "ep_num_value_ejects",
    "ep_oom_errors",
    "ep_replica_ahead_exceptions",
    "ep_replica_hlc_drift",
    "ep_replica_hlc_drift_count",
    "ep_tmp_oom_errors",
    "get_hits",
    "get_misses",
    "incr_hits",
    "incr_misses",
];
/// Statistics of vBuckets in one state that only rise; their names follow `vb_STATE_`.
const STATE_RATES: &[&str] = &[
    "eject",
    "ops_create",
    "ops_delete",
    "ops_get",
    "ops_update",
    "queue_drain",
    "queue_fill",
    "sync_write_aborted_count",
    "sync_write_accepted_count",
    "sync_write_committed_count",
];
const STATES: [&str; 3] = ["active", "replica", "pending"];

/// Consumers of change streams: prefix of the names that a service uses, and its name in samples.
const CONSUMERS: [(&str, &str); 7] = [
    ("cbas", "cbas"),
    ("eventing", "eventing"),
    ("fts", "fts"),
    ("mapreduce_view", "views"),
    ("replication", "replica"),
    ("secidx", "2i"),
    ("xdcr", "xdcr"),
];

/// Commands with samples under their own names; quiet forms are included.
const COMMANDS: [(&str, &[&str]); 3] = [
    ("ep_num_ops_get_meta", &["GET_META", "GETQ_META"]),
    (
        "ep_num_ops_set_meta",
        &[
            "SET_WITH_META",
            "SETQ_WITH_META",
            "ADD_WITH_META",
            "ADDQ_WITH_META",
        ],
    ),
    ("ep_num_ops_del_meta", &["DEL_WITH_META", "DELQ_WITH_META"]),
];

/// Samples of view indexes, which do not exist here.
const NO_VIEWS: [&str; 8] = [
    "couch_spatial_data_size",
    "couch_spatial_disk_size",
    "couch_spatial_ops",
    "couch_views_actual_disk_size",
    "couch_views_data_size",
    "couch_views_disk_size",
    "couch_views_fragmentation",
    "couch_views_ops",
];

/// Samples by name.
pub type Samples = BTreeMap<String, f64>;

/// Returns the numeric statistics of the general group of a bucket, and the figures that monitoring derives from
/// them. Numbers that only rise are returned as rise per second since the previous call.
///
/// Cost: that of the general group, and a look at each connection that streams changes.
pub fn samples(node: &Registry, served: &ServedBucket) -> Samples {
    let mut samples = Samples::new();
    let scope = StatScope {
        node,
        bucket: Some(served),
        connection: None,
        access: None,
    };
    let collected = collect("", &scope, &mut |name, value| {
        if let Some(number) = value.parse().ok().filter(|number: &f64| number.is_finite()) {
            samples.insert(name.to_owned(), number);
        }
    });
    debug_assert!(collected.is_ok(), "the general group is there");
    commands(&NodeFigures::of(node), &mut samples);
    consumers(served, &mut samples);
    let rises = samples.iter().filter(|(name, _)| is_rate(name));
    let mut rates = rises.map(|(name, count)| (name.clone(), *count)).collect();
    served.rates.look(&mut rates, node.clock.mono_ns());
    samples.append(&mut rates);
    derive(&mut samples);
    samples
}

/// Numbers of document reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reads {
    /// All reads.
    pub all: u64,
    /// Reads that found the document.
    pub hits: u64,
}

/// Returns the document reads in all buckets since the start.
pub fn reads(node: &Registry) -> Reads {
    let figures = NodeFigures::of(node);
    Reads {
        all: figures.commands(&[Family::Get]),
        hits: figures.answers(&[Family::Get], CountedResult::Done),
    }
}

fn is_rate(name: &str) -> bool {
    let of_state = STATES.iter().find_map(|state| {
        let bare = name.strip_prefix("vb_")?.strip_prefix(state)?;
        bare.strip_prefix('_')
    });
    RATES.contains(&name)
        || of_state.is_some_and(|bare| STATE_RATES.contains(&bare))
        || name.starts_with("ep_dcp_")
            && ["_backoff", "_items_sent", "_total_bytes"]
                .iter()
                .any(|end| name.ends_with(end))
}

#[expect(clippy::cast_precision_loss, reason = "samples are fractions")]
fn commands(figures: &NodeFigures<'_>, samples: &mut Samples) {
    for (name, opcodes) in COMMANDS {
        let of_it = Opcode::all().filter(|opcode| opcodes.contains(&opcode.name()));
        let total: u64 = of_it.map(|opcode| figures.merged(opcode.0).total()).sum();
        samples.insert(name.into(), total as f64);
    }
}

/// Adds samples of connections that stream changes, by the service of the consumer.
fn consumers(served: &ServedBucket, samples: &mut Samples) {
    let (by_name, total) = dcp::sums_by_prefix(":", served);
    let mut other = total;
    for (prefix, kind) in CONSUMERS {
        let sums = by_name.get(prefix).copied().unwrap_or_default();
        other.subtract(&sums);
        consumer(kind, &sums, samples);
    }
    consumer("other", &other, samples);
    for figure in FIGURES {
        let of = |kind: &str| samples[&format!("ep_dcp_{kind}_{figure}")];
        let both = of("views") + of("2i");
        samples.insert(format!("ep_dcp_views+indexes_{figure}"), both);
    }
}

/// Sampled figures of connections that stream changes.
const FIGURES: [&str; 6] = [
    "backoff",
    "count",
    "items_remaining",
    "items_sent",
    "producer_count",
    "total_bytes",
];

#[expect(clippy::cast_precision_loss, reason = "samples are fractions")]
fn consumer(kind: &str, sums: &DcpTotals, samples: &mut Samples) {
    let values = [
        0,
        sums.count,
        sums.items_remaining,
        sums.items_sent,
        sums.count,
        sums.bytes,
    ];
    for (figure, value) in FIGURES.iter().zip(values) {
        samples.insert(format!("ep_dcp_{kind}_{figure}"), value as f64);
    }
}

/// Adds the samples that are derived from others.
fn derive(samples: &mut Samples) {
    let of = |name: &str| samples.get(name).copied().unwrap_or(0.0);
    let sum = |name: &str| {
        STATES
            .iter()
            .map(|state| of(&format!("vb_{state}_{name}")))
            .sum()
    };
    let per = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let resident = |items: f64, absent: f64| {
        if items > 0.0 {
            100.0 * (items - absent) / items
        } else {
            100.0
        }
    };
    let (files, data) = (of("ep_db_file_size"), of("ep_db_data_size"));
    let misses = ["get_misses", "delete_misses", "incr_misses", "decr_misses"];
    let miss_rate = 100.0 * per(of("ep_bg_fetched"), of("cmd_lookup"));
    let drift = |state: &str| {
        let name = format!("ep_{state}_hlc_drift");
        per(of(&name), of(&format!("{name}_count")))
    };
    let mut derived = vec![
        ("couch_docs_actual_disk_size", files),
        ("couch_docs_data_size", data),
        ("couch_docs_disk_size", files),
        (
            "couch_docs_fragmentation",
            100.0 * per((files - data).max(0.0), files),
        ),
        ("couch_total_disk_size", files),
        (
            "hit_ratio",
            100.0 * per(of("get_hits"), of("get_hits") + of("get_misses")),
        ),
        ("ep_cache_miss_rate", miss_rate),
        ("ep_cache_miss_ratio", miss_rate),
        (
            "ep_resident_items_rate",
            resident(of("curr_items_tot"), of("ep_num_non_resident")),
        ),
        (
            "avg_disk_commit_time",
            per(of("disk_commit_total"), of("disk_commit_count")) / 1e6,
        ),
        ("avg_active_timestamp_drift", drift("active")),
        ("avg_replica_timestamp_drift", drift("replica")),
        ("disk_write_queue", of("ep_queue_size")),
        ("ep_ops_create", sum("ops_create")),
        ("ep_ops_update", sum("ops_update")),
        ("evictions", of("ep_items_auto_deleted")),
        ("misses", misses.iter().map(|name| of(name)).sum()),
        ("xdc_ops", COMMANDS.iter().map(|(name, _)| of(name)).sum()),
    ];
    derived.extend(NO_VIEWS.map(|name| (name, 0.0)));
    let residents = STATES.map(|state| {
        let items = of(&format!("vb_{state}_curr_items"));
        let absent = of(&format!("vb_{state}_num_non_resident"));
        (
            format!("vb_{state}_resident_items_ratio"),
            resident(items, absent),
        )
    });
    samples.extend(
        derived
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value)),
    );
    samples.extend(residents);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_recognized_by_name() {
        for name in ["cmd_get", "vb_replica_ops_create", "ep_dcp_2i_items_sent"] {
            assert!(is_rate(name), "{name}");
        }
        for name in [
            "curr_items",
            "vb_active_num",
            "ops_create",
            "ep_dcp_2i_items_remaining",
            "vb_active",
        ] {
            assert!(!is_rate(name), "{name}");
        }
    }

    #[test]
    fn derived_shares_without_documents_are_zero_or_full() {
        let mut samples = Samples::new();
        derive(&mut samples);
        let shown = [
            "ep_resident_items_rate",
            "hit_ratio",
            "couch_docs_fragmentation",
        ]
        .map(|name| samples[name].to_string());
        assert_eq!(shown, ["100", "0", "0"]);
        assert!(samples.values().all(|value| value.is_finite()));
    }

    #[test]
    fn sampled_commands_exist() {
        let known: Vec<&str> = Opcode::all().map(Opcode::name).collect();
        for (_, opcodes) in COMMANDS {
            for name in opcodes {
                assert!(known.contains(name), "{name}");
            }
        }
    }
}
