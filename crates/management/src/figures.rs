//! Figures for monitoring: of the node, of its machine, and samples of a bucket.
//!
//! Some readers parse integers strictly, so whole numbers are written without a fraction, and rates in lists of nodes
//! are rounded.

use std::collections::BTreeMap;

use registry::BucketKind;
use serde_json::{Map, Value, json};

use super::view::{BucketSummary, NodeSummary};

const MIB: u64 = 1024 * 1024;

/// Returns the quota of all buckets together, bytes.
pub(super) fn quota_bytes(node: &NodeSummary) -> u64 {
    let limit = node.cluster.memory_quota_mib;
    limit.map_or(node.memory_quota_bytes, |mib| mib * MIB)
}

/// `storageTotals`: this node's, which is the total.
pub(super) fn storage_totals(node: &NodeSummary) -> Value {
    let (quota, memory, files) = (quota_bytes(node), node.machine.memory, node.machine.files);
    json!({
        "ram": {
            "total": memory.total,
            "quotaTotal": quota,
            "quotaTotalPerNode": quota,
            "quotaUsed": node.memory_quota_bytes,
            "quotaUsedPerNode": node.memory_quota_bytes,
            "used": memory.total.saturating_sub(memory.available),
            "usedByData": node.memory_used_bytes,
        },
        "hdd": {
            "total": files.total,
            "quotaTotal": files.total,
            "used": files.total.saturating_sub(files.available),
            "usedByData": node.disk_used_bytes,
            "free": files.available,
        },
    })
}

/// `systemStats` of the machine.
pub(super) fn of_machine(node: &NodeSummary) -> Value {
    let (memory, cpu) = (node.machine.memory, node.machine.cpu);
    json!({
        "cpu_utilization_rate": number(cpu.busy()),
        "cpu_stolen_rate": number(cpu.stolen),
        "cpu_cores_available": cpu.cores,
        "mem_total": memory.total,
        "mem_free": memory.available,
        "mem_limit": memory.total,
        "swap_total": memory.swap_total,
        "swap_used": memory.swap_used,
    })
}

/// `interestingStats` of some buckets of the node.
pub(super) fn of_buckets(node: &NodeSummary, buckets: &[&BucketSummary]) -> Value {
    let sum = |of: fn(&BucketSummary) -> u64| buckets.iter().map(|one| of(one)).sum::<u64>();
    let rate = |of: fn(&BucketSummary) -> f64| {
        number(buckets.iter().map(|one| of(one)).sum::<f64>().round())
    };
    json!({
        "cmd_get": number(node.gets_per_second.round()),
        "get_hits": number(node.hits_per_second.round()),
        "couch_docs_actual_disk_size": sum(|one| one.disk_used_bytes),
        "couch_docs_data_size": sum(|one| one.disk_data_bytes),
        "couch_spatial_data_size": 0,
        "couch_spatial_disk_size": 0,
        "couch_views_actual_disk_size": 0,
        "couch_views_data_size": 0,
        "curr_items": sum(|one| one.items),
        "curr_items_tot": sum(|one| one.items + one.replica_items),
        "ep_bg_fetched": rate(|one| one.fetches_per_second),
        "mem_used": sum(|one| one.memory_used_bytes),
        "ops": rate(|one| one.ops_per_second),
        "vb_active_num_non_resident": sum(|one| one.non_resident),
        "vb_replica_curr_items": sum(|one| one.replica_items),
    })
}

/// `basicStats` of a bucket.
pub(super) fn basic(bucket: &BucketSummary) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "a percentage for display")]
    let used_percent =
        100.0 * bucket.memory_used_bytes as f64 / bucket.settings.bucket.quota_bytes.max(1) as f64;
    json!({
        "itemCount": bucket.items,
        "memUsed": bucket.memory_used_bytes,
        "diskUsed": bucket.disk_used_bytes,
        "dataUsed": bucket.disk_data_bytes,
        "opsPerSec": number(bucket.ops_per_second.round()),
        "diskFetches": number(bucket.fetches_per_second.round()),
        "quotaPercentUsed": used_percent,
        "vbActiveNumNonResident": bucket.non_resident,
    })
}

/// `/pools/default/buckets/B/stats`: one sample of each figure.
pub(super) fn samples(
    node: &NodeSummary,
    bucket: &BucketSummary,
    of_bucket: BTreeMap<String, f64>,
    of_http: BTreeMap<String, f64>,
    now_ms: u64,
) -> Value {
    let all = of_bucket.into_iter().chain(of_http);
    let mut samples: Map<_, _> = all
        .map(|(name, value)| (name, json!([number(value)])))
        .collect();
    let (memory, cpu) = (node.machine.memory, node.machine.cpu);
    let used = memory.total.saturating_sub(memory.available);
    let own = json!({
        "timestamp": now_ms,
        "ops": number(bucket.ops_per_second),
        "cpu_cores_available": cpu.cores,
        "cpu_irq_rate": number(cpu.irq),
        "cpu_stolen_rate": number(cpu.stolen),
        "cpu_sys_rate": number(cpu.system),
        "cpu_user_rate": number(cpu.user),
        "cpu_utilization_rate": number(cpu.busy()),
        "mem_actual_free": memory.available,
        "mem_actual_used": used,
        "mem_free": memory.available,
        "mem_limit": memory.total,
        "mem_total": memory.total,
        "mem_used_sys": used,
        "swap_total": memory.swap_total,
        "swap_used": memory.swap_used,
    });
    if let Value::Object(own) = own {
        samples.extend(own.into_iter().map(|(name, value)| (name, json!([value]))));
    }
    json!({
        "op": {
            "samples": samples,
            "samplesCount": 1,
            "isPersistent": bucket.settings.bucket.kind == BucketKind::Couchbase,
            "lastTStamp": now_ms,
            "interval": 1000,
        },
        "hot_keys": [],
    })
}

/// Writes whole numbers without a fraction.
fn number(value: f64) -> Value {
    // Larger numbers have no exact fraction.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && (0.0..EXACT).contains(&value) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is whole, and in the range"
        )]
        return json!(value as u64);
    }
    json!(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_have_no_fraction() {
        let shown = [0.0, 3.0, 0.5, -1.0, 1e300].map(|value| number(value).to_string());
        assert_eq!(shown, ["0", "3", "0.5", "-1.0", "1e+300"]);
    }
}
