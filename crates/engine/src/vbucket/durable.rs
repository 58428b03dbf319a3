//! Durable writes: prepared and decided on the active vBucket, applied on a replica.

use model::{Document, Draft, DurabilityLevel, Kind, Meta, Now, Seqno, VbState};

use super::change::TableChange;
use super::partition::HEAT_WRITTEN;
use super::{Applied, VBucket};
use crate::checkpoint::{CheckpointKind, ReplicaError};
use crate::durability::{Decided, Decision, Durability, NEVER, Requirement, SnapshotEnd, Tracked};
use crate::error::OpError;
use crate::mutated::Mutated;
use crate::table::TablePlace;
use crate::types::Outcome;

/// Statistics of the durable writes of a vBucket.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DurabilityStats {
    /// Number of undecided prepares.
    pub tracked: u64,
    /// Last prepare that this node acknowledges.
    pub high_prepared: Seqno,
    /// Last decided prepare.
    pub high_completed: Seqno,
    /// Last undecided prepare.
    pub last_tracked: Seqno,
    /// Last commit, by the seqno of its prepare.
    pub last_committed: Seqno,
    /// Last abort, by the seqno of its prepare.
    pub last_aborted: Seqno,
    /// The chains of the topology; none on a single node.
    pub chains: Vec<DurabilityChain>,
}

/// A chain of the topology: the existing nodes, with the last prepare that each has acknowledged.
pub type DurabilityChain = Vec<(String, Seqno)>;

impl VBucket {
    /// Returns the requirement that a write must satisfy.
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

    /// Refuses a change of a key with an undecided durable write.
    #[inline]
    pub(super) fn check_undecided(&self, place: TablePlace, key: &[u8]) -> Result<(), OpError> {
        match self.durability.pending(place.hash, key) {
            None => Ok(()),
            Some(prepare) if prepare.maybe_visible => Err(OpError::SyncWriteReCommitInProgress),
            Some(_) => Err(OpError::SyncWriteInProgress),
        }
    }

    /// Refuses to read a key if it is unknown whether its prepare was committed.
    #[inline]
    pub(super) fn check_readable(&self, place: TablePlace, key: &[u8]) -> Result<(), OpError> {
        if self.durability.hides(place.hash, key) {
            return Err(OpError::SyncWriteReCommitInProgress);
        }
        Ok(())
    }

