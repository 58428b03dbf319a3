//! The flusher's side: changes are taken under the lock, written without it, and answered.

use model::{CollectionCount, SnapshotRange, VbCounts, VbRecord};

use super::VBucket;
use super::partition::FlightInfo;
use crate::checkpoint::{
    FlightId, FlushBatch, FlushBudget, FlushDone, Garbage, PrepareProgress, SpareBuffers,
};
use collections::CollectionCounts;

/// Collections whose documents are counted in the record: 20 bytes each, with every flush.
const COUNTED_MAX: usize = 16;

impl VBucket {
    /// Takes changes for the store. `None` when there is nothing to write, or while the answer
    /// to an earlier batch is awaited. [`VBucket::finish_flush`] must follow.
    ///
    /// Cost: O(segments) under the lock; see [`FlushBudget`] for what it may exceed. Memory comes from `spare`
    /// as long as that has been refilled.
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
            // Whole up to its end, or a part of what began after the last whole one.
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
        // What was prepared or decided after the batch's end is not in the store yet.
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

    /// Ends the flush that [`VBucket::begin_flush`] began. If the batch is durable, so are its
    /// changes from now on; if not, the next batch has them again, with what came since.
    ///
    /// An answer to another vBucket's batch (one that had this number before) is ignored.
    ///
    /// Cost: O(segments); drop the answer outside of the lock.
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

    /// Whether anything waits to become durable: changes, or the record. Also true while it is
    /// under way.
    pub fn is_dirty(&self) -> bool {
        self.checkpoints.has_dirty() || !self.is_record_durable()
    }

    /// Whether its state, its histories and its topology are durable as they are now; changes may
    /// wait all the same.
    pub fn is_record_durable(&self) -> bool {
        self.record_version == self.record_flushed
    }

    /// State as of now.
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

    /// How much there is, unless that takes more than few bytes.
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
