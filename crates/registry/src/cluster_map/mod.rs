//! The cluster configuration as clients read it: which node serves which vBucket.
//!
//! Pure functions from values to JSON texts. A text is built once per revision and kept by the
//! caller; 1,024 rows take about 6 KiB.
//!
//! Source: protocol specification, section 9. Tests: `tests::bucket_config_is_the_example`.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What clients replace by the name they reached the node under.
pub const HOST_PLACEHOLDER: &str = "$HOST";

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

/// The group that all nodes are in, by the name under which the reference has its first one.
pub const SERVER_GROUP: &str = "Group 1";

/// What names one node in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAddress<'a> {
    /// Host name or address; [`HOST_PLACEHOLDER`] of the node that tells the configuration. An IPv6 address stands without brackets.
    pub host: &'a str,
    /// Port of the KV protocol.
    pub kv_port: u16,
    /// Port of HTTP management.
    pub http_port: u16,
    /// Ports of both over TLS.
    pub tls: TlsPorts,
    /// Ports of what it stands in for.
    pub stand_ins: StandInPorts,
    /// Where clients reach it that choose the network `external`.
    pub external: Option<&'a AlternateAddress>,
}

/// Ports over TLS, where they are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TlsPorts {
    /// Of the KV protocol.
    pub kv: Option<u16>,
    /// Of HTTP management.
    pub http: Option<u16>,
}

/// Ports of services for which a node stands in, where it was asked to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct StandInPorts {
    /// Queries.
    #[serde(rename = "n1ql", skip_serializing_if = "Option::is_none")]
    pub query: Option<u16>,
    /// Full-text search.
    #[serde(rename = "fts", skip_serializing_if = "Option::is_none")]
    pub search: Option<u16>,
    /// Indexes.
    #[serde(rename = "indexHttp", skip_serializing_if = "Option::is_none")]
    pub index: Option<u16>,
}

/// Where clients outside of the node's network reach it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct AlternateAddress {
    /// Host name or address.
    pub hostname: String,
    /// Ports by the names that services have in configurations; none if they are the node's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, u16>,
}

/// A bucket as its configuration shows it: of a single node, or of an active one and its replicas.
#[derive(Clone, Copy, Debug)]
pub struct BucketMap<'a> {
    /// Name of the bucket.
    pub name: &'a str,
    /// Identity of the bucket, 32 hex digits.
    pub uuid: &'a str,
    /// Position among the configurations of this bucket.
    pub revision: MapRevision,
    /// Number of vBuckets, at least 1: clients retry for ever on an empty map.
    pub vbuckets: u16,
    /// Replicas the bucket is configured with; those beyond the number of nodes stay unassigned.
    pub replicas: u8,
    /// Revision of the collections manifest.
    pub manifest_uid: u64,
    /// Feature names: [`BUCKET_CAPABILITIES`] or [`DISK_BUCKET_CAPABILITIES`].
    pub capabilities: &'a [&'a str],
    /// The node that tells this configuration.
    pub node: NodeAddress<'a>,
    /// The others that have the bucket, in their order; their hosts are never the placeholder.
    pub peers: &'a [NodeAddress<'a>],
    /// Where this node stands among all of them: 0 is the active one of every vBucket, the others
    /// are its replicas.
    pub place: usize,
}

/// All nodes, the active one last: clients that list the vBuckets of each node (range scans of the Go
/// SDK) take one behind the last active node for an error, and one before it for empty.
fn in_order<'a>(
    node: NodeAddress<'a>,
    peers: &[NodeAddress<'a>],
    place: usize,
) -> Vec<NodeAddress<'a>> {
    let mut nodes = peers.to_vec();
    nodes.insert(place.min(nodes.len()), node);
    nodes.rotate_left(1);
    nodes
}

