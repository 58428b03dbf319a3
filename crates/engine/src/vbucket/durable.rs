//! Durable writes: prepared here, decided here while active, followed as a replica.

use model::{Document, Draft, DurabilityLevel, Kind, Meta, Now, Seqno, VbState};

use super::change::Change;
use super::partition::HEAT_WRITTEN;
use super::{Applied, VBucket};
use crate::checkpoint::{CheckpointKind, ReplicaError};
use crate::durability::{Decided, Decision, Durability, NEVER, Requirement, SnapshotEnd, Tracked};
use crate::error::OpError;
use crate::mutated::Mutated;
use crate::table::Place;
use crate::types::Outcome;

/// Figures of the durable writes of a vBucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurabilityStats {
    /// Prepares that wait to be decided.
    pub tracked: u64,
    /// How far this node counts itself for prepares.
    pub high_prepared: Seqno,
    /// The newest prepare that was decided.
    pub high_completed: Seqno,
    /// The newest prepare that waits.
    pub last_tracked: Seqno,
    /// The newest commit, by the seqno of its prepare.
    pub last_committed: Seqno,
    /// The newest abort, by the seqno of its prepare.
    pub last_aborted: Seqno,
    /// The chains of the topology; none on a single node.
    pub chains: Vec<DurabilityChain>,
}

/// A chain of the topology: the nodes that are there, with what each has acknowledged.
pub type DurabilityChain = Vec<(String, Seqno)>;

impl VBucket {
    /// What a write must satisfy.
    pub(super) fn requirement(
        &self,
        asked: Option<Requirement>,
        now: Now,
    ) -> Result<Option<Requirement>, OpError> {
        let Some(mut requirement) = asked.or_else(|| self.least_requirement(now)) else {
            return Ok(None);
        };
        if let Some(least) = self.config.durability_min {
            requirement.level = requirement.level.max(least);
        }
        if requirement.level > self.config.durability_max {
            return Err(OpError::DurabilityInvalidLevel);
        }
        if !self.durability.is_possible() {
            return Err(OpError::DurabilityImpossible);
        }
        Ok(Some(requirement))
    }

    fn least_requirement(&self, now: Now) -> Option<Requirement> {
        let level = self.config.durability_min?;
        let timeout_ns = self.config.durability_timeout_ms.saturating_mul(1_000_000);
        Some(Requirement {
            level,
            deadline_ns: now.mono_ns.saturating_add(timeout_ns),
        })
    }

    /// Refuses a change of a key for which a durable write waits to be decided.
    #[inline]
    pub(super) fn check_undecided(&self, place: Place, key: &[u8]) -> Result<(), OpError> {
        match self.durability.pending(place.hash, key) {
            None => Ok(()),
            Some(prepare) if prepare.maybe_visible => Err(OpError::SyncWriteReCommitInProgress),
            Some(_) => Err(OpError::SyncWriteInProgress),
        }
    }

    /// Refuses to read a key whose newest document may be the committed one or the prepared one.
    #[inline]
    pub(super) fn check_readable(&self, place: Place, key: &[u8]) -> Result<(), OpError> {
        if self.durability.hides(place.hash, key) {
            return Err(OpError::SyncWriteReCommitInProgress);
        }
        Ok(())
    }

    /// Begins a durable write that was checked.
    pub(super) fn prepare(
        &mut self,
        place: Place,
        mut draft: Draft,
        requirement: Requirement,
        now: Now,
    ) -> Outcome<Mutated> {
        let old = self.table.at(place);
        let rev = old.map_or(self.max_deleted_rev, Document::rev) + 1;
        draft.prepare(requirement.level);
        let seqno = self.high_seqno.next();
        let document = draft.stamp(self.hlc.next(now), seqno, rev);
        self.locks.remove(place.hash, document.key());
        let mutated = self.mutated(&document);
        self.change(
            document,
            Change::Prepare {
                hash: place.hash,
                older: None,
                deadline_ns: requirement.deadline_ns,
            },
        );
        self.outbox.hurry |= requirement.level.persists_on_active();
        self.decide();
        let ours = |decided: &mut Decided| decided.prepare == seqno;
        if let Some(Decision::Committed(mutated)) =
            self.outbox.decided.pop_if(ours).map(|one| one.decision)
        {
            return Outcome::Done(mutated);
        }
        self.outbox.deadline_ns = self.durability.arm().or(self.outbox.deadline_ns);
        Outcome::Prepared(mutated)
    }

