//! Demotion of a node that learns of a later epoch of its bucket: another node was promoted, and only one node may be
//! active. The news comes from the promoted node, which notifies all others; from a replica that followed the promoted
//! node; or from a client that has its map.
//!
//! The demoted node gives up no data: changes that only it has stay until it follows the promoted node.

use std::net::IpAddr;

use bucket::WarmupStage;
use model::{VbId, VbState};
use serde_json::{Value, json};

use crate::cluster_map::MapRevision;
use crate::group::{Group, GroupRecord};
use crate::peer::{Peer, host_of, revision};
use crate::publish::{about_bucket, publish};
use crate::registry::Registry;
use crate::served::ServedBucket;

/// Path of the setting with which a promoted node notifies the others.
pub const PROMOTED: &[u8] = b"replication.promoted";
/// A client whose epoch is higher by more than this has no map of this bucket.
const EPOCHS_AHEAD_MAX: i64 = 1 << 20;

/// News of a later epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaterEpoch {
    /// Epoch of the later map.
    pub epoch: i64,
    /// The promoted node, if it is known.
    pub promoted: Option<Peer>,
    /// Seqnos at which the histories of the promoted node begin, by vBucket; empty if they are not known.
    began: Vec<u64>,
}

impl LaterEpoch {
    /// Creates news of an epoch of which nothing else is known.
    pub fn epoch(epoch: i64) -> Self {
        Self {
            epoch,
            promoted: None,
            began: Vec::new(),
        }
    }

    /// Creates news of an epoch from a peer.
    pub fn by(epoch: i64, promoted: Option<Peer>) -> Self {
        Self {
            promoted,
            ..Self::epoch(epoch)
        }
    }
}

/// Builds the message of a promoted node to the others. With `began` it contains the seqnos at which the node's
/// histories begin: right after the promotion.
pub fn news(node: &Registry, served: &ServedBucket, began: bool) -> String {
    let mut about = about_bucket(node, served);
    if began {
        let newest = |id| {
            let bucket = &served.bucket;
            let seqno = bucket.with_vbucket(VbId(id), |vb| vb.failover_log().newest().seqno.0);
            seqno.unwrap_or_default()
        };
        about["began"] = (0..served.bucket.vbuckets()).map(newest).collect();
    }
    about.to_string()
}

/// Result of a message to another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EpochAnswer {
    /// The other node is not active.
    Yes,
    /// Another node was promoted later than this one.
    Later(LaterEpoch),
    /// The other node is active and stays active; with the reason.
    No(String),
}

/// Handles the message of a promoted node at `host`. Returns the answer, `None` if the message cannot be understood.
pub fn hear(node: &Registry, served: &ServedBucket, host: IpAddr, notice: &[u8]) -> Option<String> {
    let notice: Value = serde_json::from_slice(notice).ok()?;
    let theirs = revision(&notice)?;
    let promoted = Peer::read(&notice, &host_of(&notice, host))?;
    let uuid = served.shown_uuid();
    if notice["uuid"] != uuid.as_ref() {
        return Some(json!({ "uuid": uuid.as_ref() }).to_string());
    }
    let began = notice["began"].as_array().map_or(&[][..], Vec::as_slice);
    let later = LaterEpoch {
        epoch: theirs.epoch,
        promoted: Some(promoted),
        began: began.iter().filter_map(Value::as_u64).collect(),
    };
    give_way(node, served, &later);
    let mut answer = about_bucket(node, served);
    if let Some(active) = served.group().active() {
        answer["follows"] = active.to_json();
    }
    Some(answer.to_string())
}

/// Interprets the answer of the node at `host` to a promoted node.
pub fn heard(served: &ServedBucket, host: &str, answer: &[u8]) -> EpochAnswer {
    let answer: Value = serde_json::from_slice(answer).unwrap_or_default();
    let Some(theirs) = revision(&answer) else {
        return EpochAnswer::No("that node has another bucket of this name".into());
    };
    let ours = served.map().revision.epoch;
    let follows = &answer["follows"];
    if theirs.epoch > ours {
        let there = follows["host"].as_str().unwrap_or(host);
        let active = if follows.is_null() { &answer } else { follows };
        return EpochAnswer::Later(LaterEpoch::by(theirs.epoch, Peer::read(active, there)));
    }
    if follows.is_null() {
        return EpochAnswer::No(
            "that node is active in the same epoch: decide which one is to go on, and start the \
             other one with --replica-of and --demote"
                .into(),
        );
    }
    EpochAnswer::Yes
}

