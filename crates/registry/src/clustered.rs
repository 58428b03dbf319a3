//! Maps for clients of a cluster, built from the state that its nodes agreed on.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::agreed::{Address, BucketSpec, Node, NodeState, View};
use cluster::{BucketId, NodeId, Vb};
use model::VbId;
use serde::Deserialize as _;

use crate::cluster::ClusterMember;
use crate::cluster_map::{
    AlternateAddress, MapRevision, MapRows, NO_NODE, NodeAddress, Row, SERVER_GROUP, StandInPorts,
    TlsPorts, global_config,
};
use crate::maps::MapVersion;
use crate::registry::Registry;
use crate::served::ServedBucket;
use crate::settings::BucketSettings;

/// Finds a bucket of a cluster by its name.
pub fn bucket_id(view: &View, name: &str) -> Option<BucketId> {
    let mut specs = view.specs.iter();
    let found = specs.find(|(_, spec)| spec.value.name == name);
    found.map(|(id, _)| *id)
}

/// Whether the cluster has a bucket of this name that this node does not serve: the node is about to make it.
pub fn awaits_bucket(node: &Registry, name: &str) -> bool {
    let makes = |member: &Arc<dyn ClusterMember>| makes_bucket(&**member, name);
    node.bucket(name).is_none() && node.cluster.get().is_some_and(makes)
}

/// Whether the cluster has a bucket of this name, and this node does not report that it cannot make it.
pub fn makes_bucket(member: &dyn ClusterMember, name: &str) -> bool {
    let view = member.view();
    bucket_id(&view, name).is_some_and(|id| !view.lacks(member.me(), id))
}

/// Returns the agreed settings of a bucket, with its name and number of vBuckets from their own fields.
///
/// # Errors
/// The settings cannot be read; one line.
pub fn agreed_settings(spec: &BucketSpec) -> Result<BucketSettings, String> {
    let read = BucketSettings::deserialize(&spec.settings);
    let mut settings = read.map_err(|error| error.to_string())?;
    settings.bucket.name.clone_from(&spec.name);
    settings.bucket.vbuckets = Some(spec.vbuckets);
    Ok(settings)
}

/// Checks whether this node has the only known copy of a vBucket. It is always true for a node of no cluster.
pub fn is_only_copy(node: &Registry, served: &ServedBucket, vb: VbId) -> bool {
    let Some(member) = node.cluster.get() else {
        return true;
    };
    let (view, number) = (member.view(), vb.0);
    let row = bucket_id(&view, served.name()).and_then(|bucket| view.row(Vb { bucket, number }));
    row.is_none_or(|row| row.chain.nodes().len() < 2)
}

/// Returns the name of a node's group: the one of its zone, or [`SERVER_GROUP`] if no node has a zone.
pub fn server_group(view: &View, node: &Node) -> String {
    if view.nodes.values().all(|entry| entry.value.zone == 0) {
        return SERVER_GROUP.to_owned();
    }
    format!("Zone {}", node.zone)
}

/// Returns the address of a node for clients of another network, in the form of configurations.
pub fn alternate_address(outside: &Address) -> AlternateAddress {
    let ports = [
        ("kv", Some(outside.kv)),
        ("mgmt", Some(outside.http)),
        ("kvSSL", outside.kv_tls),
        ("mgmtSSL", outside.https),
    ];
    let ports = ports.into_iter();
    AlternateAddress {
        hostname: outside.host.clone(),
        ports: ports
            .filter_map(|(name, port)| Some((name.to_owned(), port?)))
            .collect(),
    }
}

/// Publishes the agreed maps of a bucket and of all nodes to clients, if they are newer than the published ones. Call
/// it whenever rows, nodes or the collections of the bucket changed. It does nothing on a node of no cluster, or for a
/// bucket that the cluster does not have.
pub fn publish_cluster(node: &Registry, served: &ServedBucket) {
    let Some(member) = node.cluster.get() else {
        return;
    };
    let view = member.view();
    publish_nodes(node, &**member, &view);
    let Some(id) = bucket_id(&view, served.name()) else {
        return;
    };
    let newest = bucket_revision(&view, id);
    let uuid = id.to_string();
    if *served.shown_uuid() != *uuid {
        served.show_uuid(&uuid);
    }
    let made = |revision| bucket_map(&view, &**member, id, served, revision);
    let map = newer(&view, newest, &served.map(), made);
    if map.is_some_and(|map| served.advance_map(map)) {
        node.connections.map_changed();
        node.env.maps_changed();
    }
}

