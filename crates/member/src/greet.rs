//! Check before a node joins: the nodes of a cluster must accept each other's certificates.

use std::time::Duration;

use client::{Client, ConnectOptions, SaltedCache};
use cluster::agreed::Node;
use tls::PeerTls;

use crate::peers::{login, options_of, refusal};

/// Longest wait for a node.
const PATIENCE: Duration = Duration::from_secs(1);

/// Connects to other nodes until one connection succeeds. Nodes that cannot be reached do not count.
///
/// # Errors
/// No connection succeeded, and a certificate was refused, by this node or by the other one; one line that
/// names the node.
pub(crate) fn greet<'n>(
    nodes: impl Iterator<Item = &'n Node>,
    tls: &PeerTls,
    secret: &str,
) -> Result<(), String> {
    let mut refused = Ok(());
    for node in nodes {
        let Some(port) = node.inside.kv_tls else {
            continue;
        };
        let options = ConnectOptions {
            timeout: PATIENCE,
            ..options_of((node.inside.host.clone(), port), Some(tls))
        };
        match Client::connect_to_node(&options, &login(secret), &mut SaltedCache::default()) {
            Ok(_) => return Ok(()),
            Err(error) => {
                if let Some(why) = refusal(&error) {
                    let (name, host) = (&node.name, &node.inside.host);
                    refused = Err(format!(
                        "node {name} at {host}:{port} is no peer over TLS: {why}; --peer-ca names the authorities of all \
                         nodes"
                    ));
                }
            }
        }
    }
    refused
}
