//! The JSON documents of the management interface.
//!
//! Clients parse some of them strictly: a node without `status` or `os` ends the process of one client family, and
//! another one accepts only three words for `compressionMode`. So every field of the specification is there, with a
//! true value.

use std::collections::BTreeSet;

use model::DurabilityLevel;
use registry::cluster_map::{SERVER_GROUP, percent_encode};
use registry::{BucketKind, EvictionPolicy, StandIn};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::{auto_compaction, figures};
use crate::view::{BucketSummary, NodeSummary};

const MIB: u64 = 1024 * 1024;

/// `/pools`
pub(super) fn pools(node: &NodeSummary, is_admin: bool) -> Value {
    let uuid = &node.cluster_uuid;
    json!({
        "isAdminCreds": is_admin,
        "isROAdminCreds": false,
        "isEnterprise": false,
        "allowedServices": services(node, &BTreeSet::from(StandIn::ALL)),
        "pools": [{
            "name": "default",
            "uri": format!("/pools/default?uuid={uuid}"),
            "streamingUri": format!("/poolsStreaming/default?uuid={uuid}"),
        }],
        "implementationVersion": node.compatible_version,
        "componentsVersion": {
            "ns_server": node.compatible_version,
            "settee": node.settee_version,
        },
        "uuid": uuid,
    })
}

/// `/pools/default`
///
/// `buckets` by name: the C++ core ends its process when one lacks `uuid`.
pub(super) fn pool(node: &NodeSummary, ready: bool, buckets: &[(String, BucketSummary)]) -> Value {
    let uuid = &node.cluster_uuid;
    let entry = node_entry(node, ready, buckets);
    json!({
        "name": "default",
        "nodes": [entry],
        "buckets": {
            "uri": format!("/pools/default/buckets?v=1&uuid={uuid}"),
            "terseBucketsBase": "/pools/default/b/",
            "terseStreamingBucketsBase": "/pools/default/bs/",
        },
        "bucketNames": buckets
            .iter()
            .map(|(name, bucket)| json!({ "bucketName": name, "uuid": bucket.uuid }))
            .collect::<Vec<_>>(),
        "clusterName": node.cluster.name,
        "balanced": true,
        "rebalanceStatus": "none",
        "rebalanceProgressUri": "/pools/default/rebalanceProgress",
        "memoryQuota": figures::quota_bytes(node) / MIB,
        "maxBucketCount": 30,
        "storageTotals": figures::storage_totals(node),
        "counters": {},
    })
}

/// `/pools/nodes`: the part of `/pools/default` that tools read.
pub(super) fn nodes(node: &NodeSummary, ready: bool, buckets: &[(String, BucketSummary)]) -> Value {
    json!({
        "name": "default",
        "clusterName": node.cluster.name,
        "nodes": [node_entry(node, ready, buckets)],
    })
}

/// `/nodes/self`: the entry of a list of nodes, with the resources of the node.
pub(super) fn this_node(
    node: &NodeSummary,
    ready: bool,
    buckets: &[(String, BucketSummary)],
) -> Value {
    let mut entry = node_entry(node, ready, buckets);
    entry["storage"] = json!({
        "ssd": [],
        "hdd": [{ "path": node.data_path, "quotaMb": "none", "state": "ok" }],
    });
    entry["memoryQuota"] = json!(figures::quota_bytes(node) / MIB);
    entry["storageTotals"] = figures::storage_totals(node);
    entry
}

/// Returns one node of a list of nodes, with figures of some of its buckets.
pub(super) fn node_entry(
    node: &NodeSummary,
    ready: bool,
    buckets: &[(String, BucketSummary)],
) -> Value {
    let summaries: Vec<_> = buckets.iter().map(|(_, bucket)| bucket).collect();
    let mut entry = bare_node_entry(node, ready);
    entry["interestingStats"] = figures::of_buckets(node, &summaries);
    entry
}

fn bare_node_entry(node: &NodeSummary, ready: bool) -> Value {
    let hostname = format!("$HOST:{}", node.ports.http);
    json!({
        "hostname": hostname,
        "configuredHostname": hostname,
        "otpNode": "ns_1@$HOST",
        "status": health(ready),
        "clusterMembership": "active",
        "recoveryType": "none",
        "version": node.compatible_version,
        "os": format!("{}-unknown-{}", std::env::consts::ARCH, std::env::consts::OS),
        "clusterCompatibility": cluster_compatibility(&node.compatible_version),
        "ports": { "direct": node.ports.kv },
        "services": services(node, &node.cluster.stands_in_for),
        "thisNode": true,
        "nodeUUID": node.node_uuid,
        "uptime": node.uptime_s.to_string(),
        "serverGroup": SERVER_GROUP,
        "memoryTotal": node.machine.memory.total,
        "memoryFree": node.machine.memory.available,
        "cpuCount": node.machine.cpu.cores,
        "mcdMemoryReserved": figures::quota_bytes(node) / MIB,
        "mcdMemoryAllocated": figures::quota_bytes(node) / MIB,
        "systemStats": figures::of_machine(node),
    })
}

/// Returns the status of the node.
pub(super) fn health(ready: bool) -> &'static str {
    if ready { "healthy" } else { "warmup" }
}

