//! Steps of copies, made on vBuckets.
//!
//! First everything that a seal forbids is ended, then the term is written and awaited, then the copy is what the step
//! says. Many steps wait at the same time, so that one commit of the store makes all their terms durable; one that has
//! nothing to wait for is made at once.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bucket::Bucket;
use cluster::agent::{Role, Step, Topology};
use cluster::{NodeId, Phase, Vb};
use engine::{OpError, VBucket};
use model::{VbId, VbState, VbUuid};
use registry::{Registry, Store};
use replication::{PeerLink, PeerOptions, history_uuid};
use serde_json::json;

use crate::hosted::{CopyState, Hosted};

/// How long a term may take to be on disk; then the step is made again.
const DURABLE_LIMIT: Duration = Duration::from_secs(10);
/// How long a seal waits for durable writes that are under way; the next active copy decides what is left.
const DECIDED_LIMIT: Duration = Duration::from_millis(250);

/// A step of a copy that waits for durable writes to be decided, then for its term to be on disk.
pub(crate) struct Unfinished {
    step: Step,
    term: u64,
    /// Whether the vBucket has the term.
    raised: bool,
    since: Instant,
}

impl Unfinished {
    /// The copy.
    pub(crate) fn vb(&self) -> Vb {
        vb_of(&self.step)
    }
}

/// The vBucket of a step.
pub(crate) fn vb_of(step: &Step) -> Vb {
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
pub(crate) fn node_name(node: NodeId) -> String {
    format!("n{}", node.0)
}

/// What makes steps.
pub(crate) struct Steps<'a> {
    pub(crate) node: &'a Arc<Registry>,
    pub(crate) me: NodeId,
    /// Nodes that failed: for durable writes they are not there.
    pub(crate) failed: &'a BTreeSet<NodeId>,
    /// Where nodes are, and how they log in to each other.
    pub(crate) link: &'a dyn Fn(NodeId) -> Option<PeerOptions>,
}

