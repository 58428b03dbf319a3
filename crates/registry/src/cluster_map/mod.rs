//! The cluster configuration as clients read it: which node serves which vBucket.
//!
//! Pure functions from values to JSON texts. A text is built once per revision and kept by the
//! caller; 1,024 rows take about 6 KiB.
//!
//! Source: protocol specification, section 9. Tests: `tests::bucket_config_is_the_example`.

mod forms;
mod parts;
#[cfg(test)]
mod tests;

use forms::{BucketMapJson, DirectPort, Empty, GlobalConfig, Node, NodeExt, RowsJson, ServerMap};
pub use parts::{
    AlternateAddress, HOST_PLACEHOLDER, NO_NODE, NodeAddress, Row, Rows, SERVER_GROUP,
    StandInPorts, TlsPorts,
};
use serde::Serialize;

/// What a bucket on disk that goes by the name of the reference's newer store can do: clients ask for
/// history only there.
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
    // These two are what a bucket in memory lacks of one on disk.
    "rangeScan",
    "couchapi",
    // Last: it is all that a bucket without history lacks.
    "nonDedupedHistory",
];

/// What a bucket on disk can do. Without `couchapi` the Java SDK takes a bucket for an ephemeral one
/// and refuses to wait until a write is persisted; it calls no view because of it.
pub const DISK_BUCKET_CAPABILITIES: &[&str] = match HISTORY_BUCKET_CAPABILITIES.split_last() {
    Some((_history, others)) => others,
    None => &[],
};

/// How many of them a bucket in memory lacks.
const ON_DISK_ONLY: usize = 2;

/// The bucket features a client may use, by the names clients look for.
///
/// Clients send nothing for a feature that is missing here, so each name stands for commands
/// that are served: named collections, durable writes, HELLO, maps over KV, several services per node, touch,
/// and keeping the expiry on writes, for which client families look under two spellings.
pub const BUCKET_CAPABILITIES: &[&str] =
    match DISK_BUCKET_CAPABILITIES.split_last_chunk::<ON_DISK_ONLY>() {
        Some((others, _)) => others,
        None => &[],
    };

/// Position of a configuration in the order clients keep: epoch first, then revision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MapRevision {
    /// At least 1; raised when `rev` counts anew.
    pub epoch: i64,
    /// At least 1; raised with every change.
    pub rev: i64,
}

impl MapRevision {
    /// The first of an epoch: newer than all of the epoch before, older than whatever the node tells that began
    /// this one.
    pub fn first_of(epoch: i64) -> Self {
        Self { epoch, rev: 1 }
    }

    /// The next one of the same epoch.
    #[must_use]
    pub fn next(self) -> Self {
        let rev = self.rev.saturating_add(1);
        Self { rev, ..self }
    }
}

/// A bucket as its configuration shows it.
#[derive(Clone, Copy, Debug)]
pub struct BucketMap<'a> {
    /// Name of the bucket.
    pub name: &'a str,
    /// Identity of the bucket, 32 hex digits.
    pub uuid: &'a str,
    /// Position among the configurations of this bucket.
    pub revision: MapRevision,
    /// Replicas the bucket is configured with.
    pub replicas: u8,
    /// Revision of the collections manifest.
    pub manifest_uid: u64,
    /// Feature names: [`BUCKET_CAPABILITIES`] or [`DISK_BUCKET_CAPABILITIES`].
    pub capabilities: &'a [&'a str],
    /// The nodes that have the bucket. Clients that list the vBuckets of each node (range scans of the Go SDK) take
    /// a node without active vBuckets behind the last one with some for an error, and one before it for empty.
    pub nodes: &'a [NodeAddress<'a>],
    /// Which of them has which vBucket.
    pub rows: Rows<'a>,
}

/// The configuration of one bucket, as `GET_CLUSTER_CONFIG` answers and pushes it.
///
/// # Panics
/// If there is no vBucket.
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
        Node {
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

/// The configuration that names no bucket: which nodes there are.
pub fn global_config(revision: MapRevision, nodes: &[NodeAddress<'_>]) -> String {
    to_json(&GlobalConfig {
        rev: revision.rev,
        rev_epoch: revision.epoch,
        nodes_ext: nodes.iter().map(NodeExt::new).collect(),
        cluster_capabilities_ver: [1, 0],
        cluster_capabilities: Empty {},
    })
}

/// A host as it stands in front of a port: IPv6 addresses in brackets.
pub fn bracketed(host: &str) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]")
    } else {
        host.to_owned()
    }
}

/// A bucket name as part of a path; names may contain a percent sign.
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

/// Puts the name in place of the placeholder, which stays if there is no name: clients
/// replace it by the host they used.
pub fn localize(text: &str, host: Option<&str>) -> String {
    let Some(host) = host else {
        return text.to_owned();
    };
    let before_port = format!("{HOST_PLACEHOLDER}:");
    text.replace(&before_port, &format!("{}:", bracketed(host)))
        .replace(HOST_PLACEHOLDER, host)
}
