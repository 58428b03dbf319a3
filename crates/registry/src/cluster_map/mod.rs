//! The cluster configuration for clients: the nodes of each vBucket.
//!
//! Pure functions make JSON texts of values. The caller builds a text once per revision and keeps it; 1,024 rows take
//! about 6 KiB.
//!
//! Source: protocol specification, section 9. Tests: `tests::bucket_config_is_the_example`.

mod forms;
mod parts;
#[cfg(test)]
mod tests;

use forms::{
    BucketMapJson, DirectPort, Empty, GlobalConfig, NodeExt, NodeForm, RowsJson, ServerMap,
};
pub use parts::{
    AlternateAddress, HOST_PLACEHOLDER, MapRows, NO_NODE, NodeAddress, Row, SERVER_GROUP,
    StandInPorts, TlsPorts,
};
use serde::Serialize;

/// Features of a bucket on disk with the storage name `magma`. Clients ask for history only of such a bucket.
pub const HISTORY_BUCKET_CAPABILITIES: &[&str] = &[
    "collections",
    "durableWrite",
    "cbhello",
    "cccp",
    "nodesExt",
    "touch",
    "preserve_expiry",
    "preserveExpiry",
    "xattr",
    "tombstonedUserXAttrs",
    "subdoc.AccessDeleted",
    "subdoc.BinaryXattr",
    "subdoc.DocumentMacroSupport",
    "subdoc.ReplaceBodyWithXattr",
    "subdoc.ReplicaRead",
    "subdoc.ReviveDocument",
    // The next two are the features that only a bucket on disk has.
    "rangeScan",
    "couchapi",
    // History must be last: `DISK_BUCKET_CAPABILITIES` leaves the last feature out.
    "nonDedupedHistory",
];

/// Features of a bucket on disk. Without `couchapi` the Java SDK takes a bucket for an ephemeral one and refuses to
/// wait until a write is persisted. The SDK does not call views because of `couchapi`.
pub const DISK_BUCKET_CAPABILITIES: &[&str] = match HISTORY_BUCKET_CAPABILITIES.split_last() {
    Some((_history, others)) => others,
    None => &[],
};

/// Number of features that a bucket in memory lacks.
const ON_DISK_ONLY: usize = 2;

/// Features of every bucket, by the names that clients look for.
///
/// Clients send no command of a feature that is missing here. So each name stands for commands that are served: named
/// collections, durable writes, HELLO, maps over KV, several services per node, touch, and keeping the expiry on
/// writes. Client families look for the last one under two spellings.
pub const BUCKET_CAPABILITIES: &[&str] =
    match DISK_BUCKET_CAPABILITIES.split_last_chunk::<ON_DISK_ONLY>() {
        Some((others, _)) => others,
        None => &[],
    };

/// Position of a configuration in the order that clients use: epoch first, then revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapRevision {
    /// Epoch, at least 1. `rev` starts again with each epoch.
    pub epoch: i64,
    /// Revision, at least 1; each change raises it.
    pub rev: i64,
}

impl MapRevision {
    /// Returns the first revision of an epoch. It is newer than all of the previous epoch, and older than all maps of
    /// the node that began this epoch.
    pub fn first_of(epoch: i64) -> Self {
        Self { epoch, rev: 1 }
    }

    /// Returns the next revision of the same epoch.
    #[must_use]
    pub fn next(self) -> Self {
        let rev = self.rev.saturating_add(1);
        Self { rev, ..self }
    }
}