/// Publishes the agreed map of all nodes to clients, if it is newer than the published one.
pub fn publish_cluster_nodes(node: &Registry) {
    if let Some(member) = node.cluster.get() {
        publish_nodes(node, &**member, &member.view());
    }
}

fn publish_nodes(node: &Registry, member: &dyn ClusterMember, view: &View) {
    let chunks = view.maps.values().map(|chunk| chunk.mod_revision);
    let newest = chunks.chain(node_revisions(view)).max();
    let newest = revision(view, newest.unwrap_or(0));
    let all = view.maps.keys().map(|(bucket, _)| *bucket);
    let mut listed = BTreeSet::from([member.me()]);
    for id in all.collect::<BTreeSet<_>>() {
        let (with_active, others) = nodes_of(view, id);
        listed.extend(with_active.into_iter().chain(others));
    }
    listed.extend(members(view));
    let listed: Vec<_> = listed.into_iter().collect();
    let of_nodes = NodeAddresses::new(view, member, &listed);
    let nodes = of_nodes.addresses(member.me(), |node| view.nodes.contains_key(&node));
    let made = |revision| {
        let json = global_config(revision, &nodes).into();
        MapVersion { revision, json }
    };
    let advanced = {
        let mut now = node.global_map.write();
        let map = newer(view, newest, &now, made);
        let advanced = map.is_some();
        if let Some(map) = map {
            *now = map;
        }
        advanced
    };
    if advanced {
        node.env.maps_changed();
    }
}

/// Returns a map that is newer than `now`, if the map changed: not each phase of a move changes the map. Something that
/// was removed has no revision, nor has the node's own manifest. If the map changed without a newer revision of its
/// parts, it gets the revision of the whole view.
fn newer(
    view: &View,
    newest: MapRevision,
    now: &MapVersion,
    made: impl Fn(MapRevision) -> MapVersion,
) -> Option<MapVersion> {
    view.meta.as_ref()?;
    if newest.epoch == now.revision.epoch && made(now.revision).json == now.json {
        return None;
    }
    let seen = revision(view, view.revision);
    let revision = if newest > now.revision { newest } else { seen };
    (revision > now.revision).then(|| made(revision))
}

/// Returns the map revision of an etcd revision. A node that is alone starts with the first epoch and counts by time,
/// so its maps from before it joined are older.
fn revision(view: &View, revision: u64) -> MapRevision {
    let number = |of: u64| i64::try_from(of).unwrap_or(i64::MAX);
    MapRevision {
        epoch: number(view.epoch()).saturating_add(1),
        rev: number(revision).max(1),
    }
}

fn node_revisions(view: &View) -> impl Iterator<Item = u64> {
    view.nodes.values().map(|node| node.mod_revision)
}

/// Returns the newest revision of a bucket map's parts: the chunks and settings of the bucket, and the nodes.
fn bucket_revision(view: &View, id: BucketId) -> MapRevision {
    let chunks = view.maps.range((id, 0)..=(id, u16::MAX));
    let chunks = chunks.map(|(_, chunk)| chunk.mod_revision);
    let spec = view.specs.get(&id).map(|spec| spec.mod_revision);
    let all = chunks.chain(spec).chain(node_revisions(view));
    revision(view, all.max().unwrap_or(0))
}

/// Returns the nodes that have, or are to have, copies.
fn members(view: &View) -> impl Iterator<Item = NodeId> {
    let members = view
        .nodes
        .iter()
        .filter(|(_, node)| matches!(node.value.state, NodeState::Active | NodeState::Draining));
    members.map(|(id, _)| *id)
}

/// Returns the nodes with active copies of a bucket, and those with replicas only. A replica on a failed node does not
/// count: clients would wait for a connection to it.
fn nodes_of(view: &View, id: BucketId) -> (BTreeSet<NodeId>, BTreeSet<NodeId>) {
    let (mut active, mut others) = (BTreeSet::new(), BTreeSet::new());
    for (_, chunk) in view.maps.range((id, 0)..=(id, u16::MAX)) {
        for row in chunk.value.rows.iter() {
            active.extend(row.chain.active());
            let replicas = row.chain.nodes().iter().skip(1);
            others.extend(replicas.filter(|node| !is_failed(view, **node)));
        }
    }
    others.retain(|node| !active.contains(node));
    (active, others)
}

