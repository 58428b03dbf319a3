//! Replica vBuckets: their position, the changes they receive, rollback and promotion.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use collections::SystemEvent;
use engine::{Applied, OpError, ReplicaError, SnapshotMarker, VBucket};
use model::{Document, FailoverLog, Seqno, SnapshotRange, VbId, VbRecord, VbState, VbUuid};
use storage::{ErrorKind, KvStore, StoreError};

use crate::bucket::Bucket;
use crate::stats::Counters;
use crate::subscribers::ReadySet;

/// Rows loaded after a rollback between two checks of memory.
const ROWS_PER_LOOK: usize = 256;

/// Position of a replica vBucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaPosition {
    /// Seqno of its newest change.
    pub high: Seqno,
    /// Received part of the announced snapshot.
    pub snapshot: SnapshotRange,
    /// Its failover log.
    pub failover_log: FailoverLog,
}

/// Decision of the active vBucket about a prepare.
#[derive(Clone, Copy, Debug)]
pub struct PrepareEnd<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The seqno of the prepare.
    pub prepare: Seqno,
    /// The seqno of the decision.
    pub at: Seqno,
    /// Whether the prepare was committed; otherwise it was aborted.
    pub committed: bool,
}

impl<S: KvStore> Bucket<S> {
    /// Makes every active vBucket a replica, for a bucket that is to follow another one. Call this
    /// before the workers start.
    ///
    /// Without `demote`, active vBuckets with changes are an error, and nothing is changed.
    ///
    /// # Errors
    /// The number of active vBuckets with changes of their own.
    pub fn become_replica(&self, demote: bool, uuid: VbUuid) -> Result<(), usize> {
        let ids = || (0..self.vbuckets()).map(VbId);
        let own = |vbucket: &mut VBucket| {
            vbucket.state() == VbState::Active && vbucket.high_seqno() != Seqno::ZERO
        };
        let active = ids()
            .filter(|id| self.with_vbucket(*id, own) == Some(true))
            .count();
        if active > 0 && !demote {
            return Err(active);
        }
        for id in ids() {
            self.with_vbucket(id, |vbucket| {
                if vbucket.state() == VbState::Active {
                    vbucket.set_state(VbState::Replica, Some(String::new()), uuid);
                }
            });
        }
        Ok(())
    }

    /// Returns the number of vBuckets that have any change.
    pub fn changed_vbuckets(&self) -> usize {
        let changed = |id: &VbId| {
            let high = self.with_vbucket(*id, |vbucket| vbucket.high_seqno());
            high.is_some_and(|high| high != Seqno::ZERO)
        };
        (0..self.vbuckets()).map(VbId).filter(changed).count()
    }

    /// Makes every replica active, with a new history. Call this before the workers start.
    pub fn become_active(&self, uuid: VbUuid) {
        for id in (0..self.vbuckets()).map(VbId) {
            self.with_vbucket(id, |vbucket| {
                if vbucket.state() == VbState::Replica {
                    vbucket.set_state(VbState::Active, Some(String::new()), uuid);
                }
            });
        }
    }

    /// Returns the position of a replica vBucket, from which a stream is requested. `None` if it is
    /// neither a replica nor pending.
    pub fn replica_position(&self, id: VbId) -> Option<ReplicaPosition> {
        let position = |vbucket: &mut VBucket| {
            let follows = matches!(vbucket.state(), VbState::Replica | VbState::Pending);
            follows.then(|| ReplicaPosition {
                high: vbucket.high_seqno(),
                snapshot: vbucket.snapshot_progress(),
                failover_log: vbucket.failover_log().clone(),
            })
        };
        self.with_vbucket(id, position)?
    }

    /// Adopts the failover log of the active vBucket; `false` if this one is no replica.
    pub fn adopt_history(&self, id: VbId, log: FailoverLog) -> bool {
        let adopted = self.with_vbucket(id, |vbucket| vbucket.adopt_failover_log(log));
        adopted == Some(true)
    }

