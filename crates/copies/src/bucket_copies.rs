//! The copies of a cluster's bucket on this node, with their state and the progress of other copies.

use std::collections::BTreeMap;
use std::sync::Arc;

use bucket::{Bucket, Leases};
use cluster::agent::{Completeness, Copy, MoveProgress, Role, Topology};
use cluster::{BucketId, Condition, NodeId, Position, Settings, Vb};
use engine::VBucket;
use model::VbId;
use parking_lot::Mutex;
use storage::KvStore;

use crate::gate::{Gate, history_term};
use crate::state::{CopyState, TermConfirmation};

const MS_NS: u64 = 1_000_000;

/// The copies of a cluster's bucket on this node.
pub struct BucketCopies<S> {
    /// ID of the bucket in the cluster.
    pub id: BucketId,
    /// The bucket on this node.
    pub bucket: Arc<Bucket<S>>,
    /// Gate with the nodes that its vBuckets follow.
    pub gate: Arc<Gate>,
    copies: Mutex<CopyStates>,
}

/// A copy that follows another node: vBucket, term of its stream, and seqno on disk.
pub type FollowingCopy = (u16, u64, u64);

/// Marks of a bucket that differ after a change of the copies that follow another node.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct FollowingStamp {
    gate: u64,
    commits: u64,
    damaged: Vec<VbId>,
}

/// The states of the copies.
struct CopyStates {
    by_vb: Vec<Option<CopyState>>,
    /// Number of changes of roles, terms and chains.
    changes: u64,
    /// Value of `changes`, and whether the disk worked, when the leases of all vBuckets were last set.
    leased: Option<(u64, bool)>,
    /// Send time of the last ping that each node answered.
    answered: BTreeMap<NodeId, u64>,
}