impl Steps<'_> {
    /// Begins a step of a copy; gives it back if it has to wait.
    pub(crate) fn begin(&self, hosted: &Hosted, step: Step) -> Option<Unfinished> {
        let Some(term) = self.forbid(hosted, &step) else {
            self.end(hosted, &step);
            return None;
        };
        Some(Unfinished {
            step,
            term,
            raised: false,
            since: Instant::now(),
        })
    }

    /// Goes on with a step; returns whether it is over. One that cannot be made in time is asked for again.
    pub(crate) fn go_on(&self, hosted: &Hosted, open: &mut Unfinished) -> bool {
        let (bucket, vb) = (&hosted.served.bucket, VbId(vb_of(&open.step).number));
        if !open.raised {
            // While their term holds, replicas acknowledge durable writes of an active copy that serves no more.
            let undecided = |vbucket: &mut VBucket| {
                vbucket.state() == VbState::Active && vbucket.has_undecided()
            };
            let waits = open.since.elapsed() < DECIDED_LIMIT;
            if waits && bucket.with_vbucket(vb, undecided) == Some(true) {
                return false;
            }
            // A seal that is asked for meanwhile is not refused: it is being made.
            let before = bucket.with_vbucket(vb, |vbucket| vbucket.term());
            hosted.set_durable_term(vb, before);
            bucket.with_vbucket(vb, |vbucket| vbucket.raise_term(open.term));
            open.raised = true;
        }
        let durable = bucket.with_vbucket(vb, |vbucket| vbucket.is_record_durable());
        if durable == Some(false) {
            bucket.hurry();
            return open.since.elapsed() > DURABLE_LIMIT;
        }
        self.end(hosted, &open.step);
        hosted.set_durable_term(vb, None);
        true
    }

    /// Ends what must not go on at the term of a step; gives that term.
    fn forbid(&self, hosted: &Hosted, step: &Step) -> Option<u64> {
        let vb = VbId(vb_of(step).number);
        match *step {
            Step::Create { term, .. } => {
                let uuid = history_uuid(0, self.node.env.random_u64());
                let bucket = &hosted.served.bucket;
                let made = bucket.set_vbucket(vb, VbState::Replica, None, uuid);
                made.ok().map(|()| term)
            }
            Step::Seal { term, .. } | Step::Follow { term, .. } => {
                let state = hosted.state(vb)?;
                stop(hosted, vb, &state);
                Some(term)
            }
            _ => None,
        }
    }

    /// Active copies work without nodes that failed, and with those that came back: a durable write that cannot be is
    /// refused at once.
    pub(crate) fn refresh_chains(&self, hosted: &Hosted) {
        for vb in hosted.vbuckets() {
            let vb = VbId(vb.number);
            let state = hosted.state(vb);
            let active = state.filter(|copy| copy.role == Role::Active);
            let Some(topology) = active.and_then(|copy| copy.topology) else {
                continue;
            };
            let text = self.chains(&topology);
            let bucket = &hosted.served.bucket;
            let other = bucket.with_vbucket(vb, |vbucket| vbucket.topology() != text);
            if other == Some(true) {
                let uuid = self.node.env.random_vb_uuid();
                self.set_active(hosted, vb, uuid, &text);
            }
        }
    }

    /// Makes of a copy what a step says.
    fn end(&self, hosted: &Hosted, step: &Step) {
        let vb = VbId(vb_of(step).number);
        match *step {
            Step::Create { .. } => {
                let there = hosted.served.bucket.with_vbucket(vb, |_| ());
                if there.is_some() && hosted.state(vb).is_none() {
                    hosted.set_state(vb, Some(CopyState::new()));
                }
            }
            Step::Remove { .. } => remove(hosted, vb),
            Step::Seal { .. } => {
                if let Some(state) = hosted.state(vb) {
                    // At once: a copy that has the term and is not sealed is one that started again.
                    let stopped = CopyState {
                        sealed: true,
                        durable_term: None,
                        ..state.stopped()
                    };
                    hosted.set_state(vb, Some(stopped));
                }
            }
            Step::Activate { term, topology, .. } => self.activate(hosted, vb, (term, topology)),
            Step::SetTopology { topology, .. } => self.set_topology(hosted, vb, topology),
            Step::StepDown { .. } => {
                if let Some(state) = hosted.state(vb) {
                    stop(hosted, vb, &state);
                    self.be_replica(hosted, vb);
                    hosted.set_state(vb, Some(CopyState::new()));
                }
            }
            Step::Follow { term, from, .. } => self.follow(hosted, vb, (term, from)),
        }
    }

    /// Ends streams of what was the active vBucket.
    fn be_replica(&self, hosted: &Hosted, vb: VbId) {
        let bucket = &hosted.served.bucket;
        let active = bucket.with_vbucket(vb, |vbucket| vbucket.state() == VbState::Active);
        if active == Some(true) {
            let uuid = self.node.env.random_vb_uuid();
            self.set_vbucket(hosted, vb, &|bucket| {
                bucket.set_vbucket(vb, VbState::Replica, Some(String::new()), uuid)
            });
        }
    }

    /// Makes a vBucket active, with a history of this UUID if it was not, and with these chains.
    fn set_active(&self, hosted: &Hosted, vb: VbId, uuid: VbUuid, chains: &str) -> bool {
        self.set_vbucket(hosted, vb, &|bucket| {
            bucket.set_vbucket(vb, VbState::Active, Some(chains.to_owned()), uuid)
        })
    }

    fn set_vbucket(
        &self,
        hosted: &Hosted,
        vb: VbId,
        set: &dyn Fn(&Bucket<Store>) -> Result<(), OpError>,
    ) -> bool {
        let set = set(&hosted.served.bucket);
        if let Err(error) = &set {
            tracing::warn!(%error, vb = vb.0, "a copy could not be changed");
        }
        // Requests that wait for the vBucket are worth another try.
        self.node.wake_all();
        set.is_ok()
    }

    fn activate(&self, hosted: &Hosted, vb: VbId, (term, topology): (u64, Topology)) {
        let Some(state) = hosted.state(vb) else {
            return;
        };
        stop(hosted, vb, &state);
        self.be_replica(hosted, vb);
        let uuid = history_uuid(term, self.node.env.random_u64());
        let text = self.chains(&topology);
        if self.set_active(hosted, vb, uuid, &text) {
            let active = CopyState {
                role: Role::Active,
                topology: Some(topology),
                since_phase: high_seqno(hosted, vb),
                ..CopyState::new()
            };
            hosted.set_state(vb, Some(active));
        }
    }

    fn set_topology(&self, hosted: &Hosted, vb: VbId, topology: Topology) {
        let (uuid, text) = (self.node.env.random_vb_uuid(), self.chains(&topology));
        if self.set_active(hosted, vb, uuid, &text) {
            hosted.set_topology(vb, topology, high_seqno(hosted, vb));
        }
    }

    fn follow(&self, hosted: &Hosted, vb: VbId, (term, from): (u64, NodeId)) {
        let Some(state) = hosted.state(vb) else {
            return;
        };
        if !self.link_to(hosted, from) {
            return;
        }
        self.be_replica(hosted, vb);
        hosted.gate.follow(vb, from.0, term);
        let follows = CopyState {
            follows: Some(from),
            ..CopyState::new()
        };
        hosted.set_state(vb, Some(follows));
        turn(hosted, vb, state.follows.filter(|node| *node != from));
        turn(hosted, vb, Some(from));
    }

    /// Has a connection to a node, at the address that it has now; false if none can be made.
    pub(crate) fn link_to(&self, hosted: &Hosted, node: NodeId) -> bool {
        let Some(options) = (self.link)(node) else {
            return false;
        };
        let mut links = hosted.links.lock();
        if links
            .get(&node)
            .is_some_and(|link| link.at() == &options.at)
        {
            return true;
        }
        let started = PeerLink::start(self.node, &hosted.served, &hosted.gate, options);
        match started {
            Ok(link) => {
                drop(links.insert(node, link));
                true
            }
            Err(error) => {
                tracing::error!(%error, "no thread for streams of another node");
                false
            }
        }
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
}

