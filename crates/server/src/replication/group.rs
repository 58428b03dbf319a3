//! The nodes of a bucket know of each other: replicas make themselves known to the active node when
//! they connect, and again from time to time; all then tell clients the same map, each with its
//! own name for itself.
//!
//! The active node decides the order of its replicas and the map's revision; a promotion begins a
//! new epoch, so that whatever the old active node still tells is older for every client and every
//! replica.

use std::net::IpAddr;
use std::sync::Arc;

use model::ManifestUid;
use model::{Seqno, VbId};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::ReplicaOf;
use super::standing::Standing;
use super::supersede::{Later, give_way};
use crate::cluster_map::{
    BUCKET_CAPABILITIES, BucketMap, DISK_BUCKET_CAPABILITIES, HISTORY_BUCKET_CAPABILITIES,
    HOST_PLACEHOLDER, MapRevision, NodeAddress, TlsPorts, bucket_config, global_config,
};
use crate::collections::to_bytes;
use crate::config::{BucketKind, BucketSettings, Ports};
use crate::node::{NodeState, random_vb_uuid};
use crate::served::{MapVersion, ServedBucket};

/// Where HTTP management is until the node itself says so.
const HTTP_PORT_GUESS: u16 = 8091;
/// Where the KV port without TLS is until the node itself says so.
const KV_PORT_GUESS: u16 = 11210;
/// Longest name of a host.
const HOST_BYTES_MAX: usize = 255;
/// Replicas of a bucket at most: the protocol knows no more.
const REPLICAS_MAX: usize = 3;

/// Another node that has the bucket.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(crate) struct Peer {
    /// Its name in topologies, 32 hex digits; empty if it is not known.
    node: String,
    pub(crate) host: String,
    pub(crate) kv_port: u16,
    pub(crate) http_port: u16,
    tls: TlsPorts,
}

impl Peer {
    /// Where its HTTP management is.
    pub(crate) fn management(&self) -> String {
        if self.host.contains(':') {
            format!("http://[{}]:{}", self.host, self.http_port)
        } else {
            format!("http://{}:{}", self.host, self.http_port)
        }
    }

    /// The node that settings name.
    pub(super) fn configured(of: &ReplicaOf) -> Self {
        let (kv_port, kv_tls) = match of.tls {
            Some(_) => (KV_PORT_GUESS, Some(of.port)),
            None => (of.port, None),
        };
        Self {
            node: String::new(),
            host: of.host.clone(),
            kv_port,
            http_port: HTTP_PORT_GUESS,
            tls: TlsPorts {
                kv: kv_tls,
                http: None,
            },
        }
    }

    /// The active node as it tells of itself to a replica that reached it at `at`.
    fn active(about: &Value, at: &(String, u16), over_tls: bool) -> Option<Self> {
        let mut active = Self::read(about, &at.0)?;
        let advertised = about["advertised"] == true;
        if let Some(host) = about["host"]
            .as_str()
            .filter(|host| advertised && is_host(host))
        {
            host.clone_into(&mut active.host);
        } else if over_tls {
            active.tls.kv = Some(at.1);
        } else {
            active.kv_port = at.1;
        }
        Some(active)
    }

    /// `host:port`, for people.
    pub(crate) fn name(&self) -> String {
        format!("{}:{}", self.host, self.kv_port)
    }

    fn address(&self) -> NodeAddress<'_> {
        NodeAddress {
            host: &self.host,
            kv_port: self.kv_port,
            http_port: self.http_port,
            tls: self.tls,
        }
    }

    /// Whether both mean the same node, which may have moved.
    pub(super) fn is(&self, other: &Self) -> bool {
        let named = !self.node.is_empty() && self.node == other.node;
        named || (self.host == other.host && self.kv_port == other.kv_port)
    }

    pub(super) fn read(about: &Value, host: &str) -> Option<Self> {
        let node = about["node"].as_str().filter(|name| is_uuid(name));
        Some(Self {
            node: node.unwrap_or_default().to_owned(),
            host: host.to_owned(),
            kv_port: port(about, "kv")?,
            http_port: port(about, "http")?,
            tls: tls_ports(about),
        })
    }

    /// Where it is followed, and told of a promotion.
    pub(super) fn endpoint(&self, over_tls: bool) -> Option<(String, u16)> {
        let port = if over_tls { self.tls.kv? } else { self.kv_port };
        Some((self.host.clone(), port))
    }

    pub(super) fn to_json(&self) -> Value {
        json!({
            "node": self.node,
            "host": self.host,
            "kv": self.kv_port,
            "http": self.http_port,
            "kv_tls": self.tls.kv,
            "https": self.tls.http,
        })
    }
}

