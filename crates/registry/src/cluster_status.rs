//! A cluster as operators see it, from any of its nodes.

use std::collections::{BTreeMap, BTreeSet};

use cluster::agreed::{Address, NodeState, Rebalance, View};
use cluster::coordinator::{Held, Promoted, can_hand_over, forced};
use cluster::{BucketId, Condition, NodeId};
use serde::Serialize;

use crate::cluster::ClusterMember;
use crate::clustered::server_group;

/// vBuckets that wait for copies and are named, of each bucket.
const WAITING_NAMED_MAX: usize = 16;

/// What a node knows of its cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClusterStatus {
    /// Name of the cluster.
    pub cluster: String,
    /// Raised by an operator.
    pub epoch: u64,
    /// The revision of etcd that this node has seen.
    pub revision: u64,
    /// The node that tells.
    pub node: String,
    /// The node with the controller, if it is known.
    pub controller: Option<String>,
    /// How long nothing has come from etcd.
    pub etcd_silent_ms: u64,
    /// How long the node may serve by its lease alone.
    pub lease_left_ms: u64,
    /// etcd has less than the node that tells had seen: it was restored from a backup, and is not followed.
    pub etcd_went_back: bool,
    /// The newest epoch that it has seen, also before it started.
    pub seen_epoch: u64,
    /// Nodes whose copies an adoption that was ordered there waits for.
    pub adoption_waits: Vec<String>,
    /// UUIDs of buckets of which an adoption found copies alone.
    pub unknown_buckets: Vec<String>,
    /// Whether copies are moved: idle, running or paused.
    pub rebalance: &'static str,
    /// Failovers without an operator since one reset their count.
    pub failovers: u32,
    /// Elections that go on.
    pub elections: usize,
    /// Moves that go on.
    pub moves: usize,
    /// Moves that have not begun; only the controller knows them.
    pub moves_left: Option<usize>,
    /// How many of all moves wait for space on a full disk; only the controller knows them.
    pub moves_without_space: Option<usize>,
    /// vBuckets that get no active copy before more copies are there; only the controller knows them.
    pub waiting: Option<Vec<WaitingStatus>>,
    /// What the controller promoted by unsafe failovers.
    pub promoted: Option<Vec<PromotedStatus>>,
    /// Copies that cannot be read, or not all of them, by bucket and node.
    pub damaged: Vec<DamagedStatus>,
    /// All nodes, by their numbers.
    pub nodes: Vec<NodeStatus>,
    /// All buckets, by their names.
    pub buckets: Vec<BucketStatus>,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "they are independent facts of a document"
)]
pub struct NodeStatus {
    /// Its name.
    pub name: String,
    /// Its number.
    pub id: u16,
    /// new, active, draining, handing_over (others take over from its active copies, and then it is failed over), failed, or
    /// failed_over: that one stays so until an operator recovers it.
    pub state: &'static str,
    /// Whether it renews its lease.
    pub alive: bool,
    /// A sync failed there: it serves nothing.
    pub disk_dead: bool,
    /// Its disk is full: it works in memory.
    pub disk_full: bool,
    /// Number of its zone.
    pub zone: u16,
    /// The group of its zone, as clients are told.
    pub group: String,
    /// Its host.
    pub host: String,
    /// Port of the KV protocol.
    pub kv: u16,
    /// Port of HTTP management.
    pub http: u16,
    /// Port of the KV protocol over TLS.
    pub kv_tls: Option<u16>,
    /// Where clients of another network reach it.
    pub outside: Option<Address>,
    /// Its version.
    pub version: String,
    /// 32 hex digits.
    pub uuid: String,
    /// Active copies.
    pub active: usize,
    /// Replicas.
    pub replicas: usize,
    /// Why it is not failed over although it is gone; only the controller knows that.
    pub held: Option<&'static str>,
    /// For how long the node that tells has not heard it, if it ever did.
    pub silent_ms: Option<u64>,
    /// Whether a graceful failover of it can begin.
    pub can_hand_over: bool,
    /// What an unsafe failover of it would promote, by bucket.
    pub unsafe_failover: Vec<UnsafeStatus>,
}