    /// Promotes a replica to active, with a new history. Returns `Ok(false)` if it is no replica.
    ///
    /// # Errors
    /// As [`Bucket::set_vbucket`].
    pub fn promote_vbucket(&self, id: VbId, uuid: VbUuid) -> Result<bool, OpError> {
        let replica = self.with_vbucket(id, |vbucket| vbucket.state() == VbState::Replica);
        if replica != Some(true) {
            return Ok(false);
        }
        self.set_vbucket(id, VbState::Active, Some(String::new()), uuid)?;
        Ok(true)
    }

    /// Whether the state of every vBucket is durable: a restart would restore the same states.
    ///
    /// Cost: looks at each vBucket.
    pub fn are_states_durable(&self) -> bool {
        let is_durable = |id| self.with_vbucket(VbId(id), |vbucket| vbucket.is_record_durable());
        (0..self.vbuckets()).all(|id| is_durable(id) != Some(false))
    }

    /// Whether any vBucket is a replica.
    ///
    /// Cost: looks at vBuckets until it finds one.
    pub fn has_replicas(&self) -> bool {
        let state = |id| self.with_vbucket(VbId(id), |vbucket| vbucket.state());
        (0..self.vbuckets()).any(|id| state(id) == Some(VbState::Replica))
    }

    /// Registers the snapshot that the active vBucket is about to send.
    ///
    /// # Errors
    /// As [`VBucket::begin_snapshot`]; `NotReplica` when there is no such vBucket.
    pub fn replica_marker(&self, id: VbId, marker: &SnapshotMarker) -> Result<(), ReplicaError> {
        let begun = self.with_vbucket(id, |vbucket| {
            let broken = vbucket.is_historical() && !marker.historical;
            vbucket.begin_snapshot(marker).map(|()| broken)
        });
        if let Some(Ok(true)) = begun {
            // The local history has a gap from here on; the turn waits for its commits under way.
            let turn = self.turn_to_write();
            if let Err(error) = self.forget_history(id) {
                tracing::warn!(bucket = self.name(), %error, "forgetting a history failed");
                return Err(ReplicaError::NotReplica);
            }
            drop(turn);
        }
        let begun = begun.map(|begun| begun.map(drop));
        begun.unwrap_or(Err(ReplicaError::NotReplica))
    }

    /// Applies a change of the active vBucket.
    ///
    /// # Errors
    /// As [`VBucket::apply`]; `NotReplica` when there is no such vBucket, and while stopping.
    pub fn replica_change(&self, id: VbId, document: &Document) -> Result<Applied, ReplicaError> {
        let now = self.clock.now();
        loop {
            let applied = self.with_vbucket(id, |vbucket| {
                // As for clients' writes: the last flush must not miss acknowledged changes.
                if self.is_stopping() {
                    return Ok(Err(ReplicaError::NotReplica));
                }
                // The replaced document may have left memory with its key, while this vBucket was active.
                if let Some(wanted) = vbucket.fetch_before_apply(document.key()) {
                    return Err(wanted);
                }
                let applied = vbucket.apply(document);
                // Events of collections arrive without a CAS.
                if applied.is_ok() && !SystemEvent::is_key(document.key()) {
                    vbucket.note_drift(document.cas(), now);
                }
                Ok(applied)
            });
            match applied {
                Some(Ok(applied)) => {
                    if applied.is_ok() && SystemEvent::is_key(document.key()) {
                        self.share_collections(id);
                        self.learn_event(document);
                    }
                    return applied;
                }
                Some(Err(wanted)) if self.fetch_now(id, &wanted) => {}
                None | Some(Err(_)) => return Err(ReplicaError::NotReplica),
            }
        }
    }

    /// Applies the active vBucket's decision about a prepare.
    ///
    /// # Errors
    /// As [`VBucket::apply_commit`] and [`VBucket::apply_abort`]; `NotReplica` when there is no
    /// such vBucket, and while stopping.
    pub fn replica_decision(
        &self,
        id: VbId,
        end: &PrepareEnd<'_>,
    ) -> Result<Applied, ReplicaError> {
        let applied = self.with_vbucket(id, |vbucket| {
            if self.is_stopping() {
                return Err(ReplicaError::NotReplica);
            }
            if end.committed {
                vbucket.apply_commit(end.key, end.prepare, end.at)
            } else {
                vbucket.apply_abort(end.key, end.prepare, end.at)
            }
        });
        applied.unwrap_or(Err(ReplicaError::NotReplica))
    }

