//! What configurations are made of: nodes and rows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// What clients replace by the name they reached the node under.
pub const HOST_PLACEHOLDER: &str = "$HOST";

/// The group that all nodes are in that know of no zones, by the name under which the reference has its first one.
pub const SERVER_GROUP: &str = "Group 1";

/// What names one node in a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeAddress<'a> {
    /// Host name or address, or [`HOST_PLACEHOLDER`]. An IPv6 address stands without brackets.
    pub host: &'a str,
    /// It is the node that tells the configuration.
    pub this_node: bool,
    /// The group that it is in.
    pub group: &'a str,
    /// Port of the KV protocol. Without it, and the one over TLS, clients ask the node for no document; in the map of a
    /// bucket such nodes are the last ones.
    pub kv_port: Option<u16>,
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

/// No node, in a row.
pub const NO_NODE: i16 = -1;

/// Nodes of a vBucket as places in [`BucketMap::nodes`](super::BucketMap::nodes), the active one first; [`NO_NODE`] where there is none.
pub type Row = [i16; 4];

/// A row for each vBucket, at least one: clients retry for ever on an empty map. What a row has behind the replicas
/// of the bucket is not told.
#[derive(Clone, Copy, Debug)]
pub enum Rows<'a> {
    /// This many with the same row.
    Same(u16, Row),
    /// Each with its own.
    Each(&'a [Row]),
}

impl Rows<'_> {
    pub(super) fn is_empty(&self) -> bool {
        match self {
            Self::Same(vbuckets, _) => *vbuckets == 0,
            Self::Each(rows) => rows.is_empty(),
        }
    }
}
