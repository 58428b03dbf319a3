//! The copies of a bucket of the cluster on this node: what each is, and how far others are.

use std::sync::Arc;

use bucket::Bucket;
use cluster::agent::{Copy, MoveProgress, Role, Topology};
use cluster::{BucketId, Condition, NodeId, Position, Settings, Vb};
use engine::VBucket;
use model::VbId;
use parking_lot::Mutex;
use storage::KvStore;

use crate::gate::{Gate, history_term};
use crate::state::CopyState;

const MS_NS: u64 = 1_000_000;

/// The copies of a bucket of the cluster on this node.
pub struct BucketCopies<S> {
    /// The bucket in the cluster.
    pub id: BucketId,
    /// The bucket here.
    pub bucket: Arc<Bucket<S>>,
    /// Which nodes its vBuckets follow.
    pub gate: Arc<Gate>,
    copies: Mutex<Vec<Option<CopyState>>>,
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

impl<S: KvStore> BucketCopies<S> {
    /// What the store of a bucket has, all of it replicas.
    pub fn new(id: BucketId, bucket: Arc<Bucket<S>>) -> Self {
        let vbuckets = bucket.vbuckets();
        let found = |index| {
            let vb = VbId(index);
            let there = bucket.with_vbucket(vb, |_| ()).is_some();
            (there || bucket.quarantined(vb).is_some()).then(CopyState::new)
        };
        Self {
            id,
            copies: Mutex::new((0..vbuckets).map(found).collect()),
            gate: Arc::new(Gate::new(vbuckets)),
            bucket,
        }
    }

    /// The state of a copy, if there is one.
    pub fn state(&self, vb: VbId) -> Option<CopyState> {
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
    pub fn vbuckets(&self) -> Vec<Vb> {
        let copies = self.copies.lock();
        let there = copies.iter().zip(0..).filter(|(copy, _)| copy.is_some());
        let vb = |number| Vb {
            bucket: self.id,
            number,
        };
        there.map(|(_, number)| vb(number)).collect()
    }

    /// The nodes that copies follow.
    pub fn followed(&self) -> Vec<NodeId> {
        let copies = self.copies.lock();
        let mut nodes: Vec<_> = copies.iter().flatten().filter_map(|c| c.follows).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// A copy as the agent sees it.
    pub fn copy(&self, me: NodeId, vb: VbId) -> Option<Copy> {
        let state = self.state(vb)?;
        let bucket = &self.bucket;
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
            condition: if bucket.is_damaged(vb) || self.gate.stays(vb) {
                Condition::Damaged
            } else {
                Condition::Whole
            },
        })
    }

    /// What follows `node`: vBuckets, terms of their streams, and seqnos that are on disk.
    pub fn following(&self, node: NodeId) -> Vec<(u16, u64, u64)> {
        let persisted = |vb| {
            let bucket = &self.bucket;
            bucket.with_vbucket(vb, |vbucket| vbucket.persisted_seqno().0)
        };
        let open = self.gate.open_from(node.0).into_iter();
        let told = open.filter_map(|(vb, term)| Some((vb.0, term, persisted(vb)?)));
        told.collect()
    }

    /// Another node confirmed that it follows copies of this one.
    pub fn confirm(&self, from: NodeId, echo_ms: u64, told: &[(u16, u64, u64)]) {
        for (number, term, seqno) in told {
            let vb = VbId(*number);
            let ours = self.bucket.with_vbucket(vb, |vbucket| vbucket.term());
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
    pub fn renew(&self, settings: &Settings, lease_until_ms: Option<u64>) {
        let Some(leases) = self.bucket.leases() else {
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