impl CopyStates {
    fn change(&mut self, vb: VbId) -> Option<&mut Option<CopyState>> {
        self.changes += 1;
        self.by_vb.get_mut(usize::from(vb.0))
    }
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
        complete: Completeness::Unknown,
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
            copies: Mutex::new(CopyStates {
                by_vb: (0..vbuckets).map(found).collect(),
                changes: 0,
                leased: None,
                answered: BTreeMap::new(),
            }),
            gate: Arc::new(Gate::new(vbuckets)),
            bucket,
        }
    }

    /// Returns the state of a copy, if it exists.
    pub fn state(&self, vb: VbId) -> Option<CopyState> {
        self.copies.lock().by_vb.get(usize::from(vb.0))?.clone()
    }

    /// Sets the state of a copy.
    pub(crate) fn set_state(&self, vb: VbId, state: Option<CopyState>) {
        if let Some(copy) = self.copies.lock().change(vb) {
            *copy = state;
        }
    }

    /// Records that `term` is the term on disk while a newer one is being written; `None` once the copy is on disk.
    pub(crate) fn set_durable_term(&self, vb: VbId, term: Option<u64>) {
        if let Some(Some(copy)) = self.copies.lock().change(vb) {
            copy.durable_term = term.map(|term| copy.durable_term.unwrap_or(term));
        }
    }

    /// Sets the chains of an active copy.
    pub(crate) fn set_topology(&self, vb: VbId, topology: Topology, high: u64) {
        let phase = |topology: Option<Topology>| Some(topology?.change?.1);
        if let Some(Some(copy)) = self.copies.lock().change(vb) {
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
        let there = copies
            .by_vb
            .iter()
            .zip(0..)
            .filter(|(copy, _)| copy.is_some());
        let vb = |number| Vb {
            bucket: self.id,
            number,
        };
        there.map(|(_, number)| vb(number)).collect()
    }

    /// Returns the numbers of the vBuckets whose copies have everything that they acknowledged when they were active.
    pub fn complete(&self) -> Vec<u16> {
        let copies = self.copies.lock();
        let complete = |copy: &CopyState| copy.stopped().complete != Completeness::Unknown;
        let all = copies.by_vb.iter().zip(0..);
        let all = all.filter(|(copy, _)| copy.as_ref().is_some_and(complete));
        all.map(|(_, number)| number).collect()
    }

    /// Records at the start of the node that it stopped with everything on disk: what [`Self::complete`] returned then.
    pub fn keep_complete(&self, numbers: &[u16]) {
        for number in numbers {
            if let Some(Some(copy)) = self.copies.lock().change(VbId(*number)) {
                copy.complete = Completeness::Kept;
            }
        }
    }

    /// Returns the copies that may not be whole.
    pub fn damaged(&self) -> Vec<Vb> {
        let damaged = self.bucket.damaged().into_iter();
        let all = damaged.chain(self.gate.staying());
        let vb = |VbId(number)| Vb {
            bucket: self.id,
            number,
        };
        all.map(vb).collect()
    }

    /// Returns the nodes that copies follow.
    pub fn followed(&self) -> Vec<NodeId> {
        let copies = self.copies.lock();
        let copies = copies.by_vb.iter().flatten();
        let mut nodes: Vec<_> = copies.filter_map(|copy| copy.follows).collect();
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

    /// Returns a number that is another one after each change of a copy's role, term or chains.
    pub(crate) fn changes(&self) -> u64 {
        self.copies.lock().changes
    }

    /// Returns the copies that follow `node`, and whether no copy was just changing.
    pub(crate) fn following(&self, node: NodeId) -> (Vec<FollowingCopy>, bool) {
        let persisted = |vb| {
            let bucket = &self.bucket;
            bucket.with_vbucket(vb, |vbucket| vbucket.persisted_seqno().0)
        };
        let (open, is_whole) = self.gate.open_from(node.0);
        let reported = open.into_iter();
        let reported = reported.filter_map(|(vb, term)| Some((vb.0, term, persisted(vb)?)));
        (reported.collect(), is_whole)
    }

    /// Returns a value that is another one after each change of what [`Self::following`] returns.
    pub(crate) fn following_stamp(&self) -> FollowingStamp {
        FollowingStamp {
            gate: self.gate.changes(),
            commits: self.bucket.finished_commits(),
            damaged: self.bucket.damaged(),
        }
    }

    /// Takes the answer of another node to a ping that was sent at `sent_ms`: the copies that follow copies of this
    /// one, `None` if they are those of its last answer. Returns false, without effect, if copies of this node change
    /// at the same time.
    pub(crate) fn confirm(
        &self,
        from: NodeId,
        sent_ms: u64,
        reported: Option<&[FollowingCopy]>,
    ) -> bool {
        let Some(reported) = reported else {
            let mut copies = self.copies.lock();
            let answered_ms = copies.answered.entry(from).or_default();
            *answered_ms = sent_ms.max(*answered_ms);
            return true;
        };
        let changes = self.changes();
        let of_term = |(number, term, _): &&FollowingCopy| {
            let ours = self.bucket.with_vbucket(VbId(*number), |vb| vb.term());
            ours == Some(*term)
        };
        let reported: Vec<_> = reported.iter().filter(of_term).collect();
        let mut copies = self.copies.lock();
        if copies.changes != changes {
            return false;
        }
        let before_ms = copies.answered.insert(from, sent_ms).unwrap_or_default();
        for copy in copies.by_vb.iter_mut().flatten() {
            if let Some(confirmation) = copy.confirmed.get_mut(&from) {
                let sent_ms = confirmation.newest_ms(before_ms);
                let stands = false;
                *confirmation = TermConfirmation { sent_ms, stands };
            }
        }
        for (number, _, seqno) in reported {
            let copy = copies.by_vb.get_mut(usize::from(*number));
            let Some(copy) = copy.and_then(Option::as_mut) else {
                continue;
            };
            let topology = copy.topology.filter(|_| copy.role == Role::Active);
            if topology.is_some_and(|topology| holds(&topology, from)) {
                copy.confirmed.entry(from).or_default().stands = true;
                let acknowledged = copy.acknowledged.entry(from).or_default();
                *acknowledged = (*seqno).max(*acknowledged);
            }
        }
        true
    }

    /// Extends the leases of active copies as far as allowed, and those of readable replicas. `None` for a
    /// node whose disk died: none of its active copies serves.
    ///
    /// Cost: a few instructions, unless copies changed, or the node's lease ends soon.
    pub fn renew(&self, settings: &Settings, lease_until_ms: Option<u64>) {
        let Some(leases) = self.bucket.leases() else {
            return;
        };
        let mut copies = self.copies.lock();
        let now_ms = self.bucket.clock().mono_ns() / MS_NS;
        let node_ms = lease_until_ms.unwrap_or_default();
        let state = Some((copies.changes, lease_until_ms.is_some()));
        // No confirmation counts for longer than this from its ping.
        let matter = node_ms < now_ms + settings.confirmed_ms;
        if matter || copies.leased != state {
            copies.leased = state;
            for (copy, number) in copies.by_vb.iter().zip(0..) {
                let until_ns = match copy {
                    Some(copy) if copy.role == Role::Active => {
                        let confirmed_ms = copy.confirmed_until_ms(settings, &copies.answered);
                        let own_ms = lease_until_ms.and(confirmed_ms);
                        // 0 would mean that the copy is sealed.
                        own_ms.map_or(Leases::EXPIRED_NS, |own_ms| {
                            own_ms.saturating_mul(MS_NS).max(Leases::EXPIRED_NS + 1)
                        })
                    }
                    // Sealed, but the vBucket stays active for the nodes that drain it.
                    Some(copy) if copy.complete == Completeness::Drains => 0,
                    _ => u64::MAX,
                };
                leases.set(VbId(number), until_ns);
            }
        }
        leases.set_node(node_ms.saturating_mul(MS_NS));
    }
}
