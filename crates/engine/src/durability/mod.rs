//! Durable writes of one vBucket: those that wait to be decided, and the nodes that have them already.
//!
//! ```text
//!   prepare -> tracked -> acknowledged by a majority -> commit     (active, in seqno order)
//!                      -> its time is over           -> abort
//!   prepare -> tracked -> acknowledged to the active -> commit or abort as it says   (replica)
//! ```
//!
//! A plain value as everything here: the vBucket asks, and makes the changes that follow.

mod position;
mod prepares;
mod topology;

use model::{Document, DurabilityLevel, Seqno};
pub(crate) use position::{SnapshotEnd, Snapshots};
pub(crate) use prepares::{NEVER, Tracked};
pub(crate) use topology::Topology;

use self::prepares::Prepares;
use crate::mutated::Mutated;

/// Nodes whose acknowledgements are remembered though no chain names them.
const STRANGERS_MAX: usize = 8;

/// What a durable write asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// How much must have happened before it is committed.
    pub level: DurabilityLevel,
    /// When it is given up, on the monotonic clock in nanoseconds; `u64::MAX` for never.
    pub deadline_ns: u64,
}

/// What became of a durable write that had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Names the write: the seqno that `Outcome::Prepared` told.
    pub prepare: Seqno,
    /// The end of it.
    pub decision: Decision,
}

/// The end of a durable write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is as durable as was asked, and visible.
    Committed(Mutated),
    /// It was given up, or another node decides now: whether it happened is not known here.
    Ambiguous,
}

/// What was counted since the vBucket was made or loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) accepted: u64,
    pub(crate) committed: u64,
    pub(crate) aborted: u64,
    pub(crate) last_committed: Seqno,
    pub(crate) last_aborted: Seqno,
}

/// The durable writes of one vBucket. Allocates nothing while there are none.
#[derive(Debug, Default)]
pub(crate) struct Durability {
    prepares: Prepares,
    topology: Topology,
    /// Whether this node alone is enough where no majority is there.
    falls_back: bool,
    /// How far each other node has come.
    acks: Vec<(Box<str>, Seqno)>,
    /// How far this node has come.
    pub(crate) high_prepared: Seqno,
    pub(crate) high_completed: Seqno,
    pub(crate) snapshots: Snapshots,
    /// For when a timer is set; `NEVER` for none.
    armed_ns: u64,
    pub(crate) counts: Counts,
}

impl Durability {
    pub(crate) fn new(high_prepared: Seqno, high_completed: Seqno, topology: &str) -> Self {
        Self {
            high_prepared,
            high_completed,
            topology: Topology::parse(topology).unwrap_or_default(),
            armed_ns: NEVER,
            ..Self::default()
        }
    }

    /// The prepare of this key that waits, if one does.
    #[inline]
    pub(crate) fn pending(&self, hash: u64, key: &[u8]) -> Option<&Tracked> {
        self.prepares.find(hash, key)
    }

    /// Whether readers must not be told about this key.
    #[inline]
    pub(crate) fn hides(&self, hash: u64, key: &[u8]) -> bool {
        self.prepares.find_hidden(hash, key).is_some()
    }

    pub(crate) fn get(&self, seqno: Seqno) -> Option<&Tracked> {
        self.prepares.get(seqno)
    }

    /// Seqno of the prepare that waits for this key.
    pub(crate) fn prepare_of(&self, hash: u64, key: &[u8]) -> Option<Seqno> {
        Some(self.prepares.find(hash, key)?.document.seqno())
    }

    /// Whether the prepare that this change commits waits.
    pub(crate) fn waits(&self, commit: &Document) -> bool {
        let tracked = self.get(commit.prepare_seqno());
        tracked.is_some_and(|tracked| tracked.document.key() == commit.key())
    }

    /// Tracks a prepare whose seqno is above all others.
    pub(crate) fn track(&mut self, tracked: Tracked) {
        self.prepares.push(tracked);
    }

    /// Takes out the prepare of this seqno.
    pub(crate) fn untrack(&mut self, seqno: Seqno) -> Option<Tracked> {
        self.prepares.remove(seqno)
    }

    /// Counts this node as far as it may be counted: up to the first prepare that must be on
    /// disk here and is not. `persisted` is what is.
    pub(crate) fn advance_as_active(&mut self, persisted: Seqno) {
        for tracked in self.prepares.above(self.high_prepared) {
            let document = &tracked.document;
            let needs_disk = document
                .level()
                .is_some_and(DurabilityLevel::persists_on_active);
            if needs_disk && document.seqno() > persisted {
                break;
            }
            self.high_prepared = document.seqno();
        }
    }

    /// The oldest prepare above `from` that this node is not counted for.
    pub(crate) fn first_uncounted(&self, from: Seqno) -> Option<Seqno> {
        let mut beyond = self.prepares.above(self.high_prepared.max(from));
        beyond.next().map(|tracked| tracked.document.seqno())
    }

    /// The oldest prepare that must be on disk on each node that counts.
    pub(crate) fn first_for_disk(&self) -> Option<Seqno> {
        let mut tracked = self.prepares.above(Seqno::ZERO);
        let to_disk = Some(DurabilityLevel::PersistToMajority);
        let first = tracked.find(|tracked| tracked.document.level() == to_disk)?;
        Some(first.document.seqno())
    }

