//! The status of a cluster for operators, from any of its nodes.

mod forms;

use std::collections::{BTreeMap, BTreeSet};

use cluster::agreed::{Health, Node, NodeState, Rebalance, View};
use cluster::coordinator::{FailoverBlock, Promoted, can_hand_over, forced, misplaced};
use cluster::{BucketId, Condition, NodeId, Phase, Row, Vb, majority};

use crate::cluster::{ClusterMember, MemberStatus};
use crate::clustered::server_group;

use forms::DamagedStatus;
pub use forms::{
    BucketStatus, ClusterStatus, CopyCounts, NodeStatus, PromotedStatus, UnsafeStatus,
    WaitingStatus,
};

/// Largest number of waiting vBuckets that are listed of each bucket.
const WAITING_NAMED_MAX: usize = 16;

impl ClusterStatus {
    /// Returns the status as the node `member` sees it.
    pub fn of(member: &dyn ClusterMember) -> Self {
        let status = member.status();
        let view = &status.view;
        let name = |id: NodeId| name_of(view, id);
        let progress = status.progress.as_ref();
        let buckets = buckets(&LocalView::of(member.me(), view, &status));
        let mut nodes = nodes(view);
        for node in &mut nodes {
            let copies = buckets.iter().filter_map(|one| one.nodes.get(&node.name));
            for of in copies {
                node.active += of.active;
                node.replicas += of.replicas;
            }
            let held = progress.map_or(&[][..], |progress| &progress.held);
            let held = held.iter().find(|(id, _)| id.0 == node.id);
            node.held = held.map(|(_, why)| why_held(*why).to_owned());
            let heard = status.silent_ms.get(&NodeId(node.id));
            node.silent_ms = heard.copied();
        }
        let written = view.orders.as_ref();
        let orders = written.map(|entry| entry.value.clone()).unwrap_or_default();
        let meta = view.meta.as_ref();
        let unknown = &view.history.value.unknown;
        Self {
            cluster: meta.map(|meta| meta.value.name.clone()).unwrap_or_default(),
            epoch: view.epoch(),
            revision: view.revision,
            node: name(member.me()),
            controller: status.controller.map(name),
            etcd_silent_ms: status.etcd_silent_ms,
            etcd_problem: status.etcd_problem,
            lease_left_ms: status.lease_left_ms,
            etcd_went_back: status.etcd_went_back,
            seen_epoch: status.seen_epoch,
            adoption_waits: status.adoption_waits.into_iter().map(name).collect(),
            unknown_buckets: unknown.iter().map(BucketId::to_string).collect(),
            rebalance: rebalance_state(orders.rebalance).to_owned(),
            orders_revision: written.map_or(0, |entry| entry.mod_revision),
            failovers: orders.failovers,
            elections: buckets.iter().map(|bucket| bucket.elections).sum(),
            moves: buckets.iter().map(|bucket| bucket.moves).sum(),
            moves_left: progress.map(|progress| progress.moves_left),
            misplaced: None,
            moves_without_space: progress.map(|progress| progress.moves_without_space),
            moves_without_memory: progress.map(|progress| progress.moves_without_memory),
            waiting: progress.map(|progress| waiting(view, &progress.waiting)),
            promoted: progress.map(|progress| promoted(view, &progress.promoted)),
            damaged: damaged(view),
            nodes,
            buckets,
        }
    }

    /// Returns the status like [`ClusterStatus::of`], with the plan of a rebalance. Nothing is planned while copies move:
    /// then the plan is long, and the status is asked for often.
    pub fn with_plan(member: &dyn ClusterMember) -> Self {
        let status = Self::of(member);
        let idle = status.rebalance == "idle" && status.moves + status.elections == 0;
        let misplaced = idle.then(|| misplaced(&member.view()));
        Self {
            misplaced,
            ..status
        }
    }
}

/// Returns the name of a node, or its id if it has no name.
fn name_of(view: &View, id: NodeId) -> String {
    let node = view.nodes.get(&id).map(|node| &node.value.name);
    let named = node.filter(|name| !name.is_empty()).cloned();
    named.unwrap_or_else(|| id.0.to_string())
}

/// Returns the word for the state of a rebalance.
pub fn rebalance_state(rebalance: Rebalance) -> &'static str {
    match rebalance {
        Rebalance::Idle => "idle",
        Rebalance::Running => "running",
        Rebalance::Paused => "paused",
    }
}

/// Returns the word for the state of a node.
pub fn node_state(node: &Node) -> &'static str {
    match node.state {
        NodeState::New => "new",
        NodeState::Active if node.hands_over => "handing_over",
        NodeState::Active => "active",
        NodeState::Draining => "draining",
        NodeState::Failed if node.failed_over => "failed_over",
        NodeState::Failed => "failed",
    }
}