/// vBuckets of a bucket of which an unsafe failover promotes the best copy that is left.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UnsafeStatus {
    /// Name of the bucket.
    pub bucket: String,
    /// How many there are.
    pub vbuckets: usize,
    /// Them, as ranges: 0-3, 7.
    pub ranges: String,
    /// Copies that one of them lacks at most.
    pub missing: usize,
    /// Nodes whose copies are given up.
    pub without: BTreeSet<String>,
}

/// A vBucket that was promoted by an unsafe failover.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PromotedStatus {
    /// Name of the bucket.
    pub bucket: String,
    /// The vBucket.
    pub vbucket: u16,
    /// The node whose copy was promoted.
    pub node: String,
    /// The term since which it is active.
    pub term: u64,
    /// The seqno that it had: what came after it on other copies is lost.
    pub seqno: u64,
}

/// Damaged copies of a bucket on a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct DamagedStatus {
    /// Name of the bucket.
    pub bucket: String,
    /// Name of the node.
    pub node: String,
    /// How many there are.
    pub vbuckets: usize,
    /// Their vBuckets, as ranges.
    pub ranges: String,
    /// Of these, the ones that cannot be read at all, as ranges.
    pub unreadable: String,
}

/// A bucket of the cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct BucketStatus {
    /// Its name.
    pub name: String,
    /// 32 hex digits.
    pub uuid: String,
    /// Its vBuckets.
    pub vbuckets: u16,
    /// Copies that each is to have.
    pub copies: usize,
    /// vBuckets whose active copy is there and can be read, on a node that is well.
    pub served: usize,
    /// vBuckets being elected.
    pub elections: usize,
    /// vBuckets being moved.
    pub moves: usize,
    /// Copies that vBuckets lack.
    pub lacking: usize,
    /// By names of nodes.
    pub nodes: BTreeMap<String, Copies>,
}

/// Copies on a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Copies {
    /// Active ones.
    pub active: usize,
    /// Replicas.
    pub replicas: usize,
}

/// vBuckets of a bucket that wait for copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct WaitingStatus {
    /// Name of the bucket.
    pub bucket: String,
    /// How many wait.
    pub vbuckets: usize,
    /// Copies that one of them lacks at most.
    pub missing: usize,
    /// The first of them.
    pub first: Vec<u16>,
}

impl ClusterStatus {
    /// As a node sees it now.
    pub fn of(member: &dyn ClusterMember) -> Self {
        let (view, status) = (member.view(), member.status());
        let name = |id: NodeId| name_of(&view, id);
        let progress = status.progress.as_ref();
        let buckets = buckets(&view);
        let mut nodes = nodes(&view);
        for node in &mut nodes {
            let copies = buckets.iter().filter_map(|one| one.nodes.get(&node.name));
            for of in copies {
                node.active += of.active;
                node.replicas += of.replicas;
            }
            let held = progress.map_or(&[][..], |progress| &progress.held);
            let held = held.iter().find(|(id, _)| id.0 == node.id);
            node.held = held.map(|(_, why)| why_held(*why));
            let heard = status.silent_ms.get(&NodeId(node.id));
            node.silent_ms = heard.copied();
        }
        let orders = view.orders.as_ref().map(|orders| orders.value.clone());
        let orders = orders.unwrap_or_default();
        let meta = view.meta.as_ref();
        let unknown = &view.history.value.unknown;
        Self {
            cluster: meta.map(|meta| meta.value.name.clone()).unwrap_or_default(),
            epoch: view.epoch(),
            revision: view.revision,
            node: name(member.me()),
            controller: status.controller.map(name),
            etcd_silent_ms: status.etcd_silent_ms,
            lease_left_ms: status.lease_left_ms,
            etcd_went_back: status.etcd_went_back,
            seen_epoch: status.seen_epoch,
            adoption_waits: status.adoption_waits.into_iter().map(name).collect(),
            unknown_buckets: unknown.iter().map(BucketId::to_string).collect(),
            rebalance: match orders.rebalance {
                Rebalance::Idle => "idle",
                Rebalance::Running => "running",
                Rebalance::Paused => "paused",
            },
            failovers: orders.failovers,
            elections: buckets.iter().map(|bucket| bucket.elections).sum(),
            moves: buckets.iter().map(|bucket| bucket.moves).sum(),
            moves_left: progress.map(|progress| progress.moves_left),
            moves_without_space: progress.map(|progress| progress.moves_without_space),
            waiting: progress.map(|progress| waiting(&view, &progress.waiting)),
            promoted: progress.map(|progress| promoted(&view, &progress.promoted)),
            damaged: damaged(&view),
            nodes,
            buckets,
        }
    }

