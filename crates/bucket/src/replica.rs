//! vBuckets that follow those of another node: where they stand, what they are given, how they
//! go back, how they become active.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use collections::SystemEvent;
use engine::{Applied, OpError, ReplicaError, SnapshotMarker, VBucket};
use model::{Document, FailoverLog, Seqno, SnapshotRange, VbId, VbRecord, VbState, VbUuid};
use storage::{KvStore, StoreError};

use crate::bucket::Bucket;
use crate::stats::Counters;
use crate::subscribers::ReadySet;

/// Rows put into the table of a vBucket that went back, before memory is looked at again.
const ROWS_PER_LOOK: usize = 256;

/// Where a replica vBucket stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaPosition {
    /// Its newest change.
    pub high: Seqno,
    /// How much of what was announced is here.
    pub snapshot: SnapshotRange,
    /// Its histories.
    pub failover_log: FailoverLog,
}

/// How the active vBucket decided a prepare.
#[derive(Clone, Copy, Debug)]
pub struct PrepareEnd<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The seqno of the prepare.
    pub prepare: Seqno,
    /// The seqno of the decision.
    pub at: Seqno,
    /// Whether it was committed, else aborted.
    pub committed: bool,
}

impl<S: KvStore> Bucket<S> {
    /// Makes a replica of every vBucket, as a bucket that is to follow another one needs it.
    /// To be called before the workers start.
    ///
    /// Active vBuckets with changes are only taken with `demote`; without, how many there are
    /// is the error, and nothing is changed.
    ///
    /// # Errors
    /// The number of active vBuckets that have changes of their own.
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

    /// How many vBuckets have ever changed.
    pub fn changed_vbuckets(&self) -> usize {
        let changed = |id: &VbId| {
            let high = self.with_vbucket(*id, |vbucket| vbucket.high_seqno());
            high.is_some_and(|high| high != Seqno::ZERO)
        };
        (0..self.vbuckets()).map(VbId).filter(changed).count()
    }

    /// Makes every replica active, with a history of its own. To be called before the workers start.
    pub fn become_active(&self, uuid: VbUuid) {
        for id in (0..self.vbuckets()).map(VbId) {
            self.with_vbucket(id, |vbucket| {
                if vbucket.state() == VbState::Replica {
                    vbucket.set_state(VbState::Active, Some(String::new()), uuid);
                }
            });
        }
    }

    /// Where a replica vBucket stands: what a stream is asked for with.
    /// `None` when it is neither a replica nor pending.
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

    /// Takes over the histories of the active vBucket; false when this one is no replica.
    pub fn adopt_history(&self, id: VbId, log: FailoverLog) -> bool {
        let adopted = self.with_vbucket(id, |vbucket| vbucket.adopt_failover_log(log));
        adopted == Some(true)
    }

    /// Makes a replica active; it begins a history of its own. `Ok(false)` when it is none.
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

    /// Whether what every vBucket is, is durable: none would come back as something else.
    ///
    /// Cost: looks at each vBucket.
    pub fn are_states_durable(&self) -> bool {
        let is_durable = |id| self.with_vbucket(VbId(id), |vbucket| vbucket.is_record_durable());
        (0..self.vbuckets()).all(|id| is_durable(id) != Some(false))
    }

    /// Whether there is a replica among the vBuckets.
    ///
    /// Cost: looks at vBuckets until it finds one.
    pub fn has_replicas(&self) -> bool {
        let state = |id| self.with_vbucket(VbId(id), |vbucket| vbucket.state());
        (0..self.vbuckets()).any(|id| state(id) == Some(VbState::Replica))
    }

