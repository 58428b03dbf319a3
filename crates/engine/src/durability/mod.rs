//! Durable writes of one vBucket: undecided prepares, and the acknowledgements of the nodes.
//!
//! ```text
//!   prepare -> tracked -> acknowledged by a majority -> commit     (active, in seqno order)
//!                      -> timed out                  -> abort
//!   prepare -> tracked -> acknowledged to the active -> commit or abort as it decides   (replica)
//! ```
//!
//! A plain value: the vBucket asks it, and makes the changes that follow.

mod position;
mod prepares;
mod topology;

use model::{Document, DurabilityLevel, Seqno};
pub(crate) use position::{SnapshotEnd, Snapshots};
pub(crate) use prepares::{NEVER, Tracked};
pub(crate) use topology::Topology;

use self::prepares::Prepares;
use crate::mutated::Mutated;

/// Maximum number of nodes outside all chains whose acknowledgements are kept.
const STRANGERS_MAX: usize = 8;

/// Durability requirement of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// Level that must be reached before the write is committed.
    pub level: DurabilityLevel,
    /// Time at which the write is aborted, in nanoseconds of the monotonic clock; `u64::MAX` for
    /// never.
    pub deadline_ns: u64,
}

/// Result of a durable write that had to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decided {
    /// Seqno of its prepare, as in `Outcome::Prepared`.
    pub prepare: Seqno,
    /// Its decision.
    pub decision: Decision,
}

/// Decision about a durable write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The write is committed: it has the requested durability and is visible.
    Committed(Mutated),
    /// The write was aborted, or another node decides: its result is not known here.
    Ambiguous,
}