/// The other nodes of a bucket, in their order, and where this one stands among them: first is the
/// active node, the others are its replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Group {
    pub(crate) peers: Vec<Peer>,
    place: usize,
    /// This node was the active one, and another one was promoted since.
    superseded: bool,
}

impl Group {
    /// Of a replica that has not met its active node yet.
    pub(crate) fn following(of: &ReplicaOf) -> Self {
        Self::replica(vec![Peer::configured(of)])
    }

    /// Of a replica that follows the first of `peers`.
    pub(super) fn replica(peers: Vec<Peer>) -> Self {
        Self {
            place: peers.len(),
            peers,
            superseded: false,
        }
    }

    /// Of a node that was the active one until one of `peers` was promoted, most likely the first.
    pub(super) fn superseded(peers: Vec<Peer>) -> Self {
        Self {
            superseded: true,
            ..Self::replica(peers)
        }
    }

    /// Whether this node was the active one until another one was promoted.
    pub(crate) fn is_superseded(&self) -> bool {
        self.superseded
    }

    /// The node that this one follows.
    pub(crate) fn active(&self) -> Option<&Peer> {
        self.peers.first().filter(|_| self.place > 0)
    }

    /// What this node is.
    pub(crate) fn role(&self) -> &'static str {
        match (self.peers.len(), self.place) {
            _ if self.superseded => "superseded",
            (0, _) => "alone",
            (_, 0) => "active",
            _ => "replica",
        }
    }
}

fn this_node(ports: Ports) -> NodeAddress<'static> {
    NodeAddress {
        host: HOST_PLACEHOLDER,
        kv_port: ports.kv,
        http_port: ports.http,
        tls: TlsPorts {
            kv: ports.kv_tls,
            http: ports.https,
        },
    }
}

/// The map of a bucket.
pub(crate) fn bucket_map(
    (name, uuid, vbuckets, manifest): (&str, &str, u16, ManifestUid),
    settings: &BucketSettings,
    ports: Ports,
    group: &Group,
    revision: MapRevision,
) -> MapVersion {
    let peers: Vec<_> = group.peers.iter().map(Peer::address).collect();
    let map = BucketMap {
        name,
        uuid,
        revision,
        vbuckets,
        replicas: peers.len() as u8,
        manifest_uid: manifest.0,
        capabilities: match settings.bucket.kind {
            BucketKind::Couchbase if settings.history.magma => HISTORY_BUCKET_CAPABILITIES,
            BucketKind::Couchbase => DISK_BUCKET_CAPABILITIES,
            BucketKind::Ephemeral => BUCKET_CAPABILITIES,
        },
        node: this_node(ports),
        peers: &peers,
        place: group.place,
    };
    MapVersion {
        revision,
        json: bucket_config(&map).into(),
    }
}

/// The map that names no bucket.
pub(crate) fn global_map(ports: Ports, group: &Group, revision: MapRevision) -> MapVersion {
    let peers: Vec<_> = group.peers.iter().map(Peer::address).collect();
    let json = global_config(revision, this_node(ports), (&peers, group.place));
    MapVersion {
        revision,
        json: json.into(),
    }
}

/// The collections of a bucket changed: clients are told a map that says so.
pub(crate) fn manifest_changed(node: &NodeState, served: &ServedBucket) {
    let MapRevision { epoch, rev } = served.map().revision;
    let rev = rev + 1;
    publish(node, served, MapRevision { epoch, rev });
}