/// Whether the map of a bucket sends clients to this node; so it does on a node of no cluster.
pub fn sends_clients_here(node: &Registry, served: &ServedBucket) -> bool {
    let Some(member) = node.cluster.get() else {
        return true;
    };
    let (view, me) = (member.view(), member.me());
    let mut of_bucket = bucket_id(&view, served.name())
        .map(|id| nodes_of(&view, id))
        .into_iter();
    members(&view).any(|node| node == me)
        || of_bucket.any(|(active, others)| active.contains(&me) || others.contains(&me))
}

fn is_failed(view: &View, node: NodeId) -> bool {
    let node = view.nodes.get(&node);
    node.is_none_or(|node| node.value.state == NodeState::Failed)
}

fn bucket_map(
    view: &View,
    member: &dyn ClusterMember,
    id: BucketId,
    served: &ServedBucket,
    revision: MapRevision,
) -> MapVersion {
    let (with_active, mut others) = nodes_of(view, id);
    others.extend(members(view).filter(|node| !with_active.contains(node)));
    // Nodes with active copies come last: see `BucketMap::nodes`.
    let listed: Vec<_> = others.into_iter().chain(with_active).collect();
    let place = |node: &NodeId| {
        let at = listed.iter().position(|listed| listed == node);
        at.map_or(NO_NODE, |at| i16::try_from(at).unwrap_or(NO_NODE))
    };
    let mut replicas = view.specs[&id].value.copies.clamp(1, 4) - 1;
    let mut rows: Vec<Row> = Vec::with_capacity(served.bucket.vbuckets().into());
    for number in 0..served.bucket.vbuckets() {
        let mut row = [NO_NODE; 4];
        let found = view.row(Vb { bucket: id, number });
        let nodes = found.map_or(&[][..], |row| row.chain.nodes());
        for (at, (node, place_of)) in nodes.iter().zip(&mut row).enumerate() {
            if at == 0 || !is_failed(view, *node) {
                *place_of = place(node);
            }
        }
        replicas = replicas.max(nodes.len().saturating_sub(1));
        rows.push(row);
    }
    // A client's process may end where no node is the one that tells the map. The places of all others stay.
    let (mut named, me) = (listed.clone(), member.me());
    named.extend(Some(me).filter(|me| !listed.contains(me)));
    let of_nodes = NodeAddresses::new(view, member, &named);
    let nodes = of_nodes.addresses(me, |node| listed.contains(&node));
    served.map_of(&nodes, MapRows::Each(&rows), replicas as u8, revision)
}

/// Nodes with the parts of their addresses.
struct NodeAddresses<'a> {
    nodes: Vec<(NodeId, &'a Node, String, Option<AlternateAddress>)>,
}

impl<'a> NodeAddresses<'a> {
    fn new(view: &'a View, member: &'a dyn ClusterMember, listed: &[NodeId]) -> Self {
        // A node that was removed is known to itself alone.
        let own = |id: &NodeId| (*id == member.me()).then(|| member.described());
        let agreed = |id: &NodeId| view.nodes.get(id).map(|entry| &entry.value);
        let known = |id: &NodeId| Some((*id, agreed(id).or_else(|| own(id))?));
        let nodes = listed.iter().filter_map(known);
        let nodes = nodes.map(|(id, node)| {
            let external = node.outside.as_ref().map(alternate_address);
            (id, node, server_group(view, node), external)
        });
        Self {
            nodes: nodes.collect(),
        }
    }

    /// Returns the addresses of all nodes as they were agreed on, on whichever node this runs: clients keep their
    /// connections when the next map comes from another node. Nodes for which `serves` is false get no port for
    /// documents.
    fn addresses(&self, me: NodeId, serves: impl Fn(NodeId) -> bool) -> Vec<NodeAddress<'_>> {
        let nodes = self.nodes.iter();
        let address = nodes.map(|(id, node, group, external)| {
            let serves = serves(*id);
            NodeAddress {
                host: &node.inside.host,
                this_node: *id == me,
                group,
                kv_port: serves.then_some(node.inside.kv),
                http_port: node.inside.http,
                tls: TlsPorts {
                    kv: node.inside.kv_tls.filter(|_| serves),
                    http: node.inside.https,
                },
                stand_ins: StandInPorts::default(),
                external: external.as_ref().filter(|_| serves),
            }
        });
        address.collect()
    }
}