/// Counters since the vBucket was created or loaded.
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
    /// Whether this node alone is enough while no majority is available.
    falls_back: bool,
    /// Last acknowledged prepare of each other node.
    acks: Vec<(Box<str>, Seqno)>,
    /// Last prepare that this node acknowledges.
    pub(crate) high_prepared: Seqno,
    pub(crate) high_completed: Seqno,
    pub(crate) snapshots: Snapshots,
    /// Time for which a timer is set; `NEVER` for none.
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

    /// Returns the undecided prepare of this key.
    #[inline]
    pub(crate) fn pending(&self, hash: u64, key: &[u8]) -> Option<&Tracked> {
        self.prepares.find(hash, key)
    }

    /// Whether the key must be hidden from readers.
    #[inline]
    pub(crate) fn hides(&self, hash: u64, key: &[u8]) -> bool {
        self.prepares.find_hidden(hash, key).is_some()
    }

    pub(crate) fn get(&self, seqno: Seqno) -> Option<&Tracked> {
        self.prepares.get(seqno)
    }

    /// Seqno of the undecided prepare of this key.
    pub(crate) fn prepare_of(&self, hash: u64, key: &[u8]) -> Option<Seqno> {
        Some(self.prepares.find(hash, key)?.document.seqno())
    }

    /// Whether the prepare of this commit is still undecided.
    pub(crate) fn waits(&self, commit: &Document) -> bool {
        let tracked = self.get(commit.prepare_seqno());
        tracked.is_some_and(|tracked| tracked.document.key() == commit.key())
    }

    /// Tracks a prepare. Its seqno must be above all others.
    pub(crate) fn track(&mut self, tracked: Tracked) {
        self.prepares.push(tracked);
    }

    /// Removes the prepare with this seqno, and returns it.
    pub(crate) fn untrack(&mut self, seqno: Seqno) -> Option<Tracked> {
        self.prepares.remove(seqno)
    }

    /// Advances this node's acknowledgement up to the first prepare that must be on disk here and
    /// is not. `persisted` is the last persisted seqno.
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

    /// Returns the oldest prepare above `from` that this node does not acknowledge yet.
    pub(crate) fn first_uncounted(&self, from: Seqno) -> Option<Seqno> {
        let mut beyond = self.prepares.above(self.high_prepared.max(from));
        beyond.next().map(|tracked| tracked.document.seqno())
    }

    /// Returns the oldest prepare with the level `PersistToMajority`.
    pub(crate) fn first_for_disk(&self) -> Option<Seqno> {
        let mut tracked = self.prepares.above(Seqno::ZERO);
        let to_disk = Some(DurabilityLevel::PersistToMajority);
        let first = tracked.find(|tracked| tracked.document.level() == to_disk)?;
        Some(first.document.seqno())
    }

    /// Advances this node's acknowledgement as a replica: see [`Snapshots`].
    pub(crate) fn advance_as_replica(&mut self, persisted: Seqno) {
        let before = self.high_prepared;
        let prepares = self.prepares.above(before);
        let prepares = prepares.map(|tracked| &tracked.document);
        self.high_prepared = self.snapshots.advance(before, prepares, persisted);
    }

    /// Returns the oldest prepare if its level is satisfied: a majority has acknowledged it, or
    /// this node alone where that is enough. `MajorityAndPersistOnActive` always needs this node.
    ///
    /// A prepare that was taken over needs no node that is missing: it cannot be aborted, and a
    /// failover that leaves no majority has made the copies that exist the truth.
    pub(crate) fn first_satisfied(&self) -> Option<Seqno> {
        let tracked = self.prepares.first()?;
        let first = &tracked.document;
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
        } else if tracked.maybe_visible {
            self.topology.is_satisfied_by_existing(own, &other)
        } else {
            self.topology.is_satisfied(own, &other)
        };
        satisfied.then_some(seqno)
    }

    /// Returns the oldest prepare if it timed out.
    pub(crate) fn first_overdue(&self, now_ns: u64) -> Option<Seqno> {
        let first = self.prepares.first()?;
        (first.deadline_ns <= now_ns).then(|| first.document.seqno())
    }

    /// Returns the oldest prepare that may be aborted, if no majority is possible.
    pub(crate) fn first_impossible(&self) -> Option<Seqno> {
        if self.is_possible() {
            return None;
        }
        let mut tracked = self.prepares.above(Seqno::ZERO);
        let lost = tracked.find(|tracked| tracked.deadline_ns != NEVER)?;
        Some(lost.document.seqno())
    }

    /// Returns the time at which to look for timed-out prepares, unless a timer is already set for
    /// it.
    pub(crate) fn arm(&mut self) -> Option<u64> {
        let first = self.prepares.first()?.deadline_ns;
        if first == NEVER || self.armed_ns <= first {
            return None;
        }
        self.armed_ns = first;
        Some(first)
    }

    /// Records that the timer fired.
    pub(crate) fn disarm(&mut self) {
        self.armed_ns = NEVER;
    }

    /// Whether a majority of nodes exists, or is not needed.
    pub(crate) fn is_possible(&self) -> bool {
        self.falls_back || self.topology.is_possible()
    }

    /// Sets whether this node alone is enough while no majority is available.
    pub(crate) fn set_falls_back(&mut self, falls_back: bool) {
        self.falls_back = falls_back;
    }

    pub(crate) fn topology(&self) -> &Topology {
        &self.topology
    }

    /// Sets the replication topology; `None` if the text is not a topology.
    pub(crate) fn set_topology(&mut self, text: &str) -> Option<()> {
        self.topology = Topology::parse(text)?;
        Some(())
    }

    /// Records the acknowledgement of a node, also of one that no chain names yet.
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

    /// Last prepare that a node acknowledged.
    pub(crate) fn acknowledged(&self, node: &str) -> Seqno {
        let mut acks = self.acks.iter();
        acks.find(|(name, _)| **name == *node)
            .map_or(Seqno::ZERO, |(_, seqno)| *seqno)
    }

    /// Seqnos of the undecided prepares, ascending.
    pub(crate) fn seqnos(&self) -> impl Iterator<Item = Seqno> {
        let prepares = self.prepares.above(Seqno::ZERO);
        prepares.map(|tracked| tracked.document.seqno())
    }

    /// Takes over the prepares of a previous active node: they have no deadline, and that node may
    /// have committed them.
    ///
    /// Resets this node's own acknowledgement: as a replica it needed less on disk.
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

    /// Leaves the decisions to another node; readers see the committed documents.
    pub(crate) fn hand_over(&mut self) {
        self.prepares.stay(false);
        self.acks.clear();
        self.armed_ns = NEVER;
    }

    /// Number of undecided prepares.
    pub(crate) fn len(&self) -> usize {
        self.prepares.len()
    }

    /// Bytes of the prepares and their containers.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.prepares.memory_bytes()
    }
}
