//! Parts of a configuration: nodes and rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Placeholder that clients replace by the host name under which they reached the node.
pub const HOST_PLACEHOLDER: &str = "$HOST";

/// Name of the group of all nodes that have no zones: the first group of the reference server.
pub const SERVER_GROUP: &str = "Group 1";

/// Address of one node in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAddress<'a> {
    /// Host name or address, or [`HOST_PLACEHOLDER`]. An IPv6 address has no brackets.
    pub host: &'a str,
    /// True for the node that sends the configuration.
    pub this_node: bool,
    /// Server group of the node.
    pub group: &'a str,
    /// Port of the KV protocol. Clients ask a node for no document if it has neither this port nor the KV port over
    /// TLS. In the map of a bucket such nodes are last.
    pub kv_port: Option<u16>,
    /// Port of HTTP management.
    pub http_port: u16,
    /// Ports of KV and HTTP over TLS.
    pub tls: TlsPorts,
    /// Ports of the services for which the node stands in.
    pub stand_ins: StandInPorts,
    /// Address for clients that choose the network `external`.
    pub external: Option<&'a AlternateAddress>,
}

/// Ports over TLS, where they are served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct TlsPorts {
    /// Port of the KV protocol.
    pub kv: Option<u16>,
    /// Port of HTTP management.
    pub http: Option<u16>,
}

/// Ports of services for which a node stands in, where an operator asked for it.
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

/// Address of a node for clients outside of its network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct AlternateAddress {
    /// Host name or address.
    pub hostname: String,
    /// Ports by the service names of configurations; empty if the node's own ports are meant.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ports: BTreeMap<String, u16>,
}

/// Entry of a row without a node.
pub const NO_NODE: i16 = -1;

/// Nodes of a vBucket as indexes into [`BucketMap::nodes`](super::BucketMap::nodes), the active one first; [`NO_NODE`]
/// where there is none.
pub type Row = [i16; 4];

/// One row per vBucket, at least one: clients retry for ever on an empty map. A configuration shows only the active
/// node and the replicas of a row; it omits further entries.
#[derive(Clone, Copy, Debug)]
pub enum MapRows<'a> {
    /// The same row for this number of vBuckets.
    Same(u16, Row),
    /// One row for each vBucket.
    Each(&'a [Row]),
}

impl MapRows<'_> {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Same(vbuckets, _) => *vbuckets == 0,
            Self::Each(rows) => rows.is_empty(),
        }
    }
}
