//! Which node has the active copy of a document, by the cluster's map.

use serde::Deserialize;
use wire::Opcode;

use crate::address::Address;
use crate::connection::Client;
use crate::error::ClientError;
use crate::message::Request;

/// What is read of a bucket's map.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Map {
    nodes_ext: Vec<Node>,
    v_bucket_server_map: Rows,
}

#[derive(Deserialize)]
struct Node {
    hostname: Option<String>,
    services: Services,
}

#[derive(Deserialize)]
struct Services {
    kv: Option<u16>,
    #[serde(rename = "kvSSL")]
    kv_tls: Option<u16>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rows {
    v_bucket_map: Vec<Vec<i32>>,
}

impl Client {
    /// Where the active copy of a user's key is, as the map of the server at `asked` says: the same address with another
    /// host and port. `None` if the map knows none.
    ///
    /// # Errors
    /// As [`Client::expect_success`].
    pub fn active_node(
        &mut self,
        key: &[u8],
        asked: &Address,
    ) -> Result<Option<Address>, ClientError> {
        let config = self.expect_success(&Request::new(Opcode::GET_CLUSTER_CONFIG))?;
        let number = self.key_form().vbucket(key).0;
        Ok(active_node(&config.value, number, asked))
    }
}

fn active_node(config: &[u8], vbucket: u16, asked: &Address) -> Option<Address> {
    let map: Map = serde_json::from_slice(config).ok()?;
    let row = map
        .v_bucket_server_map
        .v_bucket_map
        .get(usize::from(vbucket))?;
    let node = map
        .nodes_ext
        .into_iter()
        .nth(usize::try_from(*row.first()?).ok()?)?;
    let port = if asked.over_tls {
        node.services.kv_tls
    } else {
        node.services.kv
    };
    Some(Address {
        host: node.hostname.unwrap_or_else(|| asked.host.clone()),
        port: port?,
        ..asked.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_map_tells_the_node_of_a_vbucket() {
        let asked: Address = "couchbase://u:p@here:1/b".parse().unwrap();
        let config = r#"{
            "nodesExt": [
                {"services": {"kv": 1, "mgmt": 3}, "thisNode": true},
                {"services": {"kv": 5, "kvSSL": 6}, "hostname": "there"}
            ],
            "vBucketServerMap": {"vBucketMap": [[0, 1], [1, 0], [-1, 0]]}
        }"#;
        let of = |vbucket, asked: &Address| {
            let node = active_node(config.as_bytes(), vbucket, asked)?;
            Some((node.host, node.port))
        };
        assert_eq!(of(0, &asked), Some(("here".to_owned(), 1)));
        assert_eq!(of(1, &asked), Some(("there".to_owned(), 5)));
        assert_eq!(of(2, &asked), None);
        assert_eq!(of(3, &asked), None);
        let over_tls = true;
        let sealed = Address { over_tls, ..asked };
        assert_eq!(of(1, &sealed), Some(("there".to_owned(), 6)));
        assert_eq!(of(0, &sealed), None);
    }
}
