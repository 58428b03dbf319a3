//! Two nodes know of each other: the replica makes itself known when it connects, and both
//! then tell clients the same map, each with its own name for itself.
//!
//! The active node decides the revision; a promotion begins a new epoch, so that whatever the old
//! active node still tells is older for every client.

use std::net::IpAddr;
use std::sync::Arc;

use serde_json::{Value, json};

use super::ReplicaOf;
use crate::cluster_map::{
    BUCKET_CAPABILITIES, BucketMap, HOST_PLACEHOLDER, MapRevision, NodeAddress, PeerAddress,
    bucket_config, global_config,
};
use crate::config::Ports;
use crate::node::{NodeState, random_vb_uuid};
use crate::served::{MapVersion, ServedBucket};

/// Where HTTP management is until the node itself says so.
const HTTP_PORT_GUESS: u16 = 8091;

/// The other node of a pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Peer {
    pub(crate) host: String,
    pub(crate) kv_port: u16,
    pub(crate) http_port: u16,
    /// Whether it is the active one.
    pub(crate) active: bool,
}

impl Peer {
    /// The active node, as far as its replica knows it before they met.
    pub(crate) fn followed(of: &ReplicaOf) -> Self {
        Self {
            host: of.host.clone(),
            kv_port: of.port,
            http_port: HTTP_PORT_GUESS,
            active: true,
        }
    }

    fn address(&self) -> NodeAddress<'_> {
        NodeAddress {
            host: &self.host,
            kv_port: self.kv_port,
            http_port: self.http_port,
        }
    }
}

fn this_node(ports: Ports) -> NodeAddress<'static> {
    NodeAddress {
        host: HOST_PLACEHOLDER,
        kv_port: ports.kv,
        http_port: ports.http,
    }
}

/// The map of a bucket.
pub(crate) fn bucket_map(
    (name, uuid, vbuckets): (&str, &str, u16),
    ports: Ports,
    peer: Option<&Peer>,
    revision: MapRevision,
) -> MapVersion {
    let map = BucketMap {
        name,
        uuid,
        revision,
        vbuckets,
        replicas: u8::from(peer.is_some()),
        manifest_uid: 0,
        capabilities: BUCKET_CAPABILITIES,
        node: this_node(ports),
        peer: peer.map(|peer| PeerAddress {
            at: peer.address(),
            active: peer.active,
        }),
    };
    MapVersion {
        revision,
        json: bucket_config(&map).into(),
    }
}

/// The map that names no bucket.
pub(crate) fn global_map(ports: Ports, peer: Option<&Peer>, revision: MapRevision) -> MapVersion {
    let at = peer.map(Peer::address);
    MapVersion {
        revision,
        json: global_config(revision, &this_node(ports), at.as_ref()).into(),
    }
}

fn publish(node: &NodeState, served: &ServedBucket, revision: MapRevision) {
    let peer = served.peer();
    let uuid = served.shown_uuid();
    let about = (served.name(), uuid.as_ref(), served.bucket.vbuckets());
    let map = bucket_map(about, node.ports, peer.as_ref(), revision);
    node.publish_global_map(global_map(node.ports, peer.as_ref(), revision));
    node.publish_map(served, map);
}

/// What a replica tells its active node about itself.
pub(super) fn introduction(node: &NodeState, served: &ServedBucket) -> String {
    let revision = served.map().revision;
    json!({
        "kv": node.ports.kv,
        "http": node.ports.http,
        "node": node.uuid,
        "epoch": revision.epoch,
        "rev": revision.rev,
    })
    .to_string()
}

fn port(about: &Value, name: &str) -> Option<u16> {
    u16::try_from(about[name].as_u64()?)
        .ok()
        .filter(|port| *port != 0)
}

fn revision(about: &Value) -> Option<MapRevision> {
    let (epoch, rev) = (about["epoch"].as_i64()?, about["rev"].as_i64()?);
    (epoch >= 1 && rev >= 1).then_some(MapRevision { epoch, rev })
}

/// A replica at `host` made itself known: it is part of the map from now on, until another one
/// comes. Gives the answer; `None` when what it says cannot be understood, or when this node is
/// a replica itself.
pub(crate) fn register(
    node: &Arc<NodeState>,
    served: &ServedBucket,
    host: IpAddr,
    about: &[u8],
) -> Option<String> {
    if served.peer().is_some_and(|peer| peer.active) {
        return None;
    }
    let about: Value = serde_json::from_slice(about).ok()?;
    let theirs = revision(&about)?;
    let peer = Peer {
        host: host.to_string(),
        kv_port: port(&about, "kv")?,
        http_port: port(&about, "http")?,
        active: false,
    };
    let ours = served.map().revision;
    let known = served.peer().as_ref() == Some(&peer) && ours >= theirs;
    let agreed = if known {
        ours
    } else {
        let newest = ours.max(theirs);
        let rev = newest.rev.saturating_add(1);
        MapRevision { rev, ..newest }
    };
    if !known {
        tracing::info!(
            bucket = served.name(),
            host = peer.host,
            kv = peer.kv_port,
            "a replica came"
        );
        served.set_peer(Some(peer));
        // From now on a majority is both.
        if let Some(name) = about["node"].as_str().filter(|name| is_uuid(name)) {
            let topology = json!([[node.uuid, name]]).to_string();
            served.bucket.set_topology(&topology, random_vb_uuid());
        }
        publish(node, served, agreed);
    }
    let answer = json!({
        "http": node.ports.http,
        "uuid": served.shown_uuid().as_ref(),
        "epoch": agreed.epoch,
        "rev": agreed.rev,
    });
    Some(answer.to_string())
}

/// The active node answered: its map is ours from now on. What cannot be understood changes
/// nothing.
pub(super) fn registered(
    node: &Arc<NodeState>,
    served: &ServedBucket,
    of: &ReplicaOf,
    answer: &[u8],
) {
    let Ok(answer) = serde_json::from_slice::<Value>(answer) else {
        return;
    };
    let (Some(revision), Some(http_port)) = (revision(&answer), port(&answer, "http")) else {
        return;
    };
    if let Some(uuid) = answer["uuid"].as_str().filter(|uuid| is_uuid(uuid)) {
        served.show_uuid(uuid);
    }
    let peer = Peer {
        http_port,
        ..Peer::followed(of)
    };
    let news = served.peer().as_ref() != Some(&peer) || served.map().revision != revision;
    if news {
        served.set_peer(Some(peer));
        publish(node, served, revision);
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The replica of this active node is gone for good: durable writes do without it again, and
/// clients are told. False when there is none.
pub(crate) fn forget_replica(node: &Arc<NodeState>, served: &ServedBucket) -> bool {
    if served.peer().is_none_or(|peer| peer.active) {
        return false;
    }
    served.bucket.set_topology("", random_vb_uuid());
    publish_promoted(node, served);
    true
}

/// This node is the active one now, and alone.
pub(super) fn publish_promoted(node: &Arc<NodeState>, served: &ServedBucket) {
    let known = served.map().revision;
    served.set_peer(None);
    let epoch = known.epoch.saturating_add(1);
    let rev = known.rev.saturating_add(1);
    publish(node, served, MapRevision { epoch, rev });
}