fn high_seqno(hosted: &Hosted, vb: VbId) -> u64 {
    let bucket = &hosted.served.bucket;
    let high = bucket.with_vbucket(vb, |vbucket| vbucket.high_seqno().0);
    high.unwrap_or_default()
}

/// A copy serves no more, and takes nothing more.
fn stop(hosted: &Hosted, vb: VbId, state: &CopyState) {
    hosted.gate.close(vb);
    if state.role == Role::Active {
        // First, so that its lease is not renewed.
        hosted.set_state(vb, Some(state.stopped()));
        if let Some(leases) = hosted.served.bucket.leases() {
            leases.set(vb, 0);
        }
    }
    turn(hosted, vb, state.follows);
}

fn turn(hosted: &Hosted, vb: VbId, node: Option<NodeId>) {
    let links = hosted.links.lock();
    if let Some(link) = node.and_then(|node| links.get(&node)) {
        link.turn(vb);
    }
}

/// Ends connections to nodes that no copy follows.
pub(crate) fn drop_links(hosted: &Hosted) {
    let followed = hosted.followed();
    let mut links = hosted.links.lock();
    links.retain(|node, _| followed.contains(node));
}

fn remove(hosted: &Hosted, vb: VbId) {
    let Some(state) = hosted.state(vb) else {
        return;
    };
    stop(hosted, vb, &state);
    match hosted.served.bucket.delete_vbucket(vb) {
        Ok(_) => hosted.set_state(vb, None),
        Err(error) => tracing::error!(%error, vb = vb.0, "a copy could not be removed"),
    }
}
