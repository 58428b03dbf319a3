//! A copy of a vBucket, simplified: a list of writes, in memory and on disk.

use std::collections::BTreeMap;
use std::rc::Rc;

use cluster::agent::{Copy, MoveProgress, Role, Topology};
use cluster::{Condition, NodeId, Position, Vb};

use crate::bugs::Bug;
use crate::log::{Log, Write};

/// Seqnos that a node acknowledged at the term of an active copy.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Acknowledged {
    pub(crate) memory: u64,
    pub(crate) disk: u64,
}

/// A write that its client waits for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pending {
    pub(crate) number: u64,
    pub(crate) seqno: u64,
    pub(crate) to_disk: bool,
    pub(crate) told: bool,
}

impl Write {
    /// What its client waits for.
    fn pending(&self, seqno: u64) -> Option<Pending> {
        self.durable.then_some(Pending {
            number: self.number,
            seqno,
            to_disk: self.to_disk,
            told: false,
        })
    }
}

/// A replica asks for changes, and acknowledges what it has.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pull {
    pub(crate) vb: Vb,
    pub(crate) term: u64,
    /// Which stream of the replica it is of.
    pub(crate) stream: u64,
    /// What it has of the stream; `None` before it was opened.
    pub(crate) has: Option<Acknowledged>,
    /// Its high seqno.
    pub(crate) high: u64,
    /// When the newest changes of this term that it took were sent.
    pub(crate) echo_ms: Option<u64>,
}

/// Changes of an active copy.
#[derive(Clone, Debug)]
pub(crate) struct Changes {
    pub(crate) vb: Vb,
    pub(crate) term: u64,
    pub(crate) stream: u64,
    pub(crate) log: Rc<Log>,
    pub(crate) sent_ms: u64,
}

#[derive(Clone, Debug)]
pub(crate) struct SimCopy {
    pub(crate) role: Role,
    pub(crate) term: u64,
    pub(crate) stored_term: u64,
    pub(crate) sealed: bool,
    pub(crate) follows: Option<NodeId>,
    /// The number of its stream; a stream takes nothing that was sent to an older one.
    pub(crate) stream: u64,
    pub(crate) opened: bool,
    pub(crate) echo_ms: Option<u64>,
    pub(crate) topology: Option<Topology>,
    pub(crate) since_phase: u64,
    pub(crate) log: Rc<Log>,
    pub(crate) persisted: u64,
    pub(crate) acknowledged: BTreeMap<NodeId, Acknowledged>,
    pub(crate) confirmed: BTreeMap<NodeId, u64>,
    /// The streams of replicas.
    pub(crate) streams: BTreeMap<NodeId, u64>,
    pub(crate) pending: Vec<Pending>,
    /// The term at which a copy that was active still sends what it has.
    pub(crate) drains: Option<u64>,
    pub(crate) condition: Condition,
    /// Rows up to this one cannot be sent on a new stream while the copy is damaged.
    pub(crate) damaged_at: u64,
}

impl SimCopy {
    pub(crate) fn new(term: u64) -> Self {
        Self {
            role: Role::Replica,
            term,
            stored_term: term,
            sealed: false,
            follows: None,
            stream: 0,
            opened: false,
            echo_ms: None,
            topology: None,
            since_phase: 0,
            log: Rc::default(),
            persisted: 0,
            acknowledged: BTreeMap::new(),
            confirmed: BTreeMap::new(),
            streams: BTreeMap::new(),
            pending: Vec::new(),
            drains: None,
            condition: Condition::Whole,
            damaged_at: 0,
        }
    }

    pub(crate) fn is_active(&self) -> bool {
        self.role == Role::Active
    }

    /// Whether one copy is all that the vBucket has, or shall have.
    pub(crate) fn is_alone(&self) -> bool {
        self.topology.is_some_and(|topology| {
            let to = topology.change.map(|change| change.0);
            let mut chains = to.into_iter().chain([topology.chain]);
            chains.any(|chain| chain.nodes().len() == 1)
        })
    }

    pub(crate) fn to_agent(&self, bug: Option<Bug>) -> Copy {
        let on_disk = |node: NodeId| self.acknowledged.get(&node).map(|has| has.disk);
        let progress = MoveProgress {
            high: self.log.high(),
            since_phase: self.since_phase,
            on_disk,
        };
        let skipped = bug == Some(Bug::CatchUpSkipped);
        let ready = |topology: Topology| skipped || topology.is_ready(&progress);
        Copy {
            role: self.role,
            term: self.term,
            sealed: self.sealed,
            complete: self.drains.is_some(),
            follows: self.follows,
            topology: self.topology,
            position: match self.condition {
                Condition::Unreadable => Position::default(),
                _ => self.log.position(),
            },
            ready: self.topology.is_some_and(ready),
            condition: self.condition,
        }
    }

    /// Ends what an active copy does.
    pub(crate) fn step_down(&mut self) {
        self.role = Role::Replica;
        self.topology = None;
        self.follows = None;
        self.opened = false;
        self.acknowledged.clear();
        self.confirmed.clear();
        self.streams.clear();
        self.pending.clear();
        self.drains = None;
    }

    /// Serves no more, and takes nothing more; it still sends what it has.
    pub(crate) fn stop(&mut self) {
        let drains = self.is_active().then_some(self.term);
        let drains = drains.or(self.drains);
        self.step_down();
        self.drains = drains;
    }

