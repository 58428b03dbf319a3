//! The side of a vBucket that follows the active one of another node.

use std::sync::Arc;

use model::{Document, SnapshotRange, VbRecord, VbState};

use super::VBucket;
use super::change::Change;
use super::partition::HEAT_WRITTEN;
use crate::checkpoint::{CheckpointKind, ReplicaError, SnapshotMarker};
use collections::SystemEvent;

/// What became of a change of another node's vBucket that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Whether it was the last one of its snapshot: the state is the active vBucket's at that
    /// seqno.
    pub snapshot_ended: bool,
    /// Kind of the snapshot.
    pub kind: CheckpointKind,
}

impl VBucket {
    pub(super) fn check_follows(&self) -> Result<(), ReplicaError> {
        match self.state {
            VbState::Replica | VbState::Pending => Ok(()),
            VbState::Active | VbState::Dead => Err(ReplicaError::NotReplica),
        }
    }

    /// Takes note of what the active vBucket is about to send. Checkpoints here follow those
    /// there: a marker begins one if the active one did, or if it or the last one is of kind
    /// Disk; else the open one goes on.
    ///
    /// # Errors
    /// `NotReplica`; `OutOfRange` for a snapshot that ends at or before what is here; `Marker`
    /// for one that contradicts itself. The open snapshot goes on then as if nothing was said.
    pub fn begin_snapshot(&mut self, marker: &SnapshotMarker) -> Result<(), ReplicaError> {
        self.check_follows()?;
        let historical = marker.historical && self.keeps_history;
        self.checkpoints.begin_snapshot(&SnapshotMarker {
            historical,
            ..*marker
        })?;
        if let Some(purged) = marker.purge_seqno.filter(|&seqno| seqno > self.purge_seqno) {
            self.purge_seqno = purged;
            self.touch_record();
        }
        Ok(())
    }

    /// Takes a change as the active vBucket made it: its seqno, CAS and rev stay. It needs no
    /// reservation of the quota, since what was acknowledged there must not be lost here.
    ///
    /// # Errors
    /// `NotReplica`; `OutOfRange` unless its seqno is above all and was announced; `Duplicate`
    /// for a second change of a durable write's key in one checkpoint; `UnknownPrepare` for a
    /// commit without its prepare ([`VBucket::apply_commit`] makes it from that). Nothing changed
    /// then.
    pub fn apply(&mut self, document: &Document) -> Result<Applied, ReplicaError> {
        self.check_follows()?;
        if SystemEvent::is_key(document.key()) {
            return self.apply_event(document);
        }
        let kind = document.kind();
        let prepared = kind.is_prepared();
        let place = self.table.place(document.key());
        if kind.is_commit() && !self.durability.waits(document) {
            return Err(ReplicaError::UnknownPrepare);
        }
        let old = self.table.at(place).filter(|_| !prepared);
        let kept = !prepared && self.keeps(document);
        self.checkpoints.check_next(document, old, kept)?;
        self.hlc.observe(document.cas());
        let heat = old.map_or(0, Document::heat).max(HEAT_WRITTEN);
        if prepared {
            self.follow_prepared(place, document);
        } else {
            let prepare = self.follow_committed(place, document.key());
            let committed = prepare.filter(|_| !kind.is_commit());
            let committed = committed.map(|prepare| document.as_commit_of(prepare.seqno()));
            let document = committed.unwrap_or_else(|| document.clone());
            document.set_heat(heat);
            self.change(document, Change::Commit(place));
        }
        Ok(self.applied())
    }

    /// A change was taken: maybe it was the last one of its snapshot.
    pub(super) fn applied(&mut self) -> Applied {
        let snapshot_ended = self.checkpoints.open().is_complete();
        if snapshot_ended {
            self.snapshot_arrived();
        }
        Applied {
            snapshot_ended,
            kind: self.checkpoints.open().kind,
        }
    }

    /// How much of what was announced is here, to ask another node for more: from the
    /// newest consistent point to the end of the snapshot that has begun after it. Both are the
    /// newest change when no snapshot is under way.
    pub fn snapshot_progress(&self) -> SnapshotRange {
        self.checkpoints.progress()
    }

    /// Goes back to what the store rolled back to: without documents, cursors and unflushed
    /// changes, as after [`VBucket::from_record`]; [`VBucket::load`] follows for each row. Life
    /// state and topology stay. Streams find their cursors dropped, a flush under way is ignored
    /// when it ends.
    ///
    /// Returns what was; drop it outside of the lock.
    pub fn rollback_to(&mut self, record: VbRecord) -> Box<Self> {
        let record = VbRecord {
            state: self.state,
            topology: self.topology.to_string(),
            ..record
        };
        let mut fresh = Self::from_record(self.id, record, Arc::clone(&self.config));
        fresh.checkpoints.number_cursors_after(&self.checkpoints);
        fresh.set_keeps_history(self.keeps_history);
        fresh.flights = self.flights;
        fresh.counters = std::mem::take(&mut self.counters);
        fresh.reported = self.reported;
        fresh.touch_record();
        fresh.outbox.changed = true;
        Box::new(std::mem::replace(self, fresh))
    }
}