    /// Commits what can be committed, in order. Does nothing unless active.
    ///
    /// Cost: O(1) for each commit, and a copy of its value.
    fn decide(&mut self) {
        if self.state != VbState::Active {
            return;
        }
        // Where no other node is, none is elected.
        let persisted = if self.durability.topology().is_alone() {
            self.durable.flushed
        } else {
            self.persisted_in_history()
        };
        loop {
            self.durability.advance_as_active(persisted);
            let Some(seqno) = self.durability.first_satisfied() else {
                break;
            };
            let at = self.high_seqno.next();
            let Some(document) = self.commit_prepare(seqno, at) else {
                break;
            };
            self.outbox.decided.push(Decided {
                prepare: seqno,
                decision: Decision::Committed(self.mutated(&document)),
            });
        }
    }

    /// Commits the tracked prepare of `seqno` at the seqno `at`.
    fn commit_prepare(&mut self, seqno: Seqno, at: Seqno) -> Option<Document> {
        let prepare = self.durability.untrack(seqno)?.document;
        let document = prepare.committed(at);
        document.set_heat(HEAT_WRITTEN);
        let place = self.table.place(document.key());
        self.change(document.clone(), Change::Commit(place));
        self.completed(&prepare);
        self.durability.counts.committed += 1;
        self.durability.counts.last_committed = seqno;
        Some(document)
    }

    /// The log alone holds a prepare once it is decided.
    fn completed(&mut self, prepare: &Document) {
        self.checkpoints.note_evicted(prepare);
        self.note_completed(prepare.seqno());
    }

    /// Every prepare up to here was decided.
    pub(super) fn note_completed(&mut self, seqno: Seqno) {
        self.durability.high_completed = self.durability.high_completed.max(seqno);
    }

    /// Gives the tracked prepare of `seqno` up, and tells its client.
    pub(super) fn abort_and_tell(&mut self, seqno: Seqno) {
        let at = self.high_seqno.next();
        let Some(tracked) = self.durability.untrack(seqno) else {
            return;
        };
        let prepare = &tracked.document;
        self.change(prepare.aborted(at), Change::Abort(Some(prepare)));
        self.outbox.decided.push(Decided {
            prepare: seqno,
            decision: Decision::Ambiguous,
        });
    }

    /// Gives up the durable writes whose time is over, oldest first; one that may still wait
    /// keeps those behind it waiting too. Then commits what they were in the way of.
    ///
    /// To be called when [`Outbox::deadline_ns`](crate::Outbox::deadline_ns) says so; too early
    /// or too often does no harm.
    ///
    /// Cost: O(1) for each that is decided.
    pub fn abort_overdue(&mut self, now: Now) {
        self.durability.disarm();
        if self.state == VbState::Active {
            self.decide();
            while let Some(seqno) = self.durability.first_overdue(now.mono_ns) {
                self.abort_and_tell(seqno);
                self.decide();
            }
            self.outbox.deadline_ns = self.durability.arm().or(self.outbox.deadline_ns);
        }
    }

    /// A replica has everything up to the prepare `seqno`, as safely as each asked for. Nodes that
    /// the topology does not name (yet) are remembered. Commits what a majority has.
    ///
    /// # Errors
    /// `NotMyVbucket` unless active; `InvalidArgument` beyond what there is.
    ///
    /// Cost: O(nodes) for each commit that follows.
    pub fn seqno_acknowledged(&mut self, node: &str, seqno: Seqno) -> Result<(), OpError> {
        if self.state != VbState::Active {
            return Err(OpError::NotMyVbucket);
        }
        if seqno > self.high_seqno {
            return Err(OpError::InvalidArgument(
                "acknowledged beyond the high seqno",
            ));
        }
        self.durability.acknowledge(node, seqno);
        self.decide();
        Ok(())
    }

    /// Whether durable writes wait to be decided.
    pub fn has_undecided(&self) -> bool {
        self.durability.len() > 0
    }

    /// How far this node counts itself for prepares.
    pub fn high_prepared_seqno(&self) -> Seqno {
        self.durability.high_prepared
    }

    /// The same of a replica, as it acknowledges it.
    ///
    /// An active copy may commit what earlier ones prepared only once a majority has reached the history that it began
    /// (Figure 8 of the Raft paper): a replica that has not is one of its older histories yet, and may lose an election
    /// against a copy that has nothing of what it acknowledged.
    pub fn acknowledges(&self) -> Seqno {
        let counted = self.durability.high_prepared;
        let begun = self.failover_log.newest().seqno;
        if self.persisted_in_history() >= begun {
            return counted;
        }
        if self.checkpoints.last_complete() < begun {
            return Seqno::ZERO;
        }
        let needs_disk = self.durability.first_for_disk();
        needs_disk.map_or(counted, |first| counted.min(Seqno(first.0 - 1)))
    }

