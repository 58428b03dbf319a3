//! The maps that clients of a bucket are told.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::cluster_map::{
    AlternateAddress, HOST_PLACEHOLDER, MapRevision, NodeAddress, StandInPorts, TlsPorts,
    global_config,
};
use crate::group::Group;
use crate::peer::Peer;
use crate::settings::{Ports, StandIn};

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
    /// Those of what it was asked to stand in for.
    pub stand_ins: StandInPorts,
    /// Its address outside of its network, if it has one.
    pub external: Option<&'a AlternateAddress>,
}

impl<'a> Reached<'a> {
    /// At these ports, of which those of stand-ins are told as far as they were asked for.
    pub fn new(
        ports: Ports,
        asked: &BTreeSet<StandIn>,
        external: Option<&'a AlternateAddress>,
    ) -> Self {
        let told = |one, port: Option<u16>| port.filter(|_| asked.contains(&one));
        Self {
            ports,
            stand_ins: StandInPorts {
                query: told(StandIn::Query, ports.query),
                search: told(StandIn::Search, ports.search),
                // There indexes of queries are made.
                index: told(StandIn::Index, ports.query),
            },
            external,
        }
    }
}

/// The address of this node in its maps.
pub(crate) fn this_node(at: Reached<'_>) -> NodeAddress<'_> {
    let Reached {
        ports,
        stand_ins,
        external,
    } = at;
    NodeAddress {
        host: HOST_PLACEHOLDER,
        kv_port: ports.kv,
        http_port: ports.http,
        tls: TlsPorts {
            kv: ports.kv_tls,
            http: ports.https,
        },
        stand_ins,
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