    pub(crate) fn seal(&mut self, term: u64) {
        self.stop();
        self.term = term;
        self.sealed = true;
    }

    pub(crate) fn activate(&mut self, me: NodeId, topology: Topology) {
        self.step_down();
        self.role = Role::Active;
        self.sealed = false;
        let seqno = self.log.high();
        let entry = (self.term, seqno);
        Rc::make_mut(&mut self.log).entries.push(entry);
        self.set_topology(topology);
        self.note_own(me);
        // Older prepares are acknowledged when a majority has them, and the failover entry.
        let writes = self.log.writes.iter().zip(1..);
        let pending = |(write, seqno): (&Write, u64)| write.pending(seqno);
        self.pending = writes.filter_map(pending).collect();
    }

    pub(crate) fn set_topology(&mut self, topology: Topology) {
        let phase = |of: Option<Topology>| of.and_then(|of| of.change).map(|change| change.1);
        if phase(self.topology) != phase(Some(topology)) {
            self.since_phase = self.log.high();
        }
        self.topology = Some(topology);
        let there = |node: &NodeId| holds(&topology, *node);
        self.acknowledged.retain(|node, _| there(node));
        self.confirmed.retain(|node, _| there(node));
    }

    /// What an active copy has itself counts as acknowledged.
    pub(crate) fn note_own(&mut self, me: NodeId) {
        let (memory, disk) = (self.log.high(), self.persisted);
        self.acknowledged.insert(me, Acknowledged { memory, disk });
    }

    pub(crate) fn follow(&mut self, term: u64, from: NodeId) {
        self.step_down();
        self.term = term;
        self.sealed = false;
        self.follows = Some(from);
        self.stream += 1;
        self.echo_ms = None;
    }

    pub(crate) fn write(&mut self, me: NodeId, write: Write) {
        Rc::make_mut(&mut self.log).writes.push(write);
        self.note_own(me);
        self.pending.extend(write.pending(self.log.high()));
    }

    /// Takes what a replica says; returns whether it is answered.
    pub(crate) fn pulled(&mut self, from: NodeId, pull: &Pull) -> bool {
        let known = self.topology.is_some_and(|topology| holds(&topology, from));
        let opens = self.streams.get(&from) != Some(&pull.stream);
        if self.condition == Condition::Damaged && opens && pull.high < self.damaged_at {
            return false;
        }
        if known && self.is_active() && self.term == pull.term {
            self.streams.insert(from, pull.stream);
            if let Some(has) = pull.has {
                let known = self.acknowledged.entry(from).or_default();
                known.memory = known.memory.max(has.memory);
                known.disk = known.disk.max(has.disk);
            }
            if let Some(echo_ms) = pull.echo_ms {
                let known = self.confirmed.entry(from).or_insert(echo_ms);
                *known = echo_ms.max(*known);
            }
            return true;
        }
        self.drains == Some(pull.term)
    }

    pub(crate) fn pull(&self, vb: Vb) -> Pull {
        let has = Acknowledged {
            memory: self.log.high(),
            disk: self.persisted,
        };
        Pull {
            vb,
            term: self.term,
            stream: self.stream,
            has: self.opened.then_some(has),
            high: self.log.high(),
            echo_ms: self.echo_ms,
        }
    }

    /// Takes changes; returns whether it has more than before.
    pub(crate) fn take_changes(
        &mut self,
        from: NodeId,
        changes: &Changes,
        (changes_max, bug): (usize, Option<Bug>),
    ) -> bool {
        let zombie = bug == Some(Bug::ZombieStreamAccepted) && !self.is_active();
        let log = &changes.log;
        if zombie && changes.term < self.term {
            let ours = &self.log.writes;
            if self.sealed && log.writes.starts_with(ours) && log.writes.len() > ours.len() {
                Rc::make_mut(&mut self.log).follow(log, usize::MAX / 2);
                return true;
            }
            return false;
        }
        if changes.term != self.term || self.follows != Some(from) || changes.stream != self.stream
        {
            return false;
        }
        self.echo_ms = self.echo_ms.max(Some(changes.sent_ms));
        let before = self.log.high();
        let opens = !self.opened;
        if opens {
            Rc::make_mut(&mut self.log).roll_back_to(log);
            self.persisted = self.persisted.min(self.log.high());
            self.opened = true;
        }
        if self.log.writes.len() < log.writes.len() || self.log.entries.len() < log.entries.len() {
            Rc::make_mut(&mut self.log).follow(log, changes_max);
        }
        opens || self.log.high() > before
    }

    /// The node crashed and starts again.
    pub(crate) fn restart(&mut self, bug: Option<Bug>) {
        let (active, sealed) = (self.is_active(), self.sealed);
        let topology = self.topology;
        let persisted = self.persisted;
        Rc::make_mut(&mut self.log).truncate(persisted);
        self.step_down();
        self.sealed = sealed && bug == Some(Bug::RestartedCandidateActivates);
        if bug == Some(Bug::SealForgotten) {
            self.term = self.stored_term;
        }
        if active && bug == Some(Bug::RestartedActiveServes) {
            self.role = Role::Active;
            self.topology = topology;
        }
    }
}

/// Whether a node has, or is to get, a copy.
fn holds(topology: &Topology, node: NodeId) -> bool {
    let to = topology.change.map(|change| change.0);
    topology.chain.holds(node) || to.is_some_and(|to| to.holds(node))
}
