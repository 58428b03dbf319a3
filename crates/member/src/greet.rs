//! Whether the nodes of a cluster accept each other's certificates, before a node joins.

use std::time::Duration;

use client::{Client, ConnectOptions, SaltedCache};
use cluster::agreed::Node;
use tls::PeerTls;

use crate::peers::{login, options_of, refusal};

/// How long a node may take to answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Connects to other nodes, until one accepts this one and is accepted. Nodes that cannot be reached say nothing.
///
/// # Errors
/// None did, and the certificate of one was refused, or it refused this node's; one line that names it.
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