fn nodes(view: &View) -> Vec<NodeStatus> {
    let nodes = view.nodes.iter();
    let status = nodes.map(|(id, entry)| {
        let (node, alive) = (&entry.value, view.alive.get(id));
        let unheard = alive.map_or(&[][..], |alive| &alive.value.health.unheard);
        let unheard = unheard.iter().filter(|node| view.alive.contains_key(*node));
        let names = |of: fn(&Health) -> &BTreeSet<BucketId>| {
            let buckets = alive.into_iter().flat_map(|alive| of(&alive.value.health));
            buckets.map(|bucket| bucket_name(view, *bucket)).collect()
        };
        NodeStatus {
            name: name_of(view, *id),
            id: id.0,
            state: node_state(node).to_owned(),
            alive: alive.is_some(),
            disk_dead: alive.is_some_and(|alive| alive.value.health.disk_dead),
            disk_full: view.is_full(*id),
            unmade: names(|health| &health.unmade),
            starved: names(|health| &health.starved),
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
            unheard: unheard.map(|node| name_of(view, *node)).collect(),
            can_hand_over: can_hand_over(view, *id),
            unsafe_failover: unsafe_failover(view, *id),
        }
    });
    status.collect()
}

/// The nodes of a cluster, as one of them sees them.
struct LocalView<'a> {
    view: &'a View,
    /// Nodes that run: the node itself, and those that it heard lately.
    running: BTreeSet<NodeId>,
    /// Whether etcd answered lately, so that the view has the leases of now.
    sees_leases: bool,
}

impl<'a> LocalView<'a> {
    fn of(me: NodeId, view: &'a View, status: &MemberStatus) -> Self {
        let unheard_ms = view.settings().unheard_ms;
        let is_lately = |silent_ms: u64| silent_ms < unheard_ms;
        let others = status.silent_ms.iter();
        let heard = others.filter(|(_, silent_ms)| is_lately(**silent_ms));
        Self {
            view,
            running: heard.map(|(node, _)| *node).chain([me]).collect(),
            sees_leases: is_lately(status.etcd_silent_ms),
        }
    }

    /// Whether the active copy of a vBucket serves: its node has a lease, or runs beside as many replicas as must confirm
    /// the term of the copy. During an election no copy serves.
    fn serves(&self, vb: Vb, row: &Row) -> bool {
        let (view, nodes) = (self.view, row.chain.nodes());
        let Some((active, replicas)) = nodes.split_first() else {
            return false;
        };
        let node = view.nodes.get(active);
        let failed = node.is_none_or(|node| node.value.state == NodeState::Failed);
        let health = |node: &NodeId| view.alive.get(node).map(|alive| &alive.value.health);
        let works = health(active).is_none_or(|health| !health.disk_dead);
        let is_readable = view.condition(*active, vb) != Condition::Unreadable;
        let has_lease = self.sees_leases && health(active).is_some();
        let confirms = |replica: &&NodeId| {
            let hears = health(replica).is_none_or(|health| !health.unheard.contains(active));
            hears && self.running.contains(replica)
        };
        let confirmed = 1 + replicas.iter().filter(confirms).count();
        let runs = self.running.contains(active) && confirmed >= majority(nodes.len());
        let elects = row.intent.is_some() && row.phase() != Some(Phase::TakeOver);
        !failed && !elects && works && is_readable && row.term > 0 && (has_lease || runs)
    }
}

fn buckets(local: &LocalView<'_>) -> Vec<BucketStatus> {
    let view = local.view;
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
    let mut counts: BTreeMap<(BucketId, NodeId), CopyCounts> = BTreeMap::new();
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
                bucket.served += usize::from(local.serves(vb, row));
            } else {
                copies.replicas += 1;
            }
            let there = !failed && !view.lacks(*node, vb.bucket);
            bucket.lacking = bucket.lacking.saturating_sub(usize::from(there));
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

/// Formats ascending numbers as ranges.
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