    /// Takes a vBucket over from the active node that it follows: it becomes pending, then active,
    /// with the same history.
    ///
    /// # Errors
    /// `NotMyVbucket` if it follows no node, has only a part of a snapshot, or the bucket stops.
    pub fn take_over(&self, id: VbId, state: VbState) -> Result<(), OpError> {
        let slot = self.slot(id).ok_or(OpError::NotMyVbucket)?;
        let mut locked = slot.vbucket.lock();
        let vbucket = locked.as_mut().ok_or(OpError::NotMyVbucket)?;
        if self.is_stopping() || !vbucket.take_over(state) {
            return Err(OpError::NotMyVbucket);
        }
        slot.epoch.fetch_add(1, Ordering::SeqCst);
        let left = self.collect_outbox(vbucket);
        drop(locked);
        self.deliver(id, left);
        self.notify_subscribers(id);
        Ok(())
    }

    /// Registers `set`: every replica vBucket that may acknowledge more prepares is marked in it, as long as it exists.
    pub fn tell_prepared(&self, set: &Arc<ReadySet>) {
        let mut sets = self.prepared.write();
        sets.retain(|set| set.strong_count() > 0);
        sets.push(Arc::downgrade(set));
    }

    /// Sets the nodes that durable writes of every active vBucket need: JSON text as
    /// [`VBucket::is_topology`] checks it; empty for this node alone.
    pub fn set_topology(&self, topology: &str, uuid: VbUuid) {
        for id in (0..self.vbuckets()).map(VbId) {
            self.with_vbucket(id, |vbucket| {
                if vbucket.state() == VbState::Active && vbucket.topology() != topology {
                    vbucket.set_state(VbState::Active, Some(topology.to_owned()), uuid);
                }
            });
        }
    }

    /// Rolls a replica vBucket back to a state that it had at or before `to`, in the store and in
    /// memory. Returns its new seqno.
    ///
    /// Changes that are not in the store yet are lost, so the result may be before `to`. While this
    /// runs, the vBucket is not found.
    ///
    /// # Errors
    /// The store's. Then the vBucket is empty in memory and still a replica: roll it back again.
    ///
    /// Cost: waits for a commit that is under way; reads every row that stays.
    pub fn roll_back(&self, id: VbId, to: Seqno) -> Result<Seqno, StoreError> {
        let Some(slot) = self.slot(id) else {
            return Ok(Seqno::ZERO);
        };
        // A batch of the old state that is being committed would restore it.
        let writing = self.turn_to_write();
        let Some(mut vbucket) = slot.vbucket.lock().take() else {
            return Ok(Seqno::ZERO);
        };
        // Its streams would go on with changes that are taken back.
        slot.epoch.fetch_add(1, Ordering::SeqCst);
        let stored = self.roll_back_store(id, to);
        let mut record = vbucket.record();
        let result = match stored {
            Ok(Some(stored)) => {
                let failover_log = record.failover_log;
                record = VbRecord {
                    failover_log,
                    ..stored
                };
                Ok(())
            }
            Ok(None) => {
                empty(&mut record);
                Ok(())
            }
            Err(error) => {
                empty(&mut record);
                Err(error)
            }
        };
        let high = record.high_seqno;
        let taken_back = vbucket.high_seqno().0.saturating_sub(high.0);
        Counters::add(&self.counters().rollbacks, 1);
        Counters::add(&self.counters().rolled_back, taken_back);
        record.failover_log = pruned(&record.failover_log, high);
        let manifest = vbucket.manifest_uid();
        let old = vbucket.rollback_to(record);
        let mut events = Vec::new();
        let result = result.and_then(|()| self.reload(id, &mut vbucket, &mut events));
        let lost_events = vbucket.manifest_uid() < manifest;
        let left = self.collect_outbox(&mut vbucket);
        *slot.vbucket.lock() = Some(vbucket);
        drop(writing);
        drop(old);
        if lost_events {
            self.relearn(&events);
        }
        self.deliver(id, left);
        self.persistence_waits.wake(id, Seqno(u64::MAX));
        self.notify_subscribers(id);
        self.summarize_later();
        self.erase_soon();
        result
            .map(|()| high)
            .inspect_err(|error| self.report_damage(id, Seqno::ZERO, error))
    }