pub(super) fn publish(node: &NodeState, served: &ServedBucket, revision: MapRevision) {
    let group = served.group();
    let uuid = served.shown_uuid();
    node.remember(served.name(), &uuid, revision.epoch);
    let bucket = &served.bucket;
    let manifest = bucket.manifest().uid();
    let about = (served.name(), uuid.as_ref(), bucket.vbuckets(), manifest);
    let map = bucket_map(about, &served.settings(), node.ports, &group, revision);
    node.publish_global_map(global_map(node.ports, &group, revision));
    node.publish_map(served, map);
}

/// What a replica tells its active node about itself.
pub(super) fn introduction(node: &NodeState, served: &ServedBucket, demote: bool) -> String {
    let mut about = about_bucket(node, served);
    about["demote"] = demote.into();
    about.to_string()
}

/// This node and where its bucket stands.
pub(super) fn about_bucket(node: &NodeState, served: &ServedBucket) -> Value {
    let MapRevision { epoch, rev } = served.map().revision;
    let mut about = about_this(node);
    about["epoch"] = epoch.into();
    about["rev"] = rev.into();
    about["uuid"] = served.shown_uuid().as_ref().into();
    about
}

/// What a node tells others about itself. `host` is left out where it listens on every address:
/// others see where its connections come from.
fn about_this(node: &NodeState) -> Value {
    let mut about = json!({
        "node": node.uuid,
        "kv": node.ports.kv,
        "http": node.ports.http,
        "kv_tls": node.ports.kv_tls,
        "https": node.ports.https,
    });
    let listen = Some(node.listen).filter(|listen| !listen.is_unspecified());
    let listen = listen.map(|listen| listen.to_string());
    if let Some(host) = node.advertise.clone().or(listen) {
        about["host"] = host.into();
        about["advertised"] = node.advertise.is_some().into();
    }
    about
}

/// The host of a node that tells about itself on a connection from `source`.
pub(super) fn host_of(about: &Value, source: IpAddr) -> String {
    let told = about["host"].as_str().filter(|host| is_host(host));
    let loopback = |host: &str| host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback());
    // A loopback address means something on its own machine only.
    let told = told.filter(|host| source.is_loopback() || !loopback(host));
    told.map_or_else(|| source.to_string(), str::to_owned)
}

/// Whether a text may be the name or the address of a host.
pub fn is_host(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-._:".contains(c);
    (1..=HOST_BYTES_MAX).contains(&text.len()) && text.chars().all(plain)
}

fn port(about: &Value, name: &str) -> Option<u16> {
    u16::try_from(about[name].as_u64()?)
        .ok()
        .filter(|port| *port != 0)
}

fn tls_ports(about: &Value) -> TlsPorts {
    TlsPorts {
        kv: port(about, "kv_tls"),
        http: port(about, "https"),
    }
}

pub(super) fn revision(about: &Value) -> Option<MapRevision> {
    let (epoch, rev) = (about["epoch"].as_i64()?, about["rev"].as_i64()?);
    (epoch >= 1 && rev >= 1).then_some(MapRevision { epoch, rev })
}

