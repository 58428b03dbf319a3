//! Flushing: changes are taken under the lock, written without it, then acknowledged under it.

use model::{CollectionCount, SnapshotRange, VbCounts, VbRecord};

use super::VBucket;
use super::partition::FlightInfo;
use crate::checkpoint::{
    FlightId, FlushBatch, FlushBudget, FlushDone, Garbage, PrepareProgress, SpareBuffers,
};
use collections::CollectionCounts;

/// Maximum number of collections whose documents are counted in the record: 20 bytes each, with
/// every flush.
const COUNTED_MAX: usize = 16;

impl VBucket {
    /// Takes changes for the store. `None` if there is nothing to write, or an earlier batch is
    /// under way. [`VBucket::finish_flush`] must follow.
    ///
    /// Cost: O(segments) under the lock; see [`FlushBudget`] for how it may be exceeded. Memory
    /// comes from `spare` while that is filled.
    pub fn begin_flush(
        &mut self,
        budget: FlushBudget,
        spare: &mut SpareBuffers,
    ) -> Option<FlushBatch> {
        if self.flight.is_some() || !self.is_dirty() {
            return None;
        }
        let has_changes = self.checkpoints.has_dirty();
        let (taken, changes) = self.checkpoints.take_dirty(budget, spare);
        let snapshot = if has_changes {
            let consistent = changes.consistent.max(self.durable.promised);
            let end = changes.snapshot_end;
            // Either a complete snapshot, or a part of one: from the last consistent seqno to its
            // end.
            let start = if consistent == changes.last_seqno {
                end
            } else {
                consistent
            };
            SnapshotRange { start, end }
        } else {
            self.durable.snapshot
        };
        self.flights += 1;
        let id = FlightId {
            history: self.failover_log.newest().uuid.0,
            number: self.flights,
        };
        self.flight = Some(Box::new(FlightInfo {
            id,
            changes,
            record_version: self.record_version,
            snapshot,
        }));
        let high_seqno = if has_changes {
            changes.last_seqno
        } else {
            self.durable.flushed
        };
        // Prepares and decisions after the batch's end are not in the store yet.
        let PrepareProgress {
            prepared,
            completed,
        } = changes.prepares;
        let mut record = VbRecord {
            high_seqno,
            snapshot,
            high_prepared: self.durability.high_prepared.min(prepared),
            high_completed: self.durability.high_completed.min(completed),
            ..self.record()
        };
        if high_seqno != self.high_seqno {
            record.counts = None;
        }
        Some(FlushBatch {
            vb: self.id,
            record,
            taken,
            flight: id,
        })
    }

    /// Finishes the flush of [`VBucket::begin_flush`]. On success, the changes of the batch are
    /// durable. On failure, the next batch has them again, with newer changes.
    ///
    /// Ignores the result of another vBucket's batch (of an earlier vBucket with the same id).
    ///
    /// Cost: O(segments); drop the result outside the lock.
    pub fn finish_flush(&mut self, done: FlushDone) -> Garbage {
        let Some(flight) = self.flight.take_if(|flight| flight.id == done.flight) else {
            return Garbage::default();
        };
        if !done.ok {
            self.checkpoints.fail(&flight.changes);
            return Garbage::default();
        }
        let acknowledged = self.acknowledges();
        self.record_flushed = flight.record_version;
        let garbage = self.checkpoints.finish(&flight.changes, done.changes);
        self.durable.flushed = self.durable.flushed.max(flight.changes.last_seqno);
        self.durable.snapshot = flight.snapshot;
        let consistent = flight.changes.consistent;
        if consistent > self.durable.promised {
            self.durable.promised = consistent;
            self.outbox.persisted = Some(consistent);
        }
        self.prepares_persisted(acknowledged);
        garbage
    }

    /// Whether changes or the record are not durable yet. Also true while they are being flushed.
    pub fn is_dirty(&self) -> bool {
        self.checkpoints.has_dirty() || !self.is_record_durable()
    }

    /// Whether the current state, failover log and topology are durable; changes may still be
    /// dirty.
    pub fn is_record_durable(&self) -> bool {
        self.record_version == self.record_flushed
    }

    /// Current state as a record for the store.
    pub fn record(&self) -> VbRecord {
        VbRecord {
            state: self.state,
            high_seqno: self.high_seqno,
            purge_seqno: self.purge_seqno,
            snapshot: self.checkpoints.progress(),
            high_prepared: self.durability.high_prepared,
            high_completed: self.durability.high_completed,
            max_cas: self.hlc.max(),
            max_deleted_rev: self.max_deleted_rev,
            failover_log: self.failover_log.clone(),
            topology: self.topology.to_string(),
            term: self.term,
            counts: self.counts(),
        }
    }

    /// Document counts for the record; `None` if they would take more than few bytes.
    fn counts(&self) -> Option<Box<VbCounts>> {
        let collections = self.collections.counts();
        if collections.len() > COUNTED_MAX {
            return None;
        }
        let of = |counts: &CollectionCounts| CollectionCount {
            id: counts.id,
            items: counts.items,
            high_seqno: counts.high_seqno,
        };
        let all = self.table.counts();
        Some(Box::new(VbCounts {
            items: all.items.saturating_sub(self.collections.dead().items),
            tombstones: all.tombstones,
            default_high: self.collections.default_high(),
            dead_end: self.collections.dead_end(),
            collections: collections.iter().map(of).collect(),
        }))
    }
}
