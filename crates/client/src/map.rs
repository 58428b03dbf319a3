//! The cluster map of a bucket, as far as a client reads it.

use serde::Deserialize;

/// A bucket's map as a node sent it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct BucketMap {
    #[serde(default)]
    rev_epoch: i64,
    #[serde(default)]
    rev: i64,
    /// UUID of the bucket.
    pub(crate) uuid: Option<String>,
    #[serde(default)]
    pub(crate) nodes_ext: Vec<MapNode>,
    v_bucket_server_map: VBucketServerMap,
}

/// A node in a map.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct MapNode {
    hostname: Option<String>,
    services: MapPorts,
    /// Whether this node sent the map.
    #[serde(default)]
    pub(crate) this_node: bool,
    #[serde(default)]
    alternate_addresses: AlternateAddresses,
}

#[derive(Clone, Debug, Default, Deserialize)]
struct AlternateAddresses {
    external: Option<ExternalAddress>,
}

/// Address of a node for clients of another network.
#[derive(Clone, Debug, Deserialize)]
struct ExternalAddress {
    hostname: String,
    /// External ports; `None` if they are those of the node itself.
    ports: Option<MapPorts>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct MapPorts {
    kv: Option<u16>,
    #[serde(rename = "kvSSL")]
    kv_tls: Option<u16>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct VBucketServerMap {
    v_bucket_map: Vec<Vec<i32>>,
}

impl BucketMap {
    /// Parses a map; `None` if it is invalid or has no vBuckets.
    pub(crate) fn parse(json: &[u8]) -> Option<Self> {
        let map: Self = serde_json::from_slice(json).ok()?;
        let rows = map.v_bucket_server_map.v_bucket_map.len();
        (1..=usize::from(u16::MAX)).contains(&rows).then_some(map)
    }

    /// Returns epoch and revision; they grow from map to map.
    pub(crate) fn revision(&self) -> (i64, i64) {
        (self.rev_epoch, self.rev)
    }

    /// Returns the nodes of each vBucket's copies by index in the map, the active one first; `None` for a missing copy.
    pub(crate) fn rows(
        &self,
    ) -> impl ExactSizeIterator<Item = impl Iterator<Item = Option<usize>>> {
        let rows = self.v_bucket_server_map.v_bucket_map.iter();
        rows.map(|row| row.iter().map(|at| usize::try_from(*at).ok()))
    }
}

impl MapNode {
    /// Returns host and KV port for clients of its own network, or of another one (`outside`). A map may leave out the
    /// host of the node that sent it: `named_by`. `None` if the node has no such port.
    pub(crate) fn address(
        &self,
        outside: bool,
        over_tls: bool,
        named_by: &str,
    ) -> Option<(String, u16)> {
        let external = self.alternate_addresses.external.as_ref();
        let (host, ports) = match external.filter(|_| outside) {
            Some(external) => (
                Some(&external.hostname),
                external.ports.unwrap_or(self.services),
            ),
            None => (self.hostname.as_ref(), self.services),
        };
        let port = if over_tls { ports.kv_tls } else { ports.kv };
        let host = host.map_or(named_by, String::as_str);
        let host = if host == "$HOST" { named_by } else { host };
        let host = host.trim_start_matches('[').trim_end_matches(']');
        Some((host.to_owned(), port?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn map_lists_the_nodes_of_vbucket_copies() {
        let rows = |text: &str| {
            let map = BucketMap::parse(text.as_bytes())?;
            Some(map.rows().map(Iterator::collect).collect::<Vec<Vec<_>>>())
        };
        assert_eq!(
            rows(r#"{"vBucketServerMap":{"vBucketMap":[[0],[2,1],[-1,1],[]]}}"#),
            Some(vec![
                vec![Some(0)],
                vec![Some(2), Some(1)],
                vec![None, Some(1)],
                vec![]
            ])
        );
        assert_eq!(rows(r#"{"vBucketServerMap":{"vBucketMap":[]}}"#), None);
        assert_eq!(rows(r#"{"nodesExt":[]}"#), None);
        assert_eq!(rows("<html>"), None);
    }

    #[test]
    fn a_node_has_an_address_for_each_network_with_tls_or_without() {
        let node: MapNode = serde_json::from_str(
            r#"{"services": {"kv": 5, "kvSSL": 6, "mgmt": 7}, "hostname": "there",
                "alternateAddresses": {"external": {"hostname": "outside", "ports": {"kv": 8}}}}"#,
        )
        .unwrap();
        let address = |outside, over_tls| node.address(outside, over_tls, "here");
        let at = |host: &str, port| Some((host.to_owned(), port));
        assert_eq!(address(false, false), at("there", 5));
        assert_eq!(address(false, true), at("there", 6));
        assert_eq!(address(true, false), at("outside", 8));
        assert_eq!(address(true, true), None);
        let alone: MapNode = serde_json::from_str(r#"{"services": {"kv": 1}}"#).unwrap();
        assert_eq!(alone.address(true, false, "here"), at("here", 1));
        let named = MapNode {
            hostname: Some("[::1]".to_owned()),
            ..alone
        };
        assert_eq!(named.address(false, false, "here"), at("::1", 1));
    }
}
