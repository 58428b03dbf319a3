//! Steps of copies, made on vBuckets.
//!
//! First everything that a seal forbids is ended, then the term is written and awaited, then the copy is what the step
//! says. Many steps wait at the same time, so that one commit of the store makes all their terms durable; one that has
//! nothing to wait for is made at once.

use std::collections::BTreeSet;

use cluster::agent::{Role, Step, Topology};
use cluster::{NodeId, Phase, Vb};
use engine::VBucket;
use model::{VbId, VbState, VbUuid};
use serde_json::json;
use storage::KvStore;

use crate::bucket_copies::BucketCopies;
use crate::gate::history_uuid;
use crate::state::CopyState;

/// How long a term may take to be on disk; then the step is made again.
const DURABLE_LIMIT_NS: u64 = 10_000_000_000;
/// How long a step that could not be made is not asked for again.
const PAUSE_NS: u64 = 100_000_000;
/// How long a seal waits for durable writes that are under way; the next active copy decides what is left.
const DECIDED_LIMIT_NS: u64 = 250_000_000;

/// What a step waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepWait {
    /// Durable writes are to be decided, then the vBucket gets this term.
    Decisions(u64),
    /// The term is to be on disk.
    Disk,
    /// It could not be made: it is not asked for again at once.
    Pause,
}

/// A step of a copy that waits.
pub struct Unfinished {
    step: Step,
    wait: StepWait,
    /// Of the bucket's monotonic clock.
    since_ns: u64,
}

impl Unfinished {
    /// The copy.
    pub fn vb(&self) -> Vb {
        vb_of(&self.step)
    }
}

/// The vBucket of a step.
pub fn vb_of(step: &Step) -> Vb {
    match *step {
        Step::Create { vb, .. }
        | Step::Remove { vb }
        | Step::Seal { vb, .. }
        | Step::Activate { vb, .. }
        | Step::SetTopology { vb, .. }
        | Step::StepDown { vb }
        | Step::Follow { vb, .. } => vb,
    }
}

/// How chains of durable writes name a node.
pub fn node_name(node: NodeId) -> String {
    format!("n{}", node.0)
}

/// What a step has ended before it is made.
enum Forbidden {
    /// What older terms than this one brought.
    At(u64),
    Nothing,
    /// It cannot be made.
    Failed,
}

/// What steps want of the node around.
pub trait Around {
    /// A random number.
    fn random_u64(&self) -> u64;

    /// vBuckets are other than they were: requests that wait for them are worth another try.
    fn changed(&self);

    /// Has a connection for streams of a node, at the address that it has now; false if none can be made.
    fn connect(&self, node: NodeId) -> bool;

    /// Tells the connection to a node, if there is one, that a vBucket follows otherwise than it did.
    fn turn(&self, node: NodeId, vb: VbId);
}

/// What makes steps of the copies of a bucket.
pub struct Steps<'a, S> {
    /// The copies.
    pub copies: &'a BucketCopies<S>,
    /// This node.
    pub me: NodeId,
    /// Nodes that failed: for durable writes they are not there.
    pub failed: &'a BTreeSet<NodeId>,
    /// The node around.
    pub around: &'a dyn Around,
}

