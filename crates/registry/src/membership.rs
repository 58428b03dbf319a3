//! Membership of a bucket's group. Replicas register with the active node when they connect, and again at intervals.
//! All nodes then send clients the same map, each with its own name for itself.
//!
//! The active node decides the order of its replicas and the revision of the map. A promotion begins a new epoch, so
//! maps of the old active node are older for every client and every replica.

use std::net::IpAddr;

use model::{Seqno, VbId};
use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::cluster_map::MapRevision;
use crate::collections::to_bytes;
use crate::group::{Group, GroupRecord};
use crate::peer::{Peer, host_of, is_uuid, port, revision};
use crate::publish::{about_bucket, about_this, publish};
use crate::registry::Registry;
use crate::served::ServedBucket;
use crate::settings::{BucketSettings, VBUCKETS};
use crate::supersede::{LaterEpoch, give_way};

/// Path of the setting with which a replica registers with its active node.
pub const REGISTER: &[u8] = b"replication.replica";

/// Path of the setting that makes a replica the active node.
pub const PROMOTE: &[u8] = b"replication.promote";

/// Largest number of replicas of a bucket: the limit of the protocol.
const REPLICAS_MAX: usize = 3;

/// Builds the message with which a replica registers with its active node.
pub fn introduction(node: &Registry, served: &ServedBucket, demote: bool) -> String {
    let mut about = about_bucket(node, served);
    about["demote"] = demote.into();
    about.to_string()
}

/// Registers a replica at `host`: the replica is part of the map until it is forgotten. Returns the answer, which may
/// be a refusal; `None` when the message cannot be understood.
pub fn register(
    node: &Registry,
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
            give_way(node, served, &LaterEpoch::epoch(theirs.epoch));
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
        // Durable writes need a majority of these nodes from here on.
        let names = group.peers.iter().map(|peer| peer.node.as_str());
        let names: Vec<&str> = names.filter(|name| !name.is_empty()).collect();
        if !names.is_empty() {
            let chain = [&[node.uuid.as_str()], &names[..]].concat();
            let topology = json!([chain]).to_string();
            served
                .bucket
                .set_topology(&topology, node.env.random_vb_uuid());
        }
        let mut standing = node.env.group_record(served.name());
        standing.peers.clone_from(&group.peers);
        node.env.note_standing(served.name(), standing, ours.epoch);
        served.set_group(group);
        publish(node, served, ours.max(theirs).next());
    }
    Some(welcome(node, served))
}

/// Builds the answer to a replica's registration: all nodes of the group.
fn welcome(node: &Registry, served: &ServedBucket) -> String {
    let revision = served.map().revision;
    let mut nodes = vec![about_this(node)];
    nodes.extend(served.group().peers.iter().map(Peer::to_json));
    json!({
        "http": node.shown_ports().http,
        "uuid": served.shown_uuid().as_ref(),
        "epoch": revision.epoch,
        "rev": revision.rev,
        "nodes": nodes,
        "vbuckets": served.bucket.vbuckets(),
        "settings": served.settings(),
    })
    .to_string()
}

/// The node to which a replica is connected.
#[derive(Clone, Debug)]
pub struct ActiveNode {
    /// Host and port.
    pub at: (String, u16),
    /// Whether the port has TLS.
    pub over_tls: bool,
    /// Whether data that only this node has may be given up.
    pub demote: bool,
}

/// Reason why a node cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotThere {
    /// The node follows another one itself, at this host and port.
    Elsewhere(String, u16),
    /// The node refused, or its bucket does not match; with the reason.
    Refused(String),
}