    /// What is on disk here, with the newest history.
    fn persisted_in_history(&self) -> Seqno {
        if self.record_flushed >= self.history_version {
            self.durable.flushed
        } else {
            Seqno::ZERO
        }
    }

    /// Up to where no prepare is missing here, or less safe than it asked for. Other than the high prepared seqno it is
    /// the same for copies that came to the same history on different ways.
    pub fn prepared_until(&self) -> Seqno {
        let before = |seqno: Seqno| Seqno(seqno.0 - 1);
        // An active copy whose history is not on disk yet does not count itself for what is.
        let on_disk = match self.state {
            VbState::Active => self.durable.flushed,
            _ => Seqno::ZERO,
        };
        let uncounted = self.durability.first_uncounted(on_disk);
        uncounted.map_or(self.high_seqno, before)
    }

    /// A flush ended well; until then this node acknowledged up to `before`.
    pub(super) fn prepares_persisted(&mut self, before: Seqno) {
        if self.state == VbState::Active {
            self.decide();
        } else {
            self.count_as_replica(before);
        }
    }

    fn count_as_replica(&mut self, before: Seqno) {
        self.durability.advance_as_replica(self.durable.flushed);
        let counted = self.acknowledges();
        if counted > before {
            self.outbox.high_prepared = Some(counted);
        }
    }

    // --- Replica ---

    /// Commits a prepare as the active vBucket says: the one of `key` at `prepare`, at the seqno
    /// `at`.
    ///
    /// # Errors
    /// Those of [`VBucket::apply`]; `UnknownPrepare`, then the stream must begin anew.
    pub fn apply_commit(
        &mut self,
        key: &[u8],
        prepare: Seqno,
        at: Seqno,
    ) -> Result<Applied, ReplicaError> {
        self.check_follows()?;
        let tracked = self.durability.get(prepare);
        let tracked = tracked.filter(|tracked| tracked.document.key() == key);
        let commit = tracked.map(|tracked| tracked.document.committed(at));
        self.apply(&commit.ok_or(ReplicaError::UnknownPrepare)?)
    }

    /// Gives a prepare up as the active vBucket says. One that is not here was left out of a
    /// snapshot: the abort is kept all the same.
    ///
    /// # Errors
    /// Those of [`VBucket::apply`].
    pub fn apply_abort(
        &mut self,
        key: &[u8],
        prepare: Seqno,
        at: Seqno,
    ) -> Result<Applied, ReplicaError> {
        let cas = self.hlc.max();
        let meta = Meta {
            kind: Kind::Abort,
            seqno: at,
            prepare_seqno: prepare,
            cas,
            expiry: u32::try_from(cas.0 / 1_000_000_000).unwrap_or(u32::MAX),
            ..Meta::default()
        };
        self.apply(&Document::from_parts(key, b"", &meta))
    }

    /// Takes a prepare or an abort of the active vBucket, which was checked. One of the same key
    /// that is here goes: decided by the abort, or in what a snapshot from a store left out.
    pub(super) fn follow_prepared(&mut self, place: Place, document: &Document) {
        let waiting = self.durability.prepare_of(place.hash, document.key());
        let aborts = document.kind() == Kind::Abort;
        let gone = waiting.filter(|seqno| !aborts || *seqno == document.prepare_seqno());
        let gone = gone.and_then(|seqno| self.durability.untrack(seqno));
        let gone = gone.map(|tracked| tracked.document);
        let change = if aborts {
            Change::Abort(gone.as_ref())
        } else {
            self.outbox.hurry |= document.level() == Some(DurabilityLevel::PersistToMajority);
            Change::Prepare {
                hash: place.hash,
                older: gone.as_ref(),
                deadline_ns: NEVER,
            }
        };
        self.change(document.clone(), change);
        if let Some(gone) = gone {
            self.completed(&gone);
        }
    }

    /// The prepare of this key that a committed change of the active vBucket decides: it is not
    /// tracked any more. Also where the change does not say so, as in a snapshot from a store.
    pub(super) fn follow_committed(&mut self, place: Place, key: &[u8]) -> Option<Document> {
        let seqno = self.durability.prepare_of(place.hash, key)?;
        let prepare = self.durability.untrack(seqno)?.document;
        self.completed(&prepare);
        self.durability.counts.committed += 1;
        self.durability.counts.last_committed = seqno;
        Some(prepare)
    }

