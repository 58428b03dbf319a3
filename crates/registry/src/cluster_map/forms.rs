//! The JSON forms of configurations.

use serde::{Serialize, Serializer};

use super::parts::{AlternateAddress, HOST_PLACEHOLDER, MapRows, NodeAddress, StandInPorts};

/// Rows, each cut to its first `width` nodes.
pub(super) struct RowsJson<'a> {
    pub(super) rows: MapRows<'a>,
    pub(super) width: usize,
}

impl Serialize for RowsJson<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.rows {
            MapRows::Same(vbuckets, row) => {
                let row = &row[..self.width];
                serializer.collect_seq(std::iter::repeat_n(row, vbuckets.into()))
            }
            MapRows::Each(rows) => {
                serializer.collect_seq(rows.iter().map(|row| &row[..self.width]))
            }
        }
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BucketMapJson<'a> {
    pub(super) rev: i64,
    pub(super) rev_epoch: i64,
    pub(super) name: &'a str,
    pub(super) node_locator: &'a str,
    pub(super) uuid: &'a str,
    pub(super) uri: String,
    pub(super) streaming_uri: String,
    pub(super) bucket_capabilities_ver: &'a str,
    pub(super) bucket_capabilities: &'a [&'a str],
    pub(super) collections_manifest_uid: String,
    pub(super) cluster_capabilities_ver: [u8; 2],
    pub(super) cluster_capabilities: Empty,
    #[serde(rename = "vBucketServerMap")]
    pub(super) vbucket_server_map: ServerMap<'a>,
    pub(super) nodes: Vec<NodeForm>,
    pub(super) nodes_ext: Vec<NodeExt<'a>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GlobalConfig<'a> {
    pub(super) rev: i64,
    pub(super) rev_epoch: i64,
    pub(super) nodes_ext: Vec<NodeExt<'a>>,
    pub(super) cluster_capabilities_ver: [u8; 2],
    pub(super) cluster_capabilities: Empty,
}

#[derive(Serialize)]
pub(super) struct Empty {}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct ServerMap<'a> {
    pub(super) hash_algorithm: &'a str,
    pub(super) num_replicas: u8,
    pub(super) server_list: Vec<String>,
    #[serde(rename = "vBucketMap")]
    pub(super) vbucket_map: RowsJson<'a>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeForm {
    pub(super) hostname: String,
    pub(super) ports: DirectPort,
    pub(super) couch_api_base: String,
}

#[derive(Serialize)]
pub(super) struct DirectPort {
    pub(super) direct: u16,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NodeExt<'a> {
    services: Services,
    this_node: bool,
    /// `None` for the host that the client used: not every client replaces the placeholder in a map that names no
    /// bucket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) hostname: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    alternate_addresses: Option<Alternates<'a>>,
    /// Group of the node, for clients that prefer the nodes of one group.
    server_group: &'a str,
}

impl<'a> NodeExt<'a> {
    pub(super) fn new(node: &NodeAddress<'a>) -> Self {
        let host = (node.host != HOST_PLACEHOLDER).then_some(node.host);
        Self {
            services: Services {
                kv: node.kv_port,
                kv_tls: node.tls.kv,
                mgmt: node.http_port,
                mgmt_tls: node.tls.http,
                stand_ins: node.stand_ins,
            },
            this_node: node.this_node,
            hostname: host,
            alternate_addresses: node.external.map(|external| Alternates { external }),
            server_group: node.group,
        }
    }
}

#[derive(Serialize)]
pub(super) struct Alternates<'a> {
    external: &'a AlternateAddress,
}

#[derive(Serialize)]
pub(super) struct Services {
    #[serde(skip_serializing_if = "Option::is_none")]
    kv: Option<u16>,
    #[serde(rename = "kvSSL", skip_serializing_if = "Option::is_none")]
    kv_tls: Option<u16>,
    mgmt: u16,
    #[serde(rename = "mgmtSSL", skip_serializing_if = "Option::is_none")]
    mgmt_tls: Option<u16>,
    #[serde(flatten)]
    stand_ins: StandInPorts,
}