/// The parts of a bucket's configuration.
#[derive(Clone, Copy, Debug)]
pub struct BucketMap<'a> {
    /// Name of the bucket.
    pub name: &'a str,
    /// UUID of the bucket, 32 hex digits.
    pub uuid: &'a str,
    /// Revision among the configurations of this bucket.
    pub revision: MapRevision,
    /// Configured number of replicas.
    pub replicas: u8,
    /// UID of the collections manifest.
    pub manifest_uid: u64,
    /// Feature names: [`BUCKET_CAPABILITIES`] or [`DISK_BUCKET_CAPABILITIES`].
    pub capabilities: &'a [&'a str],
    /// The nodes that have the bucket. Some clients list the vBuckets of each node (range scans of the Go SDK). They
    /// take a node without active vBuckets for empty if it stands before the last node with active vBuckets, and for an
    /// error if it stands after it.
    pub nodes: &'a [NodeAddress<'a>],
    /// The nodes of each vBucket.
    pub rows: MapRows<'a>,
}

/// Builds the configuration of one bucket, as `GET_CLUSTER_CONFIG` answers and pushes it.
///
/// # Panics
/// If the map has no vBucket.
pub fn bucket_config(map: &BucketMap<'_>) -> String {
    assert!(
        !map.rows.is_empty(),
        "clients retry for ever on an empty map"
    );
    let (name, uuid) = (percent_encode(map.name), map.uuid);
    let serving = map
        .nodes
        .iter()
        .filter_map(|node| Some((node, node.kv_port?)));
    let kv = |(node, port): (&NodeAddress<'_>, u16)| format!("{}:{port}", bracketed(node.host));
    let listed = |(node, port): (&NodeAddress<'_>, u16)| {
        let mgmt = format!("{}:{}", bracketed(node.host), node.http_port);
        NodeForm {
            couch_api_base: format!("http://{mgmt}/{name}%2B{uuid}"),
            hostname: mgmt,
            ports: DirectPort { direct: port },
        }
    };
    to_json(&BucketMapJson {
        rev: map.revision.rev,
        rev_epoch: map.revision.epoch,
        name: map.name,
        node_locator: "vbucket",
        uuid,
        uri: format!("/pools/default/buckets/{name}?bucket_uuid={uuid}"),
        streaming_uri: format!("/pools/default/bucketsStreaming/{name}?bucket_uuid={uuid}"),
        bucket_capabilities_ver: "",
        bucket_capabilities: map.capabilities,
        collections_manifest_uid: format!("{:x}", map.manifest_uid),
        cluster_capabilities_ver: [1, 0],
        cluster_capabilities: Empty {},
        vbucket_server_map: ServerMap {
            hash_algorithm: "CRC",
            num_replicas: map.replicas,
            server_list: serving.clone().map(kv).collect(),
            vbucket_map: RowsJson {
                rows: map.rows,
                width: usize::from(map.replicas) + 1,
            },
        },
        nodes: serving.map(listed).collect(),
        nodes_ext: map.nodes.iter().map(NodeExt::new).collect(),
    })
}

/// Builds the configuration that names no bucket; it lists the nodes.
pub fn global_config(revision: MapRevision, nodes: &[NodeAddress<'_>]) -> String {
    to_json(&GlobalConfig {
        rev: revision.rev,
        rev_epoch: revision.epoch,
        nodes_ext: nodes.iter().map(NodeExt::new).collect(),
        cluster_capabilities_ver: [1, 0],
        cluster_capabilities: Empty {},
    })
}

/// Returns a host in the form that stands before a port: an IPv6 address gets brackets.
pub fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

/// Encodes a bucket name as part of a path; names may contain a percent sign.
pub fn percent_encode(name: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
            char::from(byte).to_string()
        }
        _ => format!("%{byte:02X}"),
    };
    name.bytes().map(encode).collect()
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("these structs have string keys only")
}

/// Replaces the host placeholder by `host`. Without a host the placeholder stays, and clients replace it by the host
/// that they used.
pub fn localize(text: &str, host: Option<&str>) -> String {
    let Some(host) = host else {
        return text.to_owned();
    };
    let before_port = format!("{HOST_PLACEHOLDER}:");
    text.replace(&before_port, &format!("{}:", bracketed(host)))
        .replace(HOST_PLACEHOLDER, host)
}
