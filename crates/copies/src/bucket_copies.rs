//! The copies of a cluster's bucket on this node, with their state and the progress of other copies.

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

/// The copies of a cluster's bucket on this node.
pub struct BucketCopies<S> {
    /// ID of the bucket in the cluster.
    pub id: BucketId,
    /// The bucket on this node.
    pub bucket: Arc<Bucket<S>>,
    /// Gate with the nodes that its vBuckets follow.
    pub gate: Arc<Gate>,
    copies: Mutex<Vec<Option<CopyState>>>,
}

/// Returns the position of a vBucket in the history. A snapshot that is not complete does not count.
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

/// Makes the state of a copy in quarantine.
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

/// Whether a node has, or will get, a copy.
fn holds(topology: &Topology, node: NodeId) -> bool {
    let to = topology.change.map(|change| change.0);
    topology.chain.holds(node) || to.is_some_and(|to| to.holds(node))
}

impl<S: KvStore> BucketCopies<S> {
    /// Creates the copies that the bucket's store has, all as replicas.
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

    /// Returns the state of a copy, if it exists.
    pub fn state(&self, vb: VbId) -> Option<CopyState> {
        self.copies.lock().get(usize::from(vb.0))?.clone()
    }

    /// Sets the state of a copy.
    pub(crate) fn set_state(&self, vb: VbId, state: Option<CopyState>) {
        if let Some(copy) = self.copies.lock().get_mut(usize::from(vb.0)) {
            *copy = state;
        }
    }

    /// Records that `term` is the term on disk while a newer one is being written; `None` once the copy is on disk.
    pub(crate) fn set_durable_term(&self, vb: VbId, term: Option<u64>) {
        if let Some(Some(copy)) = self.copies.lock().get_mut(usize::from(vb.0)) {
            copy.durable_term = term.map(|term| copy.durable_term.unwrap_or(term));
        }
    }

    /// Sets the chains of an active copy.
    pub(crate) fn set_topology(&self, vb: VbId, topology: Topology, high: u64) {
        let phase = |topology: Option<Topology>| Some(topology?.change?.1);
        if let Some(Some(copy)) = self.copies.lock().get_mut(usize::from(vb.0)) {
            if phase(copy.topology) != phase(Some(topology)) {
                copy.since_phase = high;
            }
            // Progress of a node that had a copy, and has none at present, does not count for a new copy.
            let there = |node: &NodeId| holds(&topology, *node);
            copy.acknowledged.retain(|node, _| there(node));
            copy.confirmed.retain(|node, _| there(node));
            copy.topology = Some(topology);
        }
    }

    /// Returns all copies.
    pub fn vbuckets(&self) -> Vec<Vb> {
        let copies = self.copies.lock();
        let there = copies.iter().zip(0..).filter(|(copy, _)| copy.is_some());
        let vb = |number| Vb {
            bucket: self.id,
            number,
        };
        there.map(|(_, number)| vb(number)).collect()
    }

    /// Returns the nodes that copies follow.
    pub fn followed(&self) -> Vec<NodeId> {
        let copies = self.copies.lock();
        let mut nodes: Vec<_> = copies.iter().flatten().filter_map(|c| c.follows).collect();
        nodes.sort_unstable();
        nodes.dedup();
        nodes
    }

    /// Returns a copy in the form that the agent needs.
    pub fn copy(&self, me: NodeId, vb: VbId) -> Option<Copy> {
        let state = self.state(vb)?;
        let bucket = &self.bucket;
        if let Some(known) = bucket.quarantined(vb) {
            return Some(unreadable(known.term()));
        }
        // A copy whose rollback is in progress is not found.
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

    /// Returns the copies that follow `node`: vBucket, term of the stream, and seqno on disk.
    pub fn following(&self, node: NodeId) -> Vec<(u16, u64, u64)> {
        let persisted = |vb| {
            let bucket = &self.bucket;
            bucket.with_vbucket(vb, |vbucket| vbucket.persisted_seqno().0)
        };
        let open = self.gate.open_from(node.0).into_iter();
        let told = open.filter_map(|(vb, term)| Some((vb.0, term, persisted(vb)?)));
        told.collect()
    }

    /// Records the confirmation of another node that it follows copies of this one.
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

    /// Extends the leases of active copies as far as allowed, and those of readable replicas. `None` for a
    /// node whose disk died: none of its active copies serves.
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
                    // 0 would mean that the copy is sealed.
                    until_ms.unwrap_or(0).saturating_mul(MS_NS).max(1)
                }
                // Sealed, but the vBucket stays active for the nodes that drain it.
                Some(copy) if copy.complete => 0,
                _ => u64::MAX,
            };
            leases.set(VbId(number), until_ns);
        }
    }
}