    /// Counts this node as a replica: see [`Snapshots`].
    pub(crate) fn advance_as_replica(&mut self, persisted: Seqno) {
        let before = self.high_prepared;
        let prepares = self.prepares.above(before);
        let prepares = prepares.map(|tracked| &tracked.document);
        self.high_prepared = self.snapshots.advance(before, prepares, persisted);
    }

    /// The oldest prepare, if a majority has it, or this node where it is enough; and this node itself, if it
    /// must be on disk here, however many others there are.
    pub(crate) fn first_satisfied(&self) -> Option<Seqno> {
        let first = &self.prepares.first()?.document;
        let seqno = first.seqno();
        let other = |name: &str| {
            let mut acks = self.acks.iter();
            acks.any(|(node, acked)| **node == *name && *acked >= seqno)
        };
        let own = self.high_prepared >= seqno;
        if !own && first.level() == Some(DurabilityLevel::MajorityAndPersistOnActive) {
            return None;
        }
        let satisfied = if self.falls_back && !self.topology.is_possible() {
            own
        } else {
            self.topology.is_satisfied(own, &other)
        };
        satisfied.then_some(seqno)
    }

    /// The oldest prepare, if its time is over.
    pub(crate) fn first_overdue(&self, now_ns: u64) -> Option<Seqno> {
        let first = self.prepares.first()?;
        (first.deadline_ns <= now_ns).then(|| first.document.seqno())
    }

    /// The oldest prepare that may be given up because no majority can be had.
    pub(crate) fn first_impossible(&self) -> Option<Seqno> {
        if self.is_possible() {
            return None;
        }
        let mut tracked = self.prepares.above(Seqno::ZERO);
        let lost = tracked.find(|tracked| tracked.deadline_ns != NEVER)?;
        Some(lost.document.seqno())
    }

    /// When prepares whose time is over are to be looked for, if no timer is set for then.
    pub(crate) fn arm(&mut self) -> Option<u64> {
        let first = self.prepares.first()?.deadline_ns;
        if first == NEVER || self.armed_ns <= first {
            return None;
        }
        self.armed_ns = first;
        Some(first)
    }

    /// The timer fired.
    pub(crate) fn disarm(&mut self) {
        self.armed_ns = NEVER;
    }

    /// Whether a majority of nodes is there at all, or is not needed.
    pub(crate) fn is_possible(&self) -> bool {
        self.falls_back || self.topology.is_possible()
    }

    /// Sets whether this node alone is enough where no majority is there.
    pub(crate) fn set_falls_back(&mut self, falls_back: bool) {
        self.falls_back = falls_back;
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Takes over which nodes hold the vBucket; `None` when the text is no topology.
    pub(crate) fn set_topology(&mut self, text: &str) -> Option<()> {
        self.topology = Topology::parse(text)?;
        Some(())
    }

    /// Remembers how far a node has come, also one that no chain names yet.
    pub(crate) fn acknowledge(&mut self, node: &str, seqno: Seqno) {
        if let Some((_, acked)) = self.acks.iter_mut().find(|(name, _)| **name == *node) {
            *acked = seqno.max(*acked);
            return;
        }
        let topology = &self.topology;
        let stranger = |name: &str| !topology.knows(name);
        let strangers = self.acks.iter().filter(|(name, _)| stranger(name)).count();
        if stranger(node) && strangers >= STRANGERS_MAX {
            let oldest = self.acks.iter().position(|(name, _)| stranger(name));
            oldest.map(|index| self.acks.remove(index));
        }
        self.acks.push((node.into(), seqno));
    }

    /// How far a node has come.
    pub(crate) fn acknowledged(&self, node: &str) -> Seqno {
        let mut acks = self.acks.iter();
        acks.find(|(name, _)| **name == *node)
            .map_or(Seqno::ZERO, |(_, seqno)| *seqno)
    }

    /// Seqnos of the prepares that wait, ascending.
    pub(crate) fn seqnos(&self) -> impl Iterator<Item = Seqno> {
        let prepares = self.prepares.above(Seqno::ZERO);
        prepares.map(|tracked| tracked.document.seqno())
    }

    /// What was tracked is taken over from an earlier active: it has no deadline, and may have
    /// been committed there.
    ///
    /// As the active copy it counts itself anew: a replica needs less on disk.
    pub(crate) fn take_over(&mut self) {
        if let Some(first) = self.prepares.first() {
            let before = Seqno(first.document.seqno().0 - 1);
            self.high_prepared = self.high_prepared.min(before);
        }
        self.prepares.stay(true);
        self.acks.clear();
        self.snapshots = Snapshots::default();
        self.armed_ns = NEVER;
    }

    /// Another node decides now; readers see the committed documents.
    pub(crate) fn hand_over(&mut self) {
        self.prepares.stay(false);
        self.acks.clear();
        self.armed_ns = NEVER;
    }

    /// Prepares that wait.
    pub(crate) fn len(&self) -> usize {
        self.prepares.len()
    }

    /// Bytes of the prepares and of what holds them.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.prepares.memory_bytes()
    }
}