/// The configuration of one bucket, as `GET_CLUSTER_CONFIG` answers and pushes it.
///
/// # Panics
/// If there is no vBucket.
pub fn bucket_config(map: &BucketMap<'_>) -> String {
    assert!(map.vbuckets > 0, "clients retry for ever on an empty map");
    let (name, uuid) = (percent_encode(map.name), map.uuid);
    let nodes = in_order(map.node, map.peers, map.place);
    // One replica column per configured replica, -1 for an unassigned one.
    let mut row: Vec<i16> = (0..).take(nodes.len()).collect();
    row.rotate_right(1);
    row.resize(usize::from(map.replicas) + 1, -1);
    let kv = |node: &NodeAddress<'_>| format!("{}:{}", bracketed(node.host), node.kv_port);
    let listed = |node: &NodeAddress<'_>| {
        let mgmt = format!("{}:{}", bracketed(node.host), node.http_port);
        Node {
            couch_api_base: format!("http://{mgmt}/{name}%2B{uuid}"),
            hostname: mgmt,
            ports: DirectPort {
                direct: node.kv_port,
            },
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
            server_list: nodes.iter().map(kv).collect(),
            vbucket_map: vec![&row; usize::from(map.vbuckets)],
        },
        nodes: nodes.iter().map(listed).collect(),
        nodes_ext: nodes.iter().map(NodeExt::new).collect(),
    })
}

/// The configuration that names no bucket: which nodes there are.
pub fn global_config(
    revision: MapRevision,
    node: NodeAddress<'_>,
    peers: &[NodeAddress<'_>],
    place: usize,
) -> String {
    let nodes = in_order(node, peers, place);
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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct BucketMapJson<'a> {
    rev: i64,
    rev_epoch: i64,
    name: &'a str,
    node_locator: &'a str,
    uuid: &'a str,
    uri: String,
    streaming_uri: String,
    bucket_capabilities_ver: &'a str,
    bucket_capabilities: &'a [&'a str],
    collections_manifest_uid: String,
    cluster_capabilities_ver: [u8; 2],
    cluster_capabilities: Empty,
    #[serde(rename = "vBucketServerMap")]
    vbucket_server_map: ServerMap<'a>,
    nodes: Vec<Node>,
    nodes_ext: Vec<NodeExt<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct GlobalConfig<'a> {
    rev: i64,
    rev_epoch: i64,
    nodes_ext: Vec<NodeExt<'a>>,
    cluster_capabilities_ver: [u8; 2],
    cluster_capabilities: Empty,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ServerMap<'a> {
    hash_algorithm: &'a str,
    num_replicas: u8,
    server_list: Vec<String>,
    #[serde(rename = "vBucketMap")]
    vbucket_map: Vec<&'a [i16]>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    hostname: String,
    ports: DirectPort,
    couch_api_base: String,
}

#[derive(Serialize)]
struct DirectPort {
    direct: u16,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeExt<'a> {
    services: Services,
    this_node: bool,
    /// Left out for the host that the client used: not every client replaces the placeholder in
    /// a map that names no bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alternate_addresses: Option<Alternates<'a>>,
    /// Clients that prefer the nodes of a group look for it.
    server_group: &'static str,
}

impl<'a> NodeExt<'a> {
    fn new(node: &NodeAddress<'a>) -> Self {
        let this_node = node.host == HOST_PLACEHOLDER;
        Self {
            services: Services {
                kv: node.kv_port,
                kv_tls: node.tls.kv,
                mgmt: node.http_port,
                mgmt_tls: node.tls.http,
                stand_ins: node.stand_ins,
            },
            this_node,
            hostname: (!this_node).then_some(node.host),
            alternate_addresses: node.external.map(|external| Alternates { external }),
            server_group: SERVER_GROUP,
        }
    }
}

#[derive(Serialize)]
struct Alternates<'a> {
    external: &'a AlternateAddress,
}

#[derive(Serialize)]
struct Services {
    kv: u16,
    #[serde(rename = "kvSSL", skip_serializing_if = "Option::is_none")]
    kv_tls: Option<u16>,
    mgmt: u16,
    #[serde(rename = "mgmtSSL", skip_serializing_if = "Option::is_none")]
    mgmt_tls: Option<u16>,
    #[serde(flatten)]
    stand_ins: StandInPorts,
}