    /// Whether [`Bucket::roll_back`] to `to` would lose durable writes that this node acknowledged and that the
    /// other node may have, or everything in the store: the store does not have each past state. Those up to `to`
    /// are shared. So may all be if `to` is zero, as where only tombstones were purged. Rows that cannot be read
    /// may be any of these.
    ///
    /// # Errors
    /// The store's.
    pub fn rollback_loses(&self, id: VbId, to: Seqno) -> Result<bool, StoreError> {
        let prepared = self.with_vbucket(id, |vbucket| vbucket.high_prepared_seqno());
        let prepared = prepared.unwrap_or_default();
        if to == Seqno::ZERO {
            return Ok(prepared > Seqno::ZERO);
        }
        let point_before = |to| {
            let point = self.store.rollback_point(id, to);
            point.inspect_err(|error| self.report_damage(id, Seqno::ZERO, error))
        };
        let points = point_before(to).and_then(|point| Ok((point, point_before(Seqno(u64::MAX))?)));
        let (point, stored) = match points {
            Err(error) if error.kind == ErrorKind::Corrupt => return Ok(true),
            points => points?,
        };
        let durable = prepared.min(to).min(stored);
        let all = point == Seqno::ZERO && stored.min(to) > Seqno::ZERO;
        Ok(durable > point || all)
    }

    /// Rolls the store back; `None` if the store does not know the vBucket yet.
    fn roll_back_store(&self, id: VbId, to: Seqno) -> Result<Option<VbRecord>, StoreError> {
        self.check_quarantine(id, "rolling back")?;
        if self.store.snapshot(id)?.record().is_none() {
            return Ok(None);
        }
        self.store.rollback(id, to).map(Some)
    }

    /// Loads every row, and counts the node for the prepares among them; rows that tell of collections are added to `events`.
    fn reload(
        &self,
        id: VbId,
        fresh: &mut VBucket,
        events: &mut Vec<Document>,
    ) -> Result<(), StoreError> {
        let mut keep_values = true;
        let snapshot = self.store.snapshot(id)?;
        for (number, document) in snapshot.by_seqno(Seqno(1)).enumerate() {
            let document = document?;
            if number % ROWS_PER_LOOK == 0 {
                let bytes = fresh.memory_bytes() as u64;
                keep_values = self.memory.used() + bytes < self.memory.low_mark();
            }
            let is_event = SystemEvent::is_key(document.key());
            if is_event {
                events.push(document.clone());
            }
            let leaves = !keep_values && !is_event;
            let row = if leaves && self.value_may_leave(&document.meta(), document.value().len()) {
                document.to_non_resident()
            } else {
                document
            };
            if let Some(seqno) = fresh.load(row) {
                self.report_odd_row(id, seqno);
            }
        }
        fresh.finish_warmup(None);
        Ok(())
    }
}

/// Changes a record to that of a vBucket without documents.
fn empty(record: &mut VbRecord) {
    record.high_seqno = Seqno::ZERO;
    record.snapshot = SnapshotRange::default();
    record.high_prepared = Seqno::ZERO;
    record.high_completed = Seqno::ZERO;
    record.purge_seqno = Seqno::ZERO;
}

/// Returns the failover log without the entries that begin after `high`.
fn pruned(log: &FailoverLog, high: Seqno) -> FailoverLog {
    let entries = log.entries().iter().copied();
    let kept: Vec<_> = entries.filter(|entry| entry.seqno <= high).collect();
    FailoverLog::from_entries(kept).unwrap_or_else(|| {
        let mut oldest = log.newest();
        oldest.seqno = Seqno::ZERO;
        FailoverLog::new(oldest)
    })
}
