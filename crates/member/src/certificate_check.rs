//! Check before a node joins: the nodes of a cluster must accept each other's certificates.

use std::time::Duration;

use client::{Client, ConnectOptions, SaltedCache};
use cluster::agreed::Node;
use tls::PeerTls;

use crate::peers::{login, options_of, refusal};

/// Longest wait for the nodes.
const PATIENCE: Duration = Duration::from_secs(1);

/// Connects to the other nodes, to all at once: those that start at the same time do not answer yet. Nodes that cannot
/// be reached do not count.
///
/// # Errors
/// No connection succeeded, and a certificate was refused, by this node or by the other one; one line that
/// names the node.
pub(crate) fn check_certificates<'n>(
    nodes: impl Iterator<Item = &'n Node>,
    tls: &PeerTls,
    secret: &str,
) -> Result<(), String> {
    let answers: Vec<_> = std::thread::scope(|threads| {
        let checks: Vec<_> = nodes
            .map(|node| threads.spawn(|| check_certificate(node, tls, secret)))
            .collect();
        let answers = checks.into_iter().filter_map(|thread| thread.join().ok());
        answers.flatten().collect()
    });
    if answers.iter().any(Result::is_ok) {
        return Ok(());
    }
    answers.into_iter().collect()
}

/// Connects to a node. Returns `None` if it cannot be reached.
fn check_certificate(node: &Node, tls: &PeerTls, secret: &str) -> Option<Result<(), String>> {
    let port = node.inside.kv_tls?;
    let options = ConnectOptions {
        timeout: PATIENCE,
        ..options_of((node.inside.host.clone(), port), Some(tls))
    };
    let connected = Client::connect_to_node(&options, &login(secret), &mut SaltedCache::default());
    let Err(error) = connected else {
        return Some(Ok(()));
    };
    refusal(&error).map(|why| {
        let (name, host) = (&node.name, &node.inside.host);
        Err(format!(
            "node {name} at {host}:{port} is no peer over TLS: {why}; --peer-ca names the authorities of all nodes"
        ))
    })
}