/// Handles a client's map of a later epoch. The node believes it only if another node may have been promoted.
pub fn heard_of_epoch(node: &Registry, served: &ServedBucket, epoch: i64) {
    let ours = served.map().revision.epoch;
    let plausible = epoch > ours && epoch.saturating_sub(ours) <= EPOCHS_AHEAD_MAX;
    if plausible && !node.env.group_record(served.name()).peers.is_empty() {
        give_way(node, served, &LaterEpoch::epoch(epoch));
    }
}

/// Demotes this node if the epoch is later: it is not active any more, also after a restart, and publishes a map of the
/// later epoch. A replica only updates its group and map, and its link looks for the promoted node.
pub fn give_way(node: &Registry, served: &ServedBucket, later: &LaterEpoch) {
    let loaded = served.bucket.warmup().stage() == WarmupStage::Done;
    if later.epoch <= served.map().revision.epoch || !loaded {
        return;
    }
    let before = served.group();
    let was_active = before.active().is_none();
    let mut standing = node.env.group_record(served.name());
    let peers = promoted_first(later.promoted.as_ref(), known_peers(&before, &standing));
    let group = if was_active || before.is_superseded() {
        standing = GroupRecord {
            superseded: true,
            peers: peers.clone(),
            ..standing
        };
        // Write this first: the node stays superseded whatever happens next.
        node.env.note_standing(served.name(), standing, later.epoch);
        Group::superseded(peers)
    } else {
        Group::replica(peers)
    };
    if was_active {
        cease(node, served);
    }
    served.set_group(group);
    publish(node, served, MapRevision::first_of(later.epoch));
    node.wake_all();
    if was_active {
        tell(served, later);
    }
}

fn known_peers(group: &Group, standing: &GroupRecord) -> Vec<Peer> {
    if group.peers.is_empty() {
        standing.peers.clone()
    } else {
        group.peers.clone()
    }
}

fn promoted_first(promoted: Option<&Peer>, mut peers: Vec<Peer>) -> Vec<Peer> {
    if let Some(promoted) = promoted {
        peers.retain(|peer| !peer.is(promoted));
        peers.insert(0, promoted.clone());
    }
    peers
}

/// Makes every active vBucket inactive.
fn cease(node: &Registry, served: &ServedBucket) {
    let bucket = &served.bucket;
    for id in (0..bucket.vbuckets()).map(VbId) {
        let state = bucket.with_vbucket(id, |vb| vb.state());
        if state != Some(VbState::Active) {
            continue;
        }
        let topology = Some(String::new());
        if let Err(error) =
            bucket.set_vbucket(id, VbState::Replica, topology, node.env.random_vb_uuid())
        {
            tracing::error!(vb = id.0, ?error, "a vBucket is still active");
        }
    }
}

fn tell(served: &ServedBucket, later: &LaterEpoch) {
    let (bucket, epoch) = (served.name(), later.epoch);
    let group = served.group();
    let active = group.active().map(Peer::name).unwrap_or_default();
    let own = |(id, began): (u16, &u64)| {
        let high = served.bucket.with_vbucket(VbId(id), |vb| vb.high_seqno().0);
        high.unwrap_or_default().saturating_sub(*began)
    };
    let changes: u64 = (0..).zip(&later.began).map(own).sum();
    let own_changes = if later.began.is_empty() {
        "not known".to_owned()
    } else {
        changes.to_string()
    };
    tracing::warn!(
        bucket,
        epoch,
        active,
        own_changes,
        "another node was promoted: this one is not active any more. Started with --replica-of \
         that node and --demote it follows, and gives up the changes that only it has; \
         settee promote --force makes it active again"
    );
}