    /// A snapshot is here as a whole.
    pub(super) fn snapshot_arrived(&mut self) {
        let behind = self.failover_log.newest().seqno > self.checkpoints.open().complete_before;
        let before = if behind {
            Seqno::ZERO
        } else {
            self.acknowledges()
        };
        let disk = self.checkpoints.open().kind != CheckpointKind::Memory;
        self.durability.snapshots.arrived(SnapshotEnd {
            end: self.high_seqno,
            disk,
            high_prepared: self.checkpoints.open().announced_prepared,
        });
        if disk {
            self.note_completed(self.checkpoints.open().prepares.completed);
        }
        self.count_as_replica(before);
    }

    // --- Life ---

    /// Takes a row of the store in the namespace of prepares, at the start.
    pub(super) fn load_prepared(&mut self, document: Document) {
        self.hlc.observe(document.cas());
        if !document.kind().is_prepare() {
            return;
        }
        let hash = self.table.place(document.key()).hash;
        self.durability.track(Tracked {
            document,
            hash,
            deadline_ns: NEVER,
            maybe_visible: false,
        });
    }

    /// The vBucket is active now, and was not: what waits is decided here from now on.
    pub(super) fn become_decider(&mut self) {
        self.durability.take_over();
    }

    /// The vBucket is not active any more: what waits is decided elsewhere.
    pub(super) fn cease_to_decide(&mut self) {
        let before = self.acknowledges();
        let waiting: Vec<Seqno> = self.durability.seqnos().collect();
        self.durability.hand_over();
        if !waiting.is_empty() {
            // What this node prepared is here as a whole; some of it may have to be on disk yet.
            self.durability.snapshots.arrived(SnapshotEnd {
                end: self.high_seqno,
                disk: false,
                high_prepared: None,
            });
            self.count_as_replica(before);
        }
        let told = waiting.into_iter().map(|prepare| Decided {
            prepare,
            decision: Decision::Ambiguous,
        });
        self.outbox.decided.extend(told);
    }

    /// Other nodes hold the vBucket now; a text that is no topology is taken for none.
    pub(super) fn set_topology(&mut self, text: String) {
        self.topology = text.into_boxed_str();
        if self.durability.set_topology(&self.topology).is_none() {
            self.topology = "".into();
            self.durability.set_topology("");
        }
    }

    /// State or topology changed: gives up what no majority can be had for, commits what has
    /// one.
    pub(super) fn decide_anew(&mut self) {
        while self.state == VbState::Active
            && let Some(seqno) = self.durability.first_impossible()
        {
            self.abort_and_tell(seqno);
        }
        self.decide();
    }

    /// A replica that was loaded: its last snapshot counts if it is here as a whole.
    pub(super) fn count_loaded_prepares(&mut self) {
        let snapshot = self.durable.snapshot;
        let whole = if snapshot.end <= self.high_seqno {
            self.high_seqno
        } else {
            snapshot.start
        };
        let last = self.durability.seqnos().take_while(|seqno| *seqno <= whole);
        if let Some(last) = last.last() {
            self.durability.high_prepared = self.durability.high_prepared.max(last);
        }
    }

    /// Whether `text` is a topology that [`VBucket::set_state`] keeps.
    pub fn is_topology(text: &str) -> bool {
        crate::durability::Topology::parse(text).is_some()
    }

    /// Figures of the durable writes.
    ///
    /// Cost: allocates for the names of the nodes.
    pub fn durability_stats(&self) -> DurabilityStats {
        let durability = &self.durability;
        let counts = durability.counts;
        DurabilityStats {
            tracked: durability.len() as u64,
            high_prepared: durability.high_prepared,
            high_completed: durability.high_completed,
            last_tracked: durability.seqnos().last().unwrap_or(Seqno::ZERO),
            last_committed: counts.last_committed,
            last_aborted: counts.last_aborted,
            chains: durability
                .topology()
                .chains()
                .map(|nodes| chain_stats(nodes, durability))
                .collect(),
        }
    }
}

fn chain_stats(nodes: &[Option<Box<str>>], durability: &Durability) -> DurabilityChain {
    let there = nodes.iter().enumerate();
    there
        .filter_map(|(index, node)| {
            let node = node.as_ref()?;
            let acked = if index == 0 {
                durability.high_prepared
            } else {
                durability.acknowledged(node)
            };
            Some((node.to_string(), acked))
        })
        .collect()
}
