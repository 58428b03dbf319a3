//! A bucket of the cluster on this node: its copies, the nodes that they follow, and how far others are.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::agent::{Copy, MoveProgress, Role, Topology};
use cluster::{BucketId, Condition, NodeId, Position, Settings, Vb, majority};
use engine::VBucket;
use model::VbId;
use parking_lot::Mutex;
use registry::ServedBucket;
use replication::{Gate, PeerLink, history_term};

const MS_NS: u64 = 1_000_000;

/// A bucket of the cluster on this node.
pub(crate) struct Hosted {
    pub(crate) id: BucketId,
    pub(crate) served: Arc<ServedBucket>,
    pub(crate) gate: Arc<Gate>,
    copies: Mutex<Vec<Option<CopyState>>>,
    /// Connections to the nodes that copies follow.
    pub(crate) links: Mutex<BTreeMap<NodeId, PeerLink>>,
}

/// What the node knows of a copy beside its vBucket.
#[derive(Clone, Debug)]
pub(crate) struct CopyState {
    pub(crate) role: Role,
    pub(crate) sealed: bool,
    pub(crate) complete: bool,
    pub(crate) follows: Option<NodeId>,
    /// The term that is on disk, while a newer one is being written.
    pub(crate) durable_term: Option<u64>,
    pub(crate) topology: Option<Topology>,
    /// Of an active copy: its high seqno when it took the phase of its move.
    pub(crate) since_phase: u64,
    /// Seqnos that other nodes have on disk, of streams of this term.
    pub(crate) acknowledged: BTreeMap<NodeId, u64>,
    /// When pings went out on which other nodes confirmed this term.
    pub(crate) confirmed: BTreeMap<NodeId, u64>,
}

impl CopyState {
    /// A replica that follows none.
    pub(crate) fn new() -> Self {
        Self {
            role: Role::Replica,
            sealed: false,
            complete: false,
            follows: None,
            durable_term: None,
            topology: None,
            since_phase: 0,
            acknowledged: BTreeMap::new(),
            confirmed: BTreeMap::new(),
        }
    }

    /// A replica that follows none, and was sealed or is the active copy no more.
    pub(crate) fn stopped(&self) -> Self {
        Self {
            complete: self.complete || self.role == Role::Active,
            durable_term: self.durable_term,
            ..Self::new()
        }
    }

    /// Until when an active copy may serve, milliseconds of the node's clock: as [`cluster::agent::may_serve`] says, of
    /// all times to come.
    fn serves_until_ms(&self, settings: &Settings, lease_until_ms: u64) -> u64 {
        let Some(topology) = self.topology.filter(|_| self.role == Role::Active) else {
            return 0;
        };
        let nodes = topology.chain.nodes();
        let needed = majority(nodes.len()) - 1;
        if needed == 0 {
            return u64::MAX;
        }
        let replicas = nodes.iter().skip(1);
        let confirmed = replicas.filter_map(|node| self.confirmed.get(node).copied());
        let mut confirmed: Vec<u64> = confirmed.collect();
        confirmed.sort_unstable_by(|a, b| b.cmp(a));
        let confirmed_ms = confirmed.get(needed - 1);
        let until_ms = confirmed_ms.map_or(0, |sent_ms| sent_ms + settings.confirmed_ms);
        until_ms.max(lease_until_ms)
    }
}

/// How much of the history a vBucket has; of a snapshot that is not here as a whole, nothing.
fn position(vbucket: &VBucket) -> Position {
    let snapshot = vbucket.snapshot_progress();
    let whole = snapshot.end <= vbucket.high_seqno();
    let high = if whole {
        vbucket.high_seqno()
    } else {
        snapshot.start
    };
    let entries = vbucket.failover_log().entries().iter();
    let reached = entries.filter(|entry| entry.seqno <= high);
    Position {
        branch: reached
            .map(|entry| history_term(entry.uuid))
            .max()
            .unwrap_or(0),
        prepared: vbucket.prepared_until().min(high).0,
        seqno: high.0,
    }
}

/// A copy in quarantine.
fn unreadable(term: u64) -> Copy {
    Copy {
        role: Role::Replica,
        term,
        sealed: false,
        complete: false,
        follows: None,
        topology: None,
        position: Position::default(),
        ready: false,
        condition: Condition::Unreadable,
    }
}

/// Whether a node has, or is to get, a copy.
fn holds(topology: &Topology, node: NodeId) -> bool {
    let to = topology.change.map(|change| change.0);
    topology.chain.holds(node) || to.is_some_and(|to| to.holds(node))
}

impl Hosted {
    /// What its store has, all of it replicas.
    pub(crate) fn new(id: BucketId, served: Arc<ServedBucket>) -> Self {
        let vbuckets = served.bucket.vbuckets();
        let found = |index| {
            let (bucket, vb) = (&served.bucket, VbId(index));
            let there = bucket.with_vbucket(vb, |_| ()).is_some();
            (there || bucket.quarantined(vb).is_some()).then(CopyState::new)
        };
        Self {
            id,
            copies: Mutex::new((0..vbuckets).map(found).collect()),
            gate: Arc::new(Gate::new(vbuckets)),
            links: Mutex::default(),
            served,
        }
    }

    /// The state of a copy, if there is one.
    pub(crate) fn state(&self, vb: VbId) -> Option<CopyState> {
        self.copies.lock().get(usize::from(vb.0))?.clone()
    }