    /// Takes note of the snapshot that the active vBucket is about to send.
    ///
    /// # Errors
    /// As [`VBucket::begin_snapshot`]; `NotReplica` when there is no such vBucket.
    pub fn replica_marker(&self, id: VbId, marker: &SnapshotMarker) -> Result<(), ReplicaError> {
        let begun = self.with_vbucket(id, |vbucket| {
            let broken = vbucket.is_historical() && !marker.historical;
            vbucket.begin_snapshot(marker).map(|()| broken)
        });
        if let Some(Ok(true)) = begun {
            // The history that is here has a hole from now on; nothing of it is on its way any more.
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

    /// Takes a change as the active vBucket made it.
    ///
    /// # Errors
    /// As [`VBucket::apply`]; `NotReplica` when there is no such vBucket, and while stopping.
    pub fn replica_change(&self, id: VbId, document: &Document) -> Result<Applied, ReplicaError> {
        let now = self.clock.now();
        loop {
            let applied = self.with_vbucket(id, |vbucket| {
                // As with clients' writes: the last flush must not miss what is acknowledged.
                if self.is_stopping() {
                    return Ok(Err(ReplicaError::NotReplica));
                }
                // What it replaces may have left memory whole, while this vBucket was active.
                if let Some(wanted) = vbucket.fetch_before_apply(document.key()) {
                    return Err(wanted);
                }
                let applied = vbucket.apply(document);
                if applied.is_ok() {
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

    /// Takes the end of a prepare that the active vBucket decided.
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

    /// The active node hands a vBucket over that follows it: it becomes pending, then active, and
    /// goes on with the same history.
    ///
    /// # Errors
    /// `NotMyVbucket` when it follows no node, or has only a part of a snapshot.
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

    /// Marks in `set`, from now on and as long as it is there, every replica vBucket that may
    /// acknowledge more prepares.
    pub fn tell_prepared(&self, set: &Arc<ReadySet>) {
        let mut told = self.prepared.write();
        told.retain(|set| set.strong_count() > 0);
        told.push(Arc::downgrade(set));
    }

    /// Sets the nodes that durable writes of every active vBucket need: JSON text as
    /// [`VBucket::is_topology`] checks it, empty for this node alone.
    pub fn set_topology(&self, topology: &str, uuid: VbUuid) {
        for id in (0..self.vbuckets()).map(VbId) {
            self.with_vbucket(id, |vbucket| {
                if vbucket.state() == VbState::Active && vbucket.topology() != topology {
                    vbucket.set_state(VbState::Active, Some(topology.to_owned()), uuid);
                }
            });
        }
    }

    /// Takes a replica vBucket back to a state that it had at or before `to`, in the store and
    /// in memory; gives the seqno at which it stands then.
    ///
    /// Changes that are not in the store yet are given up, so it may go back further than asked.
    /// While it lasts, the vBucket is not found.
    ///
    /// # Errors
    /// The store's. The vBucket is empty in memory then, and still a replica: roll it back again.
    ///
    /// Cost: waits for a commit that is under way; reads every row that stays.
    pub fn roll_back(&self, id: VbId, to: Seqno) -> Result<Seqno, StoreError> {
        let Some(slot) = self.slot(id) else {
            return Ok(Seqno::ZERO);
        };
        // A batch of the old state that is on its way into the store would bring it back.
        let writing = self.turn_to_write();
        let Some(mut vbucket) = slot.vbucket.lock().take() else {
            return Ok(Seqno::ZERO);
        };
        // Streams of it would go on with what is no longer true.
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
        self.erase_soon();
        result.map(|()| high)
    }

    /// Whether [`Bucket::roll_back`] to `to` would also take back durable writes before `to`, for which this node counted
    /// itself, or everything that the store has: it does not have each past state.
    ///
    /// # Errors
    /// The store's.
    pub fn rollback_loses(&self, id: VbId, to: Seqno) -> Result<bool, StoreError> {
        let prepared = self.with_vbucket(id, |vbucket| vbucket.high_prepared_seqno());
        let point = self.store.rollback_point(id, to)?;
        let stored = self.store.rollback_point(id, Seqno(u64::MAX))?;
        let durable = prepared.unwrap_or_default().min(to).min(stored);
        let all = point == Seqno::ZERO && stored.min(to) > Seqno::ZERO;
        Ok(durable > point || all)
    }

    /// `None` when the store knows no such vBucket yet.
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
        let mut rows = 0;
        let mut keep_values = true;
        self.store.scan(id, Seqno(1), &mut |document: Document| {
            if rows % ROWS_PER_LOOK == 0 {
                let bytes = fresh.memory_bytes() as u64;
                keep_values = self.memory.used() + bytes < self.memory.low_mark();
            }
            rows += 1;
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
            ControlFlow::Continue(())
        })?;
        fresh.finish_warmup(None);
        Ok(())
    }
}

/// Makes it the record of a vBucket without documents.
fn empty(record: &mut VbRecord) {
    record.high_seqno = Seqno::ZERO;
    record.snapshot = SnapshotRange::default();
    record.high_prepared = Seqno::ZERO;
    record.high_completed = Seqno::ZERO;
    record.purge_seqno = Seqno::ZERO;
}

/// The histories without those that began after `high`.
fn pruned(log: &FailoverLog, high: Seqno) -> FailoverLog {
    let entries = log.entries().iter().copied();
    let kept: Vec<_> = entries.filter(|entry| entry.seqno <= high).collect();
    FailoverLog::from_entries(kept).unwrap_or_else(|| {
        let mut oldest = log.newest();
        oldest.seqno = Seqno::ZERO;
        FailoverLog::new(oldest)
    })
}