    /// Whether every vBucket has the copies that it is to have, and no copy is where it is not to be.
    pub fn is_balanced(&self) -> bool {
        let whole = self.buckets.iter().all(|bucket| bucket.lacking == 0);
        let settled = self.nodes.iter().all(|node| match node.state {
            "active" => true,
            _ => node.active + node.replicas == 0,
        });
        let busy = self.moves + self.moves_left.unwrap_or(0) + self.elections > 0;
        whole && settled && !busy
    }
}

/// The name of a node, or its number where it has none.
fn name_of(view: &View, id: NodeId) -> String {
    let node = view.nodes.get(&id).map(|node| &node.value.name);
    let named = node.filter(|name| !name.is_empty()).cloned();
    named.unwrap_or_else(|| id.0.to_string())
}

fn nodes(view: &View) -> Vec<NodeStatus> {
    let nodes = view.nodes.iter();
    let status = nodes.map(|(id, entry)| {
        let (node, alive) = (&entry.value, view.alive.get(id));
        NodeStatus {
            name: name_of(view, *id),
            id: id.0,
            state: match node.state {
                NodeState::New => "new",
                NodeState::Active if node.hands_over => "handing_over",
                NodeState::Active => "active",
                NodeState::Draining => "draining",
                NodeState::Failed if node.failed_over => "failed_over",
                NodeState::Failed => "failed",
            },
            alive: alive.is_some(),
            disk_dead: alive.is_some_and(|alive| alive.value.health.disk_dead),
            disk_full: view.is_full(*id),
            zone: node.zone,
            group: server_group(view, node),
            host: node.inside.host.clone(),
            kv: node.inside.kv,
            http: node.inside.http,
            kv_tls: node.inside.kv_tls,
            outside: node.outside.clone(),
            version: node.version.clone(),
            uuid: node.uuid.clone(),
            active: 0,
            replicas: 0,
            held: None,
            silent_ms: None,
            can_hand_over: can_hand_over(view, *id),
            unsafe_failover: unsafe_failover(view, *id),
        }
    });
    status.collect()
}