    /// Changes what is known of a copy.
    pub(crate) fn set_state(&self, vb: VbId, state: Option<CopyState>) {
        if let Some(copy) = self.copies.lock().get_mut(usize::from(vb.0)) {
            *copy = state;
        }
    }

    /// A newer term than this one is being written, or what a copy has is on disk.
    pub(crate) fn set_durable_term(&self, vb: VbId, term: Option<u64>) {
        if let Some(Some(copy)) = self.copies.lock().get_mut(usize::from(vb.0)) {
            copy.durable_term = term.map(|term| copy.durable_term.unwrap_or(term));
        }
    }

    /// The active copy works by other chains.
    pub(crate) fn set_topology(&self, vb: VbId, topology: Topology, high: u64) {
        let phase = |topology: Option<Topology>| Some(topology?.change?.1);
        if let Some(Some(copy)) = self.copies.lock().get_mut(usize::from(vb.0)) {
            if phase(copy.topology) != phase(Some(topology)) {
                copy.since_phase = high;
            }
            // What a node told that had a copy, and has none any more, says nothing of a new one.
            let there = |node: &NodeId| holds(&topology, *node);
            copy.acknowledged.retain(|node, _| there(node));
            copy.confirmed.retain(|node, _| there(node));
            copy.topology = Some(topology);
        }
    }

    /// All copies.
    pub(crate) fn vbuckets(&self) -> Vec<Vb> {
        let copies = self.copies.lock();
        let there = copies.iter().zip(0..).filter(|(copy, _)| copy.is_some());
        let vb = |number| Vb {
            bucket: self.id,
            number,
        };
        there.map(|(_, number)| vb(number)).collect()
    }

    /// The nodes that copies follow.
    pub(crate) fn followed(&self) -> Vec<NodeId> {
        let copies = self.copies.lock();
        let mut nodes: Vec<_> = copies.iter().flatten().filter_map(|c| c.follows).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// A copy as the agent sees it.
    pub(crate) fn copy(&self, me: NodeId, vb: VbId) -> Option<Copy> {
        let state = self.state(vb)?;
        let bucket = &self.served.bucket;
        if let Some(known) = bucket.quarantined(vb) {
            return Some(unreadable(known.term()));
        }
        // One that goes back is not found.
        let (term, position, persisted) = bucket.with_vbucket(vb, |vbucket| {
            let persisted = vbucket.persisted_seqno().0;
            (vbucket.term(), position(vbucket), persisted)
        })?;
        let on_disk = |node: NodeId| {
            let of_other = state.acknowledged.get(&node).copied();
            of_other.or((node == me).then_some(persisted))
        };
        let progress = MoveProgress {
            high: position.seqno,
            since_phase: state.since_phase,
            on_disk,
        };
        let ready = |topology: Topology| topology.is_ready(&progress);
        Some(Copy {
            role: state.role,
            term: state.durable_term.unwrap_or(term),
            sealed: state.sealed,
            complete: state.complete,
            follows: state.follows,
            topology: state.topology,
            position,
            ready: state.topology.is_some_and(ready),
            condition: if bucket.is_damaged(vb) {
                Condition::Damaged
            } else {
                Condition::Whole
            },
        })
    }

    /// What follows `node`: vBuckets, terms of their streams, and seqnos that are on disk.
    pub(crate) fn following(&self, node: NodeId) -> Vec<(u16, u64, u64)> {
        let persisted = |vb| {
            let bucket = &self.served.bucket;
            bucket.with_vbucket(vb, |vbucket| vbucket.persisted_seqno().0)
        };
        let open = self.gate.open_from(node.0).into_iter();
        let told = open.filter_map(|(vb, term)| Some((vb.0, term, persisted(vb)?)));
        told.collect()
    }

    /// Another node confirmed that it follows copies of this one.
    pub(crate) fn confirm(&self, from: NodeId, echo_ms: u64, told: &[(u16, u64, u64)]) {
        for (number, term, seqno) in told {
            let vb = VbId(*number);
            let ours = self
                .served
                .bucket
                .with_vbucket(vb, |vbucket| vbucket.term());
            let mut copies = self.copies.lock();
            let Some(Some(copy)) = copies.get_mut(usize::from(*number)) else {
                continue;
            };
            let topology = copy.topology.filter(|_| copy.role == Role::Active);
            let works = topology.is_some_and(|topology| holds(&topology, from));
            if works && ours == Some(*term) {
                let seen = copy.confirmed.entry(from).or_default();
                *seen = echo_ms.max(*seen);
                let acknowledged = copy.acknowledged.entry(from).or_default();
                *acknowledged = (*seqno).max(*acknowledged);
            }
        }
    }

    /// Lets the active copies serve as long as they may, and replicas be read. `None` for a node whose disk died: none of
    /// its active copies serves.
    pub(crate) fn renew(&self, settings: &Settings, lease_until_ms: Option<u64>) {
        let Some(leases) = self.served.bucket.leases() else {
            return;
        };
        let copies = self.copies.lock();
        for (copy, number) in copies.iter().zip(0..) {
            let until_ns = match copy {
                Some(copy) if copy.role == Role::Active => {
                    let until_ms =
                        lease_until_ms.map(|until_ms| copy.serves_until_ms(settings, until_ms));
                    // 0 would say that it is sealed.
                    until_ms.unwrap_or(0).saturating_mul(MS_NS).max(1)
                }
                // Sealed, and still the active vBucket for those that drain it.
                Some(copy) if copy.complete => 0,
                _ => u64::MAX,
            };
            leases.set(VbId(number), until_ns);
        }
    }
}