    /// Begins a checked durable write.
    pub(super) fn prepare(
        &mut self,
        place: TablePlace,
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
            TableChange::Prepare {
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

    /// Commits all prepares that can be committed, in order. Does nothing unless active.
    ///
    /// Cost: O(1) for each commit, and a copy of its value.
    fn decide(&mut self) {
        if self.state != VbState::Active {
            return;
        }
        // A node without replicas needs no elections, so its history need not be on disk.
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
        self.change(document.clone(), TableChange::Commit(place));
        self.completed(&prepare);
        self.durability.counts.committed += 1;
        self.durability.counts.last_committed = seqno;
        Some(document)
    }

    /// Counts a decided prepare as held by the log alone.
    fn completed(&mut self, prepare: &Document) {
        self.checkpoints.note_evicted(prepare);
        self.note_completed(prepare.seqno());
    }

    /// Records that every prepare up to `seqno` was decided.
    pub(super) fn note_completed(&mut self, seqno: Seqno) {
        self.durability.high_completed = self.durability.high_completed.max(seqno);
    }

    /// Aborts the tracked prepare of `seqno`, and notifies its client.
    pub(super) fn abort_and_tell(&mut self, seqno: Seqno) {
        let at = self.high_seqno.next();
        let Some(tracked) = self.durability.untrack(seqno) else {
            return;
        };
        let prepare = &tracked.document;
        self.change(prepare.aborted(at), TableChange::Abort(Some(prepare)));
        self.outbox.decided.push(Decided {
            prepare: seqno,
            decision: Decision::Ambiguous,
        });
    }

    /// Aborts timed-out durable writes, oldest first; stops at the first that may still wait, so
    /// later ones wait as well. Then commits the prepares that they blocked.
    ///
    /// Call at [`Outbox::deadline_ns`](crate::Outbox::deadline_ns); extra calls do no harm.
    ///
    /// Cost: O(1) for each decision.
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

    /// Records that a replica has everything up to the prepare `seqno`, with the durability that
    /// each prepare asks for. Also kept for nodes that the topology does not name yet. Commits the
    /// prepares that have a majority.
    ///
    /// # Errors
    /// `NotMyVbucket` unless active; `InvalidArgument` above the high seqno.
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

    /// Whether there are undecided durable writes.
    pub fn has_undecided(&self) -> bool {
        self.durability.len() > 0
    }

    /// Last prepare up to which this node counts itself.
    pub fn high_prepared_seqno(&self) -> Seqno {
        self.durability.high_prepared
    }

    /// Last prepare that a replica acknowledges to the active node.
    ///
    /// An active copy may commit prepares of earlier active copies only once a majority has reached
    /// the start of its history (Figure 8 of the Raft paper). Until then a replica belongs to an
    /// older history, and may lose an election to a copy that has none of what it acknowledged.
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

    /// Last persisted seqno, if the newest history is persisted as well; else zero.
    fn persisted_in_history(&self) -> Seqno {
        if self.record_flushed >= self.history_version {
            self.durable.flushed
        } else {
            Seqno::ZERO
        }
    }

    /// Seqno up to which this copy has every prepare with the durability that it asks for. Unlike
    /// the high prepared seqno, it is equal for copies that reached the same history in different
    /// ways.
    pub fn prepared_until(&self) -> Seqno {
        let before = |seqno: Seqno| Seqno(seqno.0 - 1);
        // An active copy counts prepares that are on disk only once its history is there too.
        let on_disk = match self.state {
            VbState::Active => self.durable.flushed,
            _ => Seqno::ZERO,
        };
        let uncounted = self.durability.first_uncounted(on_disk);
        uncounted.map_or(self.high_seqno, before)
    }

    /// Advances the acknowledgement after a successful flush; `before` is the one before it.
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

    /// Commits the prepare of `key` with seqno `prepare` at the seqno `at`, as the active vBucket
    /// decided.
    ///
    /// # Errors
    /// Those of [`VBucket::apply`]; `UnknownPrepare`, then the stream must restart.
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

    /// Aborts a prepare as the active vBucket decided. The prepare is missing if a snapshot left it
    /// out: the abort is kept nevertheless.
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

    /// Applies a checked prepare or abort of the active vBucket. Removes the tracked prepare of the
    /// same key: the abort decides it, or a snapshot from a store left out its decision.
    pub(super) fn follow_prepared(&mut self, place: TablePlace, document: &Document) {
        let waiting = self.durability.prepare_of(place.hash, document.key());
        let aborts = document.kind() == Kind::Abort;
        let gone = waiting.filter(|seqno| !aborts || *seqno == document.prepare_seqno());
        let gone = gone.and_then(|seqno| self.durability.untrack(seqno));
        let gone = gone.map(|tracked| tracked.document);
        let change = if aborts {
            TableChange::Abort(gone.as_ref())
        } else {
            self.outbox.hurry |= document.level() == Some(DurabilityLevel::PersistToMajority);
            TableChange::Prepare {
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

    /// Removes the prepare that a committed change of the active vBucket decides, and returns it.
    /// Works also if the change does not name the prepare, as in a snapshot from a store.
    pub(super) fn follow_committed(&mut self, place: TablePlace, key: &[u8]) -> Option<Document> {
        let seqno = self.durability.prepare_of(place.hash, key)?;
        let prepare = self.durability.untrack(seqno)?.document;
        self.completed(&prepare);
        self.durability.counts.committed += 1;
        self.durability.counts.last_committed = seqno;
        Some(prepare)
    }

    /// Records a complete snapshot.
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

    // --- Lifecycle ---

    /// Loads a row of the prepare namespace from the store, at the start.
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

    /// Begins to decide prepares: the vBucket became active.
    pub(super) fn become_decider(&mut self) {
        self.durability.take_over();
    }

    /// Stops deciding prepares: the vBucket is not active any more.
    pub(super) fn cease_to_decide(&mut self) {
        let before = self.acknowledges();
        let waiting: Vec<Seqno> = self.durability.seqnos().collect();
        self.durability.hand_over();
        if !waiting.is_empty() {
            // All prepares of this node are here; some may still have to be persisted.
            self.durability.snapshots.arrived(SnapshotEnd {
                end: self.high_seqno,
                disk: false,
                high_prepared: None,
            });
            self.count_as_replica(before);
        }
        let results = waiting.into_iter().map(|prepare| Decided {
            prepare,
            decision: Decision::Ambiguous,
        });
        self.outbox.decided.extend(results);
    }

    /// Sets the topology; an invalid text counts as an empty one.
    pub(super) fn set_topology(&mut self, text: String) {
        self.topology = text.into_boxed_str();
        if self.durability.set_topology(&self.topology).is_none() {
            self.topology = "".into();
            self.durability.set_topology("");
        }
    }

    /// Decides prepares again after a change of the state or the topology: aborts those for which
    /// no majority is possible, commits those that have one.
    pub(super) fn decide_anew(&mut self) {
        while self.state == VbState::Active
            && let Some(seqno) = self.durability.first_impossible()
        {
            self.abort_and_tell(seqno);
        }
        self.decide();
    }

    /// Counts the prepares of a loaded replica; its last snapshot counts if it is complete.
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

    /// Whether `text` is a topology that [`VBucket::set_state`] accepts.
    pub fn is_topology(text: &str) -> bool {
        crate::durability::Topology::parse(text).is_some()
    }

    /// Statistics of the durable writes.
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