fn buckets(view: &View) -> Vec<BucketStatus> {
    let mut by_id: BTreeMap<BucketId, BucketStatus> = BTreeMap::new();
    for (id, spec) in &view.specs {
        let spec = &spec.value;
        let bucket = BucketStatus {
            name: spec.name.clone(),
            uuid: id.to_string(),
            vbuckets: spec.vbuckets,
            copies: spec.copies,
            lacking: usize::from(spec.vbuckets) * spec.copies,
            ..BucketStatus::default()
        };
        by_id.insert(*id, bucket);
    }
    let mut counts: BTreeMap<(BucketId, NodeId), Copies> = BTreeMap::new();
    for (vb, _, row) in view.rows() {
        let Some(bucket) = by_id.get_mut(&vb.bucket) else {
            continue;
        };
        bucket.elections += usize::from(row.intent.is_some());
        bucket.moves += usize::from(row.change.is_some());
        for (at, node) in row.chain.nodes().iter().enumerate() {
            let copies = counts.entry((vb.bucket, *node)).or_default();
            let failed = view.nodes.get(node);
            let failed = failed.is_none_or(|node| node.value.state == NodeState::Failed);
            if at == 0 {
                copies.active += 1;
                let is_readable = view.condition(*node, vb) != Condition::Unreadable;
                let serves = view.is_well(*node) && !failed && row.term > 0 && is_readable;
                bucket.served += usize::from(serves);
            } else {
                copies.replicas += 1;
            }
            bucket.lacking = bucket.lacking.saturating_sub(usize::from(!failed));
        }
    }
    for ((bucket, node), copies) in counts {
        let bucket = by_id.get_mut(&bucket).map(|bucket| &mut bucket.nodes);
        bucket.map(|nodes| nodes.insert(name_of(view, node), copies));
    }
    let mut all: Vec<_> = by_id.into_values().collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn bucket_name(view: &View, id: BucketId) -> String {
    let spec = view.specs.get(&id).map(|spec| spec.value.name.clone());
    spec.unwrap_or_else(|| id.to_string())
}

fn unsafe_failover(view: &View, node: NodeId) -> Vec<UnsafeStatus> {
    let mut by_id: BTreeMap<BucketId, (UnsafeStatus, Vec<u16>)> = BTreeMap::new();
    for one in forced(view, node) {
        let (bucket, numbers) = by_id.entry(one.vb.bucket).or_default();
        bucket.vbuckets += 1;
        bucket.missing = bucket.missing.max(one.missing);
        let nodes = one.without.nodes().iter();
        bucket
            .without
            .extend(nodes.map(|node| name_of(view, *node)));
        numbers.push(one.vb.number);
    }
    let named = by_id
        .into_iter()
        .map(|(id, (status, numbers))| UnsafeStatus {
            bucket: bucket_name(view, id),
            ranges: ranges(&numbers),
            ..status
        });
    named.collect()
}

/// Numbers that grow, as ranges.
fn ranges(numbers: &[u16]) -> String {
    let mut texts = Vec::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        texts.extend(match run {
            [first, .., last] => Some(format!("{first}-{last}")),
            [only] => Some(only.to_string()),
            [] => None,
        });
    }
    texts.join(", ")
}

fn promoted(view: &View, of: &[Promoted]) -> Vec<PromotedStatus> {
    let status = of.iter().map(|one| PromotedStatus {
        bucket: bucket_name(view, one.vb.bucket),
        vbucket: one.vb.number,
        node: name_of(view, one.node),
        term: one.term,
        seqno: one.seqno,
    });
    status.collect()
}

fn damaged(view: &View) -> Vec<DamagedStatus> {
    let nodes = view.alive.iter();
    let of_buckets = nodes.flat_map(|(node, alive)| {
        let of_node = alive.value.health.damaged.iter();
        of_node.map(move |(id, copies)| (*node, *id, copies))
    });
    let status = of_buckets.map(|(node, id, copies)| {
        let numbers: Vec<u16> = copies.keys().copied().collect();
        let mut unreadable = numbers.clone();
        unreadable.retain(|number| copies.get(number) == Some(&Condition::Unreadable));
        DamagedStatus {
            bucket: bucket_name(view, id),
            node: name_of(view, node),
            vbuckets: numbers.len(),
            ranges: ranges(&numbers),
            unreadable: ranges(&unreadable),
        }
    });
    status.collect()
}

fn waiting(view: &View, of: &[cluster::coordinator::Waiting]) -> Vec<WaitingStatus> {
    let mut by_id: BTreeMap<BucketId, WaitingStatus> = BTreeMap::new();
    for one in of {
        let bucket = by_id.entry(one.vb.bucket).or_default();
        bucket.vbuckets += 1;
        bucket.missing = bucket.missing.max(one.missing);
        if bucket.first.len() < WAITING_NAMED_MAX {
            bucket.first.push(one.vb.number);
        }
    }
    let named = by_id.into_iter().map(|(id, waiting)| WaitingStatus {
        bucket: bucket_name(view, id),
        ..waiting
    });
    named.collect()
}

fn why_held(held: Held) -> &'static str {
    match held {
        Held::Settling => "it may not have started yet: the controller has not heard it",
        Held::MostGone => "most nodes are gone: it may be this one that is cut off",
        Held::Heard => "most of its peers hear it",
        Held::OneAtATime => "another node is being failed over",
        Held::Quota => "there were too many failovers: settee cluster recover resets their count",
        Held::WouldLose => "none of its active copies can be replaced without loss",
    }
}

#[cfg(test)]
mod tests {
    use super::ranges;

    #[test]
    fn numbers_are_told_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(ranges(&[]), "");
    }
}