/// A replica at `host` made itself known: it is part of the map from now on, until it is forgotten.
/// Gives the answer, which may say no; `None` when what it says cannot be understood.
pub(crate) fn register(
    node: &Arc<NodeState>,
    served: &ServedBucket,
    host: IpAddr,
    about: &[u8],
) -> Option<String> {
    let about: Value = serde_json::from_slice(about).ok()?;
    let theirs = revision(&about)?;
    let peer = Peer::read(&about, &host_of(&about, host))?;
    let mut group = served.group();
    if let Some(active) = group.active() {
        return Some(json!({ "follows": active.to_json() }).to_string());
    }
    let ours = served.map().revision;
    if theirs.epoch > ours.epoch && about["demote"] != true {
        if about["uuid"] == served.shown_uuid().as_ref() {
            give_way(node, served, &Later::epoch(theirs.epoch));
        }
        let reason = "another node was promoted since this one was the active one";
        return Some(json!({ "refused": reason }).to_string());
    }
    let at = group.peers.iter().position(|known| known.is(&peer));
    let known = at.is_some_and(|at| group.peers[at] == peer) && ours >= theirs;
    if !known {
        tracing::info!(
            bucket = served.name(),
            host = peer.host,
            kv = peer.kv_port,
            "a replica came"
        );
        match at {
            Some(at) => group.peers[at] = peer,
            None if group.peers.len() < REPLICAS_MAX => group.peers.push(peer),
            None => {
                let reason = "the bucket has as many replicas as there can be";
                return Some(json!({ "refused": reason }).to_string());
            }
        }
        // From now on a majority is more than half of them.
        let names = group.peers.iter().map(|peer| peer.node.as_str());
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        if !names.is_empty() {
            let chain = [&[node.uuid.as_str()], &names[..]].concat();
            let topology = json!([chain]).to_string();
            served.bucket.set_topology(&topology, random_vb_uuid());
        }
        let mut standing = node.standing(served.name());
        standing.peers.clone_from(&group.peers);
        node.note_standing(served.name(), standing, ours.epoch);
        served.set_group(group);
        let newest = ours.max(theirs);
        let rev = newest.rev.saturating_add(1);
        publish(node, served, MapRevision { rev, ..newest });
    }
    Some(welcome(node, served))
}

/// What a registered replica is told: who all the nodes are.
fn welcome(node: &NodeState, served: &ServedBucket) -> String {
    let revision = served.map().revision;
    let mut nodes = vec![about_this(node)];
    nodes.extend(served.group().peers.iter().map(Peer::to_json));
    json!({
        "http": node.ports.http,
        "uuid": served.shown_uuid().as_ref(),
        "epoch": revision.epoch,
        "rev": revision.rev,
        "nodes": nodes,
        "history": served.settings().history,
    })
    .to_string()
}

/// Why a node is not to be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NotThere {
    /// It follows another one itself.
    Elsewhere(String, u16),
    /// For this reason.
    Refused(String),
}

/// The active node answered: its map is ours from now on. What cannot be understood changes
/// nothing.
///
/// # Errors
/// It is not the one to follow; nothing is changed.
pub(super) fn registered(
    node: &Arc<NodeState>,
    served: &ServedBucket,
    (of, at): (&ReplicaOf, &(String, u16)),
    answer: &[u8],
) -> Result<(), NotThere> {
    let Ok(answer) = serde_json::from_slice::<Value>(answer) else {
        return Ok(());
    };
    if let Some(reason) = answer["refused"].as_str() {
        return Err(NotThere::Refused(reason.to_owned()));
    }
    let over_tls = of.tls.is_some();
    let follows = &answer["follows"];
    let there = port(follows, if over_tls { "kv_tls" } else { "kv" });
    if let (Some(host), Some(there)) = (follows["host"].as_str(), there) {
        return Err(NotThere::Elsewhere(host.to_owned(), there));
    }
    if !follows.is_null() {
        let reason = "the node that it follows has no port for TLS";
        return Err(NotThere::Refused(reason.to_owned()));
    }
    let Some(revision) = revision(&answer) else {
        return Ok(());
    };
    let Some(active) = Peer::active(&answer["nodes"][0], at, over_tls) else {
        return Ok(());
    };
    if !of.demote && revision.epoch < served.map().revision.epoch {
        let reason = "another node was promoted since that one was the active one";
        return Err(NotThere::Refused(reason.to_owned()));
    }
    let uuid = answer["uuid"].as_str().filter(|uuid| is_uuid(uuid));
    if let Some(uuid) = uuid {
        check_bucket(served, of, uuid)?;
        served.show_uuid(uuid);
    }
    let group = group_of(node, active, &answer["nodes"]);
    let history = serde_json::from_value(answer["history"].clone());
    let kept = history.map(|history| node.follow_history(served, history));
    let told = kept.unwrap_or(Ok(false)).unwrap_or_else(|error| {
        tracing::error!(bucket = served.name(), ?error, "the history is not kept");
        false
    });
    if !node.standing(served.name()).is_plain() {
        // From here on this node gives up what it had of its own.
        node.note_standing(served.name(), Standing::default(), revision.epoch);
    }
    let news = told || served.group() != group || served.map().revision != revision;
    if news {
        served.set_group(group);
        publish(node, served, revision);
    }
    Ok(())
}

