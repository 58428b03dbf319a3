//! The maps that clients of a bucket get.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster_map::{
    AlternateAddress, HOST_PLACEHOLDER, MapRevision, NO_NODE, NodeAddress, Row, SERVER_GROUP,
    StandInPorts, TlsPorts, global_config,
};
use crate::group::Group;
use crate::peer::Peer;
use crate::settings::{Ports, StandIn};

/// One revision of a cluster map.
#[derive(Clone, Debug)]
pub struct MapVersion {
    /// Revision of the map.
    pub revision: MapRevision,
    /// JSON text of the map.
    pub json: Arc<str>,
}

/// Address parts at which clients reach this node.
#[derive(Clone, Copy, Debug)]
pub struct NodeReach<'a> {
    /// The node's ports.
    pub ports: Ports,
    /// Ports of the services for which it stands in.
    pub stand_ins: StandInPorts,
    /// Address outside of the node's network, if it has one.
    pub external: Option<&'a AlternateAddress>,
}

impl<'a> NodeReach<'a> {
    /// Creates the address of a node with these ports. Only stand-ins that were asked for get a port.
    pub fn new(
        ports: Ports,
        asked: &BTreeSet<StandIn>,
        external: Option<&'a AlternateAddress>,
    ) -> Self {
        let asked_port = |one, port: Option<u16>| port.filter(|_| asked.contains(&one));
        Self {
            ports,
            stand_ins: StandInPorts {
                query: asked_port(StandIn::Query, ports.query),
                search: asked_port(StandIn::Search, ports.search),
                // Indexes are created through the query service.
                index: asked_port(StandIn::Index, ports.query),
            },
            external,
        }
    }
}

/// Returns the address of this node in its maps.
pub(crate) fn this_node(at: NodeReach<'_>) -> NodeAddress<'_> {
    let NodeReach {
        ports,
        stand_ins,
        external,
    } = at;
    NodeAddress {
        host: HOST_PLACEHOLDER,
        this_node: true,
        group: SERVER_GROUP,
        kv_port: Some(ports.kv),
        http_port: ports.http,
        tls: TlsPorts {
            kv: ports.kv_tls,
            http: ports.https,
        },
        stand_ins,
        external,
    }
}

/// Returns the nodes of a group in the order of its maps: the active one last, behind its replicas.
pub(crate) fn group_nodes<'a>(at: NodeReach<'a>, group: &'a Group) -> Vec<NodeAddress<'a>> {
    let mut nodes: Vec<_> = group.peers.iter().map(Peer::address).collect();
    nodes.insert(group.place.min(nodes.len()), this_node(at));
    nodes.rotate_left(1);
    nodes
}

/// Returns the row of every vBucket of a group with this number of nodes.
pub(crate) fn group_row(nodes: usize) -> Row {
    let mut row = [NO_NODE; 4];
    let nodes = nodes.min(row.len());
    for (place, of) in (0..).zip(&mut row[..nodes]) {
        *of = place;
    }
    row[..nodes].rotate_right(1);
    row
}

/// Builds the map that names no bucket.
pub fn global_map(at: NodeReach<'_>, group: &Group, revision: MapRevision) -> MapVersion {
    let json = global_config(revision, &group_nodes(at, group));
    MapVersion {
        revision,
        json: json.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The active node comes first in rows, whichever node sends the map.
    #[test]
    fn all_nodes_of_a_group_are_listed() {
        let ports = Ports {
            kv: 11210,
            http: 8091,
            ..Ports::default()
        };
        let at = NodeReach::new(ports, &BTreeSet::new(), None);
        let peers = vec![
            Peer::configured("10.0.0.2", 1, false),
            Peer::configured("10.0.0.3", 1, false),
        ];
        let orders = [
            ["10.0.0.2", "10.0.0.3", HOST_PLACEHOLDER],
            [HOST_PLACEHOLDER, "10.0.0.3", "10.0.0.2"],
            ["10.0.0.3", HOST_PLACEHOLDER, "10.0.0.2"],
        ];
        for (place, order) in orders.into_iter().enumerate() {
            let group = Group {
                peers: peers.clone(),
                place,
                superseded: false,
            };
            let nodes = group_nodes(at, &group);
            let hosts: Vec<_> = nodes.iter().map(|node| node.host).collect();
            assert_eq!(hosts, order);
            assert!(
                nodes
                    .iter()
                    .all(|node| node.this_node == (node.host == HOST_PLACEHOLDER))
            );
        }
        assert_eq!(group_row(1), [0, -1, -1, -1]);
        assert_eq!(group_row(3), [2, 0, 1, -1]);
    }
}
