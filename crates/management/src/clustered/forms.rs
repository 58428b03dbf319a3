//! Nodes in the forms of tools.

use registry::NodeStatus;

use super::nodes::{hostname, otp_node};
use crate::form::{field, words};

/// Finds the node of a field: by its name in lists of nodes, by its own name, or by its management address.
pub(super) fn node<'a>(
    nodes: &'a [NodeStatus],
    body: &[u8],
    name: &str,
) -> Result<&'a NodeStatus, String> {
    let Some(text) = field(body, name).filter(|text| !text.is_empty()) else {
        return Err(format!("{name} must be supplied"));
    };
    find(nodes, &text).ok_or_else(|| format!("{text} is no node of the cluster"))
}

/// Finds all nodes of a field, separated by commas.
pub(super) fn nodes<'a>(
    nodes: &'a [NodeStatus],
    body: &[u8],
    name: &str,
) -> Result<Vec<&'a NodeStatus>, String> {
    let text = field(body, name).unwrap_or_default();
    let found = words(&text).map(|one| {
        let node = find(nodes, one);
        node.ok_or_else(|| format!("{one} is no node of the cluster"))
    });
    found.collect()
}

fn find<'a>(nodes: &'a [NodeStatus], text: &str) -> Option<&'a NodeStatus> {
    let is =
        |node: &&NodeStatus| otp_node(node) == text || node.name == text || hostname(node) == text;
    nodes.iter().find(is)
}