impl<S: KvStore> Steps<'_, S> {
    /// Begins a step of a copy; gives it back if it has to wait.
    pub fn begin(&self, step: Step) -> Option<Unfinished> {
        let wait = match self.forbid(&step) {
            Forbidden::At(term) => StepWait::Decisions(term),
            Forbidden::Nothing if self.end(&step) => return None,
            Forbidden::Nothing | Forbidden::Failed => StepWait::Pause,
        };
        Some(Unfinished {
            step,
            wait,
            since_ns: self.now_ns(),
        })
    }

    fn now_ns(&self) -> u64 {
        self.copies.bucket.clock().mono_ns()
    }

    fn random_uuid(&self) -> VbUuid {
        VbUuid((self.around.random_u64() >> 16).max(1))
    }

    /// Goes on with a step; returns whether it is over. One that cannot be made in time is asked for again.
    pub fn go_on(&self, open: &mut Unfinished) -> bool {
        let (bucket, vb) = (&self.copies.bucket, VbId(vb_of(&open.step).number));
        let waited_ns = self.now_ns().saturating_sub(open.since_ns);
        match open.wait {
            StepWait::Pause => return waited_ns > PAUSE_NS,
            StepWait::Disk => {}
            StepWait::Decisions(term) => {
                // While their term holds, replicas acknowledge durable writes of an active copy that serves no more.
                let undecided = |vbucket: &mut VBucket| {
                    vbucket.state() == VbState::Active && vbucket.has_undecided()
                };
                let waits = waited_ns < DECIDED_LIMIT_NS;
                if waits && bucket.with_vbucket(vb, undecided) == Some(true) {
                    return false;
                }
                // A seal that is asked for meanwhile is not refused: it is being made.
                let before = bucket.with_vbucket(vb, |vbucket| vbucket.term());
                self.copies.set_durable_term(vb, before);
                bucket.with_vbucket(vb, |vbucket| vbucket.raise_term(term));
                open.wait = StepWait::Disk;
            }
        }
        let durable = bucket.with_vbucket(vb, |vbucket| vbucket.is_record_durable());
        if durable == Some(false) {
            bucket.hurry();
            return waited_ns > DURABLE_LIMIT_NS;
        }
        let made = self.end(&open.step);
        self.copies.set_durable_term(vb, None);
        if !made {
            (open.wait, open.since_ns) = (StepWait::Pause, self.now_ns());
        }
        made
    }

    /// Ends what must not go on at the term of a step.
    fn forbid(&self, step: &Step) -> Forbidden {
        let vb = VbId(vb_of(step).number);
        match *step {
            Step::Create { term, .. } => {
                let uuid = history_uuid(0, self.around.random_u64());
                let bucket = &self.copies.bucket;
                let made = bucket.set_vbucket(vb, VbState::Replica, None, uuid);
                made.map_or(Forbidden::Failed, |()| Forbidden::At(term))
            }
            Step::Seal { term, .. } | Step::Follow { term, .. } => {
                let Some(state) = self.copies.state(vb) else {
                    return Forbidden::Nothing;
                };
                self.stop(vb, &state);
                Forbidden::At(term)
            }
            _ => Forbidden::Nothing,
        }
    }

    /// Active copies work without nodes that failed, and with those that came back: a durable write that cannot be is
    /// refused at once.
    pub fn refresh_chains(&self) {
        for vb in self.copies.vbuckets() {
            let vb = VbId(vb.number);
            let state = self.copies.state(vb);
            let active = state.filter(|copy| copy.role == Role::Active);
            let Some(topology) = active.and_then(|copy| copy.topology) else {
                continue;
            };
            let text = self.chains(&topology);
            let bucket = &self.copies.bucket;
            let other = bucket.with_vbucket(vb, |vbucket| vbucket.topology() != text);
            if other == Some(true) {
                let uuid = self.random_uuid();
                self.set_active(vb, uuid, &text);
            }
        }
    }

    /// Makes of a copy what a step says; false if that cannot be now.
    fn end(&self, step: &Step) -> bool {
        let vb = VbId(vb_of(step).number);
        match *step {
            Step::Create { .. } => {
                let there = self.copies.bucket.with_vbucket(vb, |_| ());
                if there.is_some() && self.copies.state(vb).is_none() {
                    self.copies.set_state(vb, Some(CopyState::new()));
                }
            }
            Step::Remove { .. } => return self.remove(vb),
            Step::Seal { .. } => {
                if let Some(state) = self.copies.state(vb) {
                    // At once: a copy that has the term and is not sealed is one that started again.
                    let stopped = CopyState {
                        sealed: true,
                        durable_term: None,
                        ..state.stopped()
                    };
                    self.copies.set_state(vb, Some(stopped));
                }
            }
            Step::Activate { term, topology, .. } => return self.activate(vb, (term, topology)),
            Step::SetTopology { topology, .. } => return self.set_topology(vb, topology),
            Step::StepDown { .. } => {
                if let Some(state) = self.copies.state(vb) {
                    self.stop(vb, &state);
                    self.be_replica(vb);
                    self.copies.set_state(vb, Some(CopyState::new()));
                }
            }
            Step::Follow { term, from, .. } => return self.follow(vb, (term, from)),
        }
        true
    }

    /// Ends streams of what was the active vBucket.
    fn be_replica(&self, vb: VbId) {
        let bucket = &self.copies.bucket;
        let active = bucket.with_vbucket(vb, |vbucket| vbucket.state() == VbState::Active);
        if active == Some(true) {
            self.set_vbucket(vb, VbState::Replica, "", self.random_uuid());
        }
    }

    /// Makes a vBucket active, with a history of this UUID if it was not, and with these chains.
    fn set_active(&self, vb: VbId, uuid: VbUuid, chains: &str) -> bool {
        self.set_vbucket(vb, VbState::Active, chains, uuid)
    }

    fn set_vbucket(&self, vb: VbId, state: VbState, chains: &str, uuid: VbUuid) -> bool {
        let topology = Some(chains.to_owned());
        let set = self.copies.bucket.set_vbucket(vb, state, topology, uuid);
        if let Err(error) = &set {
            tracing::warn!(%error, vb = vb.0, "a copy could not be changed");
        }
        self.around.changed();
        set.is_ok()
    }

    fn activate(&self, vb: VbId, (term, topology): (u64, Topology)) -> bool {
        let Some(state) = self.copies.state(vb) else {
            return true;
        };
        self.stop(vb, &state);
        self.be_replica(vb);
        let uuid = history_uuid(term, self.around.random_u64());
        let text = self.chains(&topology);
        let set = self.set_active(vb, uuid, &text);
        if set {
            let active = CopyState {
                role: Role::Active,
                topology: Some(topology),
                since_phase: self.high_seqno(vb),
                ..CopyState::new()
            };
            self.copies.set_state(vb, Some(active));
        }
        set
    }

    fn set_topology(&self, vb: VbId, topology: Topology) -> bool {
        let (uuid, text) = (self.random_uuid(), self.chains(&topology));
        let set = self.set_active(vb, uuid, &text);
        if set {
            self.copies.set_topology(vb, topology, self.high_seqno(vb));
        }
        set
    }

    fn follow(&self, vb: VbId, (term, from): (u64, NodeId)) -> bool {
        let Some(state) = self.copies.state(vb) else {
            return true;
        };
        if !self.around.connect(from) {
            return false;
        }
        self.be_replica(vb);
        self.copies.gate.follow(vb, from.0, term);
        let follows = CopyState {
            follows: Some(from),
            ..CopyState::new()
        };
        self.copies.set_state(vb, Some(follows));
        self.turn(vb, state.follows.filter(|node| *node != from));
        self.turn(vb, Some(from));
        true
    }

    /// The chains as the protocol has them: this node first. Of a chain that it will not be in, the majority is that of
    /// its own nodes.
    fn chains(&self, topology: &Topology) -> String {
        let chain = |nodes: &[NodeId]| {
            let others = nodes.iter().filter(|node| **node != self.me);
            let mut names = vec![Some(node_name(self.me))];
            let there = |node: &NodeId| !self.failed.contains(node);
            names.extend(others.map(|node| there(node).then(|| node_name(*node))));
            if !nodes.contains(&self.me) && nodes.len().is_multiple_of(2) {
                names.push(None);
            }
            names
        };
        let both = topology
            .change
            .filter(|(_, phase)| *phase >= Phase::TwoChains);
        let chains = std::iter::once(chain(topology.chain.nodes()));
        let chains: Vec<_> = chains
            .chain(both.map(|(to, _)| chain(to.nodes())))
            .collect();
        json!(chains).to_string()
    }

    fn high_seqno(&self, vb: VbId) -> u64 {
        let bucket = &self.copies.bucket;
        let high = bucket.with_vbucket(vb, |vbucket| vbucket.high_seqno().0);
        high.unwrap_or_default()
    }

    /// A copy serves no more, and takes nothing more.
    fn stop(&self, vb: VbId, state: &CopyState) {
        self.copies.gate.close(vb);
        if state.role == Role::Active {
            // First, so that its lease is not renewed.
            self.copies.set_state(vb, Some(state.stopped()));
            if let Some(leases) = self.copies.bucket.leases() {
                leases.set(vb, 0);
            }
        }
        self.turn(vb, state.follows);
    }

    fn turn(&self, vb: VbId, node: Option<NodeId>) {
        if let Some(node) = node {
            self.around.turn(node, vb);
        }
    }

    fn remove(&self, vb: VbId) -> bool {
        let Some(state) = self.copies.state(vb) else {
            return true;
        };
        self.stop(vb, &state);
        let bucket = &self.copies.bucket;
        if let Err(error) = bucket.delete_vbucket(vb) {
            tracing::error!(%error, vb = vb.0, "a copy could not be removed from the disk yet");
        }
        // The flusher removes from the disk what is gone from memory. A copy that comes after it begins anew.
        let gone = bucket.with_vbucket(vb, |_| ()).is_none() && bucket.quarantined(vb).is_none();
        if gone {
            self.copies.set_state(vb, None);
        }
        gone
    }
}