/// All nodes but this one, as the active node lists them after itself.
fn group_of(node: &NodeState, active: Peer, nodes: &Value) -> Group {
    let mut peers = vec![active];
    let mut place = None;
    let listed = nodes.as_array().map_or(&[][..], Vec::as_slice);
    for about in listed.iter().skip(1).take(REPLICAS_MAX) {
        if about["node"] == node.uuid.as_str() {
            place = Some(peers.len());
        } else if let Some(host) = about["host"].as_str() {
            peers.extend(Peer::read(about, host));
        }
    }
    let place = place.unwrap_or(peers.len());
    Group {
        peers,
        place,
        superseded: false,
    }
}

/// A node that lost its data is no active node of what is here: following it would take the last
/// copy away.
fn check_bucket(served: &ServedBucket, of: &ReplicaOf, uuid: &str) -> Result<(), NotThere> {
    if of.demote || *served.shown_uuid() == *uuid {
        return Ok(());
    }
    let has_changes = |id| {
        let high = served.bucket.with_vbucket(VbId(id), |vb| vb.high_seqno());
        high.is_some_and(|high| high != Seqno::ZERO)
    };
    if (0..served.bucket.vbuckets()).any(has_changes) {
        return Err(NotThere::Refused(format!(
            "the bucket there ({uuid}) is another one than the one that was followed: did that \
             node lose its data? Promote this node, or give up what it has with --demote"
        )));
    }
    Ok(())
}

fn is_uuid(text: &str) -> bool {
    text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The replicas of this active node are gone for good: durable writes do without them again, and
/// clients are told. One that is still there comes back by itself. False when there is none.
pub(crate) fn forget_replicas(node: &Arc<NodeState>, served: &ServedBucket) -> bool {
    if served.group().role() != "active" {
        return false;
    }
    let mut standing = node.standing(served.name());
    standing.peers.clear();
    let alone = next_epoch(served);
    node.note_standing(served.name(), standing, alone.epoch);
    served.bucket.set_topology("", random_vb_uuid());
    served.set_group(Group::default());
    publish(node, served, alone);
    true
}

/// Every vBucket that is a replica becomes active with a history of its own, and clients are told.
/// `others` are the nodes that may not know of it.
pub(crate) fn promote(node: &Arc<NodeState>, served: &ServedBucket, others: Vec<Peer>) {
    let bucket = &served.bucket;
    // First, so that a node that is killed now comes back as the active one whatever its settings.
    let standing = Standing {
        promoted: true,
        superseded: false,
        peers: others,
    };
    let alone = next_epoch(served);
    node.note_standing(served.name(), standing, alone.epoch);
    let mut promoted = 0;
    for id in (0..bucket.vbuckets()).map(VbId) {
        match bucket.promote_vbucket(id, random_vb_uuid()) {
            Ok(true) => promoted += 1,
            Ok(false) => {}
            Err(error) => tracing::error!(vb = id.0, ?error, "a vBucket was not promoted"),
        }
    }
    if let Err(error) = bucket.keep_manifest(to_bytes) {
        // The vBuckets tell of everything in it.
        tracing::error!(bucket = served.name(), %error, "the manifest could not be kept");
    }
    served.set_group(Group::default());
    publish(node, served, alone);
    tracing::info!(
        bucket = served.name(),
        promoted,
        "the replica is active now"
    );
}

/// The first revision of the map of a node that is the active one from now on, and alone.
fn next_epoch(served: &ServedBucket) -> MapRevision {
    let known = served.map().revision;
    MapRevision {
        epoch: known.epoch.saturating_add(1),
        rev: known.rev.saturating_add(1),
    }
}