/// Takes the active node's answer to a registration: its map becomes the map of this node. An answer that cannot be
/// understood changes nothing. Returns whether the settings of its bucket are obeyed, or the reason why not.
///
/// # Errors
/// The node is not the one to follow; nothing is changed.
pub fn registered(
    node: &Registry,
    served: &ServedBucket,
    of: &ActiveNode,
    answer: &[u8],
) -> Result<Result<(), String>, NotThere> {
    let Ok(answer) = serde_json::from_slice::<Value>(answer) else {
        return Ok(Ok(()));
    };
    if let Some(reason) = answer["refused"].as_str() {
        return Err(NotThere::Refused(reason.to_owned()));
    }
    let over_tls = of.over_tls;
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
        return Ok(Ok(()));
    };
    let Some(active) = Peer::active(&answer["nodes"][0], &of.at, over_tls) else {
        return Ok(Ok(()));
    };
    if !of.demote && revision.epoch < served.map().revision.epoch {
        let reason = "another node was promoted since that one was the active one";
        return Err(NotThere::Refused(reason.to_owned()));
    }
    check_vbuckets(served, &answer["vbuckets"])?;
    let uuid = answer["uuid"].as_str().filter(|uuid| is_uuid(uuid));
    if let Some(uuid) = uuid {
        check_bucket(served, of, uuid)?;
        served.show_uuid(uuid);
    }
    let group = group_of(node, active, &answer["nodes"]);
    let taken = take_settings(node, served, &answer["settings"]);
    if !node.env.group_record(served.name()).is_plain() {
        // This node gives up its own history from here on.
        node.env
            .note_standing(served.name(), GroupRecord::default(), revision.epoch);
    }
    let news = taken == Ok(true) || served.group() != group || served.map().revision != revision;
    if news {
        served.set_group(group);
        publish(node, served, revision);
    }
    Ok(taken.map(drop))
}

/// Applies the settings in the active node's answer, if there are any. Returns whether they changed.
fn take_settings(node: &Registry, served: &ServedBucket, settings: &Value) -> Result<bool, String> {
    if settings.is_null() {
        return Ok(false);
    }
    let settings = BucketSettings::deserialize(settings).map_err(|error| error.to_string())?;
    node.env.follow_settings(served, settings)
}

/// Returns the group of this node from the nodes in the active node's answer.
fn group_of(node: &Registry, active: Peer, nodes: &Value) -> Group {
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

/// Checks that both nodes have the same number of vBuckets, so that they find a key in the same one. An answer without
/// a number means [`VBUCKETS`].
fn check_vbuckets(served: &ServedBucket, there: &Value) -> Result<(), NotThere> {
    let there = there.as_u64().unwrap_or(u64::from(VBUCKETS));
    let here = served.bucket.vbuckets();
    if there == u64::from(here) {
        return Ok(());
    }
    let name = served.name();
    Err(NotThere::Refused(format!(
        "the bucket has {there} vBuckets there and {here} here: an empty data directory and \
         --bucket {name}:QUOTA:KIND:EVICTION:LEVEL:{there} make one that can follow it"
    )))
}

/// Checks that the bucket is the same. A node that lost its data has a new bucket: to follow it would remove the last
/// copy.
fn check_bucket(served: &ServedBucket, of: &ActiveNode, uuid: &str) -> Result<(), NotThere> {
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

/// Removes the replicas of this active node for good. Durable writes do not wait for them, and clients get a map
/// without them. A replica that still runs registers again. Returns false if this node is not active with replicas.
pub fn forget_replicas(node: &Registry, served: &ServedBucket) -> bool {
    if served.group().role() != "active" {
        return false;
    }
    let mut standing = node.env.group_record(served.name());
    standing.peers.clear();
    let alone = next_epoch(served);
    node.env.note_standing(served.name(), standing, alone.epoch);
    served.bucket.set_topology("", node.env.random_vb_uuid());
    served.set_group(Group::default());
    publish(node, served, alone);
    true
}

/// Makes every replica vBucket active with a history of its own, and sends clients a new map. `others` are the nodes
/// that may not know of the promotion.
pub fn promote(node: &Registry, served: &ServedBucket, others: Vec<Peer>) {
    let bucket = &served.bucket;
    // Record first: a node that is killed here comes back as the active one, whatever its settings.
    let standing = GroupRecord {
        promoted: true,
        superseded: false,
        peers: others,
    };
    let alone = next_epoch(served);
    node.env.note_standing(served.name(), standing, alone.epoch);
    let mut promoted = 0;
    for id in (0..bucket.vbuckets()).map(VbId) {
        match bucket.promote_vbucket(id, node.env.random_vb_uuid()) {
            Ok(true) => promoted += 1,
            Ok(false) => {}
            Err(error) => tracing::error!(vb = id.0, ?error, "a vBucket was not promoted"),
        }
    }
    if let Err(error) = bucket.keep_manifest(to_bytes) {
        // Go on: the vBuckets hold everything that is in the manifest.
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

/// Returns the first map revision of a node that becomes active and has no replicas.
fn next_epoch(served: &ServedBucket) -> MapRevision {
    let next = served.map().revision.next();
    MapRevision {
        epoch: next.epoch.saturating_add(1),
        ..next
    }
}
