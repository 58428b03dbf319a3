//! Execution of steps on vBuckets.
//!
//! A step first ends everything that its seal forbids, then writes the term and waits for the disk, then
//! changes the copy. Many steps wait at the same time, so that one commit of the store makes all their terms
//! durable. A step without a wait is made at once.

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

/// Longest wait for a term to get on disk, in nanoseconds; after it the step is made again.
const DURABLE_LIMIT_NS: u64 = 10_000_000_000;
/// Pause before a failed step is requested again, in nanoseconds.
const PAUSE_NS: u64 = 100_000_000;
/// Longest wait of a seal for durable writes in progress, in nanoseconds; the next active copy decides the others.
const DECIDED_LIMIT_NS: u64 = 250_000_000;

/// Reason why a step waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StepWait {
    /// Durable writes must be decided first; then the vBucket gets this term.
    Decisions(u64),
    /// The term must get on disk.
    Disk,
    /// The step failed, and is not requested again at once.
    Pause,
}

/// A step of a copy that waits.
pub struct Unfinished {
    step: Step,
    wait: StepWait,
    /// Start of the wait by the bucket's monotonic clock.
    since_ns: u64,
}

impl Unfinished {
    /// Returns the vBucket of the copy.
    pub fn vb(&self) -> Vb {
        vb_of(&self.step)
    }
}

/// Returns the vBucket of a step.
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

/// Returns the name of a node in the chains of durable writes.
pub fn node_name(node: NodeId) -> String {
    format!("n{}", node.0)
}

/// Activity that a step must end first.
enum Forbidden {
    /// Changes of terms older than this one.
    At(u64),
    Nothing,
    /// The step cannot be made.
    Failed,
}

/// Services of the node for steps.
pub trait NodeServices {
    /// Returns a random number.
    fn random_u64(&self) -> u64;

    /// Notifies the node that states of vBuckets changed: parked requests run again.
    fn changed(&self);

    /// Opens a connection for streams of a node, at its present address; false if this is impossible.
    fn connect(&self, node: NodeId) -> bool;

    /// Notifies the connection to a node, if there is one, that a vBucket's relation to the node changed.
    fn turn(&self, node: NodeId, vb: VbId);
}

/// Executor of steps on the copies of a bucket.
pub struct Steps<'a, S> {
    /// The copies.
    pub copies: &'a BucketCopies<S>,
    /// This node.
    pub me: NodeId,
    /// Failed nodes: durable writes do not count them.
    pub failed: &'a BTreeSet<NodeId>,
    /// Services of the node.
    pub services: &'a dyn NodeServices,
}

impl<S: KvStore> Steps<'_, S> {
    /// Begins a step of a copy; returns it if it must wait.
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
        VbUuid((self.services.random_u64() >> 16).max(1))
    }

    /// Continues a step; returns whether it has ended. A step that does not finish in time is requested again.
    pub fn go_on(&self, open: &mut Unfinished) -> bool {
        let (bucket, vb) = (&self.copies.bucket, VbId(vb_of(&open.step).number));
        let waited_ns = self.now_ns().saturating_sub(open.since_ns);
        match open.wait {
            StepWait::Pause => return waited_ns > PAUSE_NS,
            StepWait::Disk => {}
            StepWait::Decisions(term) => {
                // While their term lasts, replicas acknowledge durable writes of an active copy that has
                // ceased to serve.
                let undecided = |vbucket: &mut VBucket| {
                    vbucket.state() == VbState::Active && vbucket.has_undecided()
                };
                let waits = waited_ns < DECIDED_LIMIT_NS;
                if waits && bucket.with_vbucket(vb, undecided) == Some(true) {
                    return false;
                }
                // A seal that is requested meanwhile is not refused: it is being made.
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

    /// Ends all activity that the term of a step forbids.
    fn forbid(&self, step: &Step) -> Forbidden {
        let vb = VbId(vb_of(step).number);
        match *step {
            // While a copy is rolled back, its vBucket is not found.
            Step::Create { .. } if self.copies.state(vb).is_some() => Forbidden::Failed,
            Step::Create { term, .. } => {
                let uuid = history_uuid(0, self.services.random_u64());
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

    /// Updates the chains of active copies after nodes failed or came back: a durable write that cannot
    /// succeed is refused at once.
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

    /// Makes the final change of a step; false if this is impossible at the moment.
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
                    // In one change of the state: a copy that has the term and is not sealed counts as restarted.
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

    /// Makes the vBucket a replica if it is active; this ends its streams.
    fn be_replica(&self, vb: VbId) {
        let bucket = &self.copies.bucket;
        let active = bucket.with_vbucket(vb, |vbucket| vbucket.state() == VbState::Active);
        if active == Some(true) {
            self.set_vbucket(vb, VbState::Replica, "", self.random_uuid());
        }
    }

    /// Makes a vBucket active with these chains, and with a new history of this UUID if it was not active.
    fn set_active(&self, vb: VbId, uuid: VbUuid, chains: &str) -> bool {
        self.set_vbucket(vb, VbState::Active, chains, uuid)
    }

    fn set_vbucket(&self, vb: VbId, state: VbState, chains: &str, uuid: VbUuid) -> bool {
        let topology = Some(chains.to_owned());
        let set = self.copies.bucket.set_vbucket(vb, state, topology, uuid);
        if let Err(error) = &set {
            tracing::warn!(%error, vb = vb.0, "a copy could not be changed");
        }
        self.services.changed();
        set.is_ok()
    }

    fn activate(&self, vb: VbId, (term, topology): (u64, Topology)) -> bool {
        let Some(state) = self.copies.state(vb) else {
            return true;
        };
        self.stop(vb, &state);
        self.be_replica(vb);
        let uuid = history_uuid(term, self.services.random_u64());
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
        if !self.services.connect(from) {
            // The old stream has ended: the step is requested again.
            let follows = None;
            self.copies
                .set_state(vb, Some(CopyState { follows, ..state }));
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

    /// Returns the chains in the protocol's form, with this node first. A chain without this node is padded,
    /// so that the needed majority is that of the chain's own nodes.
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

    /// Makes a copy cease to serve and to take changes.
    fn stop(&self, vb: VbId, state: &CopyState) {
        self.copies.gate.close(vb);
        if state.role == Role::Active {
            // The state comes first, so that the lease is not renewed.
            self.copies.set_state(vb, Some(state.stopped()));
            if let Some(leases) = self.copies.bucket.leases() {
                leases.set(vb, 0);
            }
            // The copy that takes over would lack what this one changes from now on.
            self.copies.bucket.seal(vb);
        }
        self.turn(vb, state.follows);
    }

    fn turn(&self, vb: VbId, node: Option<NodeId>) {
        if let Some(node) = node {
            self.services.turn(node, vb);
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
        // The flusher removes from disk what was removed from memory. A later copy begins empty.
        let gone = bucket.with_vbucket(vb, |_| ()).is_none() && bucket.quarantined(vb).is_none();
        if gone {
            self.copies.set_state(vb, None);
        }
        gone
    }
}
