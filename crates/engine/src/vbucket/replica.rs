//! Replica side of a vBucket: applying the changes of the active node.

use std::sync::Arc;

use model::{Document, SnapshotRange, VbRecord, VbState};

use super::VBucket;
use super::change::TableChange;
use super::partition::HEAT_WRITTEN;
use crate::checkpoint::{CheckpointKind, ReplicaError, SnapshotMarker};
use collections::SystemEvent;

/// Result of an applied change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Whether it was the last change of its snapshot: the state then equals that of the active
    /// vBucket at this seqno.
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

    /// Begins the snapshot that the active vBucket announced. Checkpoints follow those of the
    /// active vBucket: a marker begins one if the active vBucket did, or if this snapshot or the
    /// last one is of kind Disk; else the open one continues.
    ///
    /// # Errors
    /// `NotReplica`; `OutOfRange` for a snapshot that ends at or before the last seqno; `Marker`
    /// for one that contradicts itself. The open snapshot then continues unchanged.
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

    /// Applies a change of the active vBucket: its seqno, CAS and revision stay. Needs no
    /// reservation of the quota, since an acknowledged change must not be lost.
    ///
    /// # Errors
    /// `NotReplica`; `OutOfRange` unless its seqno is above the last one and was announced;
    /// `Duplicate` for a second change of a durable write's key in one checkpoint; `UnknownPrepare`
    /// for a commit without its prepare ([`VBucket::apply_commit`] makes the commit from the
    /// prepare). Nothing changed then.
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
            self.change(document, TableChange::Commit(place));
        }
        Ok(self.applied())
    }

    /// Completes an applied change, and its snapshot if it was the last one.
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

    /// Progress in the announced snapshots, for a request to another node: from the last consistent
    /// seqno to the end of the snapshot that began after it. Both ends are the last seqno if no
    /// snapshot is incomplete.
    pub fn snapshot_progress(&self) -> SnapshotRange {
        self.checkpoints.progress()
    }

    /// Resets the vBucket to the state to which the store rolled back: without documents, cursors
    /// and unflushed changes, as after [`VBucket::from_record`]; call [`VBucket::load`] for each
    /// row. State and topology stay. Streams find their cursors dropped; the result of a flush
    /// under way is ignored.
    ///
    /// Returns the old vBucket; drop it outside the lock.
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
