//! A node to measure, and its requests.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use server::{BucketConfig, BucketKind, EvictionPolicy, Node, NodeConfig};

/// A warm node on free ports, with one bucket.
pub(crate) fn node(data_dir: Option<PathBuf>, quota_bytes: u64) -> Node {
    let node = Node::start(NodeConfig {
        data_dir,
        listen: Ipv4Addr::LOCALHOST.into(),
        advertise: None,
        kv_port: 0,
        http_port: 0,
        memcached: None,
        kv_tls_port: None,
        https_port: None,
        certificate: None,
        client_cert: None,
        client_ca: None,
        provisionable: None,
        username: "Administrator".into(),
        password: "password".into(),
        buckets: vec![BucketConfig {
            name: "default".into(),
            quota_bytes,
            kind: BucketKind::Couchbase,
            eviction: EvictionPolicy::Values,
            durability_min: None,
            vbuckets: None,
        }],
        replica_of: None,
        cluster: None,
        threads: 2,
        purge_age_s: 259_200,
        journal_bytes: 32 << 20,
        encryption_keys: None,
        buckets_max: 100,
    })
    .unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    runtime.unwrap().block_on(node.warmed_up()).unwrap();
    node
}

/// Appends a request to `out`.
pub(crate) fn frame(opcode: u8, vb: u16, [extras, key, value]: [&[u8]; 3], out: &mut Vec<u8>) {
    out.extend([0x80, opcode]);
    out.extend((key.len() as u16).to_be_bytes());
    out.extend([extras.len() as u8, 0]);
    out.extend(vb.to_be_bytes());
    out.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    out.extend([0; 12]);
    for part in [extras, key, value] {
        out.extend_from_slice(part);
    }
}