fn waiting(view: &View, of: &[cluster::coordinator::LackingVBucket]) -> Vec<WaitingStatus> {
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

fn why_held(held: FailoverBlock) -> &'static str {
    match held {
        FailoverBlock::Settling => "it may not have started yet: the controller has not heard it",
        FailoverBlock::MostGone => "most nodes are gone: it may be this one that is cut off",
        FailoverBlock::Heard => "most of its peers hear it",
        FailoverBlock::OneAtATime => "another node is being failed over",
        FailoverBlock::Quota => {
            "there were too many failovers: settee cluster recover resets their count"
        }
        FailoverBlock::WouldLose => "none of its active copies can be replaced without loss",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_member::{FakeMember, row};

    fn served(member: &FakeMember) -> usize {
        ClusterStatus::of(member).buckets[0].served
    }

    #[test]
    fn copies_serve_by_a_lease_or_by_confirmations() {
        let member = FakeMember::new(1);
        for id in 1..=3 {
            member.put_node(id, NodeState::Active);
        }
        member.put_bucket(7, "default", 3, &[row(&[1, 2]), row(&[2, 3]), row(&[3])]);
        member.put_alive(&[1, 2, 3]);
        assert_eq!(served(&member), 3, "all have a lease");

        // Node 1 heard node 2 lately, and node 3 long ago.
        let silent_ms = [(NodeId(2), 300), (NodeId(3), 60_000)];
        member.status.lock().silent_ms = silent_ms.into();
        assert_eq!(served(&member), 3, "etcd knows better");
        member.status.lock().etcd_silent_ms = 60_000;
        assert_eq!(served(&member), 1, "etcd is away, and node 3 is gone");
        member.status.lock().silent_ms.insert(NodeId(3), 300);
        assert_eq!(served(&member), 3, "etcd is away, and all nodes run");

        // etcd answers again, and node 2 has no lease yet.
        member.status.lock().etcd_silent_ms = 0;
        member.edit(|view, _| drop(view.alive.remove(&NodeId(2))));
        assert_eq!(served(&member), 3, "node 3 confirms what node 2 has");
        member.edit(|view, _| {
            let third = view.alive.get_mut(&NodeId(3)).expect("a node");
            third.value.health.unheard = vec![NodeId(2)];
        });
        assert_eq!(served(&member), 2, "node 3 does not hear node 2");
        member.put_node(1, NodeState::Failed);
        assert_eq!(served(&member), 1, "node 1 is failed over");

        let elected = Row {
            intent: Some(2),
            ..row(&[2, 3])
        };
        member.put_bucket(7, "default", 1, &[elected]);
        assert_eq!(served(&member), 0, "an election goes on");
    }

    #[test]
    fn uneven_active_copies_are_counted_as_misplaced() {
        let member = FakeMember::new(1);
        for id in 1..=2 {
            member.put_node(id, NodeState::Active);
        }
        let misplaced = |active: [u16; 4]| {
            let rows = active.map(|node| row(&[node, 3 - node]));
            member.put_bucket(7, "default", 4, &rows);
            ClusterStatus::with_plan(&*member).misplaced
        };
        assert_eq!(misplaced([1, 2, 2, 1]), Some(0));
        assert_eq!(misplaced([1, 1, 1, 1]), Some(2));
        let moving = Row {
            intent: Some(2),
            ..row(&[1, 2])
        };
        member.put_bucket(7, "default", 1, &[moving]);
        assert_eq!(ClusterStatus::with_plan(&*member).misplaced, None);
    }

    #[test]
    fn a_node_lists_the_running_nodes_that_do_not_reach_it() {
        let member = FakeMember::new(1);
        for id in 1..=3 {
            member.put_node(id, NodeState::Active);
        }
        member.put_alive(&[1, 3]);
        member.edit(|view, _| {
            let third = view.alive.get_mut(&NodeId(3)).expect("a node");
            third.value.health.unheard = vec![NodeId(1), NodeId(2)];
        });
        let nodes = ClusterStatus::of(&*member).nodes;
        assert_eq!(nodes[2].unheard, [nodes[0].name.as_str()]);
        assert!(nodes[0].unheard.is_empty());
    }

    #[test]
    fn a_status_is_read_as_it_was_written() {
        let member = FakeMember::new(1);
        for id in 1..=2 {
            member.put_node(id, NodeState::Active);
        }
        member.put_bucket(7, "default", 2, &[row(&[1, 2]), row(&[2, 1])]);
        let status = ClusterStatus::of(&*member);
        let mut text = serde_json::to_value(&status).unwrap();
        let read = serde_json::from_value::<ClusterStatus>(text.clone());
        assert_eq!(read.unwrap(), status);
        // An older node does not report everything.
        text["nodes"][0].as_object_mut().unwrap().remove("uuid");
        let older: ClusterStatus = serde_json::from_value(text).unwrap();
        assert_eq!(older.nodes[0].uuid, "");
    }

    #[test]
    fn numbers_are_formatted_as_ranges() {
        assert_eq!(ranges(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(ranges(&[]), "");
    }
}