/// Returns the service names of KV and of the stand-ins.
fn services(node: &NodeSummary, stands_in_for: &BTreeSet<StandIn>) -> Vec<&'static str> {
    let stand_ins = stands_in_for.iter().map(|one| one.name());
    let stand_ins = stand_ins.filter(|_| node.ports.query.is_some());
    std::iter::once("kv").chain(stand_ins).collect()
}

/// Returns major version times 65536 plus minor version.
pub(super) fn cluster_compatibility(version: &str) -> u64 {
    let mut parts = version
        .split('.')
        .map(|part| part.parse::<u16>().unwrap_or(0));
    let (major, minor) = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
    u64::from(major) << 16 | u64::from(minor)
}

/// Fields that are copied from a bucket's configuration.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigParts<'a> {
    #[serde(borrow)]
    bucket_capabilities: &'a RawValue,
    #[serde(borrow, rename = "vBucketServerMap")]
    vbucket_server_map: &'a RawValue,
}

/// `/pools/default/buckets/B`. The vBucket map is left out if there is no configuration.
pub(super) fn bucket(
    name: &str,
    bucket: &BucketSummary,
    node: &NodeSummary,
    config: Option<&str>,
) -> Value {
    let mut value = bucket_settings(name, bucket);
    value["basicStats"] = figures::basic(bucket);
    let mut entry = bare_node_entry(node, bucket.ready);
    entry["interestingStats"] = figures::of_buckets(node, &[bucket]);
    value["nodes"] = json!([entry]);
    let parts = config.and_then(|text| serde_json::from_str::<ConfigParts<'_>>(text).ok());
    if let Some(parts) = parts {
        value["bucketCapabilitiesVer"] = json!("");
        value["bucketCapabilities"] = json!(parts.bucket_capabilities);
        value["vBucketServerMap"] = json!(parts.vbucket_server_map);
    }
    value
}

fn bucket_settings(name: &str, bucket: &BucketSummary) -> Value {
    let (path, uuid) = (percent_encode(name), &bucket.uuid);
    let settings = &bucket.settings;
    let quota = settings.bucket.quota_bytes;
    let (bucket_type, backend) = match settings.bucket.kind {
        BucketKind::Couchbase if settings.history.magma => ("membase", "magma"),
        BucketKind::Couchbase => ("membase", "couchstore"),
        BucketKind::Ephemeral => ("ephemeral", "undefined"),
    };
    // Clients look for this path to learn whether a bucket may be flushed.
    let flush = format!("/pools/default/buckets/{path}/controller/doFlush");
    let controllers = if settings.flush_enabled {
        json!({ "flush": flush })
    } else {
        json!({})
    };
    let mut value = json!({
        "name": name,
        "uuid": uuid,
        "bucketType": bucket_type,
        "storageBackend": backend,
        "nodeLocator": "vbucket",
        "authType": "sasl",
        "uri": format!("/pools/default/buckets/{path}?bucket_uuid={uuid}"),
        "streamingUri": format!("/pools/default/bucketsStreaming/{path}?bucket_uuid={uuid}"),
        "collectionsManifestUid": format!("{:x}", bucket.manifest_uid),
        "durabilityMinLevel": settings.bucket.durability_min.map_or("none", DurabilityLevel::name),
        "evictionPolicy": eviction_name(settings.bucket.eviction),
        "durabilityImpossibleFallback": fallback_name(settings.durability_falls_back),
        "compressionMode": settings.compression.name(),
        "conflictResolutionType": settings.conflicts.name(),
        "maxTTL": settings.max_ttl_s,
        "replicaNumber": settings.replicas,
        "replicaIndex": false,
        "numVBuckets": bucket.vbuckets,
        "quota": { "ram": quota, "rawRAM": quota },
        "enableCrossClusterVersioning": settings.versioning.enabled,
        "versionPruningWindowHrs": settings.versioning.pruning_hours,
        "stats": {
            "uri": format!("/pools/default/buckets/{path}/stats"),
            "nodeStatsListURI": format!("/pools/default/buckets/{path}/nodes"),
        },
        "controllers": controllers,
    });
    if settings.versioning.enabled {
        // As texts: numbers of JSON are exact up to 2^53 only.
        let max_cas = settings.versioning.max_cas.iter().map(u64::to_string);
        value["vbucketsMaxCas"] = max_cas.collect::<Vec<_>>().into();
    }
    auto_compaction::add_to_bucket(&mut value, settings.auto_compaction.as_ref());
    let history = settings.history;
    if history.magma {
        value["historyRetentionCollectionDefault"] = history.collection_default.into();
        value["historyRetentionBytes"] = history.bytes.into();
        value["historyRetentionSeconds"] = history.seconds.into();
    }
    value
}

/// Returns an eviction policy in the words of the management interface.
fn eviction_name(policy: EvictionPolicy) -> &'static str {
    match policy {
        EvictionPolicy::Values => "valueOnly",
        EvictionPolicy::Documents => "fullEviction",
        EvictionPolicy::None => "noEviction",
        EvictionPolicy::Delete => "nruEviction",
    }
}

/// Returns the setting for durable writes without a majority, in the words of the management interface.
fn fallback_name(falls_back: bool) -> &'static str {
    if falls_back {
        "fallbackToActiveAck"
    } else {
        "disabled"
    }
}
