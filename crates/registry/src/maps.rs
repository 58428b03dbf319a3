//! The maps that clients of a bucket are told.

use std::sync::Arc;

use crate::cluster_map::{
    AlternateAddress, HOST_PLACEHOLDER, MapRevision, NodeAddress, TlsPorts, global_config,
};
use crate::group::Group;
use crate::peer::Peer;
use crate::settings::Ports;

/// One revision of a cluster map.
#[derive(Clone, Debug)]
pub struct MapVersion {
    /// Its revision.
    pub revision: MapRevision,
    /// Its text.
    pub json: Arc<str>,
}

/// Where clients reach this node.
#[derive(Clone, Copy, Debug)]
pub struct Reached<'a> {
    /// Its own ports.
    pub ports: Ports,
    /// Its address outside of its network, if it has one.
    pub external: Option<&'a AlternateAddress>,
}

/// The address of this node in its maps.
pub(crate) fn this_node(Reached { ports, external }: Reached<'_>) -> NodeAddress<'_> {
    NodeAddress {
        host: HOST_PLACEHOLDER,
        kv_port: ports.kv,
        http_port: ports.http,
        tls: TlsPorts {
            kv: ports.kv_tls,
            http: ports.https,
        },
        external,
    }
}

/// The map that names no bucket.
pub fn global_map(at: Reached<'_>, group: &Group, revision: MapRevision) -> MapVersion {
    let peers: Vec<_> = group.peers.iter().map(Peer::address).collect();
    let json = global_config(revision, this_node(at), &peers, group.place);
    MapVersion {
        revision,
        json: json.into(),
    }
}
