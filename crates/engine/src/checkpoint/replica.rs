//! The log of a replica vBucket: its runs are the snapshots that the active node announced.

use std::fmt;

use model::{Document, Seqno, SnapshotRange};

use super::{CheckpointKind, CheckpointLog};

/// Snapshot marker: the active vBucket announces the changes that it will send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotMarker {
    /// First seqno.
    pub start: Seqno,
    /// Last seqno; once it has arrived, the state equals that of the active vBucket.
    pub end: Seqno,
    /// Memory or Disk; the log decides itself whether it is an initial disk snapshot.
    pub kind: CheckpointKind,
    /// Whether the active vBucket began a checkpoint.
    pub checkpoint: bool,
    /// Last completed prepare, if it was sent.
    pub high_completed: Option<Seqno>,
    /// Last prepare of a Disk snapshot, if it was sent.
    pub high_prepared: Option<Seqno>,
    /// Last seqno that is visible to clients, if it was sent.
    pub visible_end: Option<Seqno>,
    /// Purge seqno, if it was sent.
    pub purge_seqno: Option<Seqno>,
    /// Whether the snapshot has every change of the collections with history.
    pub historical: bool,
}

/// Reason for which a change or a snapshot of another node's vBucket is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaError {
    /// This vBucket is not a replica.
    NotReplica,
    /// The seqno is not above the last one, or no snapshot with it was announced.
    OutOfRange,
    /// The marker contradicts itself; the text is the reason.
    Marker(&'static str),
    /// The active vBucket put two changes into one checkpoint that must not replace each other.
    Duplicate,
    /// The active vBucket decided a prepare that this replica does not have.
    UnknownPrepare,
}

impl fmt::Display for ReplicaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReplica => "the vBucket is no replica",
            Self::OutOfRange => "the seqno is out of range",
            Self::Marker(reason) => reason,
            Self::Duplicate => "two changes of one key in a checkpoint",
            Self::UnknownPrepare => "there is no such prepare",
        })
    }
}

impl std::error::Error for ReplicaError {}

impl SnapshotMarker {
    fn check(&self, high: Seqno) -> Result<(), ReplicaError> {
        if self.start > self.end {
            return Err(ReplicaError::Marker("a snapshot ends before it starts"));
        }
        if self.end <= high {
            return Err(ReplicaError::OutOfRange);
        }
        if self.high_prepared.is_some_and(|seqno| seqno > self.end) {
            return Err(ReplicaError::Marker("a prepare past the snapshot's end"));
        }
        if self.high_completed.is_some_and(|seqno| seqno > self.end) {
            return Err(ReplicaError::Marker("a decision past the snapshot's end"));
        }
        if self.purge_seqno.is_some_and(|seqno| seqno > self.end) {
            return Err(ReplicaError::Marker("a purge past the snapshot's end"));
        }
        Ok(())
    }
}

impl CheckpointLog {
    /// Begins the run that `marker` announces. Begins a checkpoint as well if the active vBucket
    /// did, or if this snapshot or the one before comes from a store.
    pub(crate) fn begin_snapshot(&mut self, marker: &SnapshotMarker) -> Result<(), ReplicaError> {
        let high = self.open.last;
        marker.check(high)?;
        // The rest of an initial backfill, announced as a further snapshot or by another stream.
        let initial = self.open.kind == CheckpointKind::InitialDisk && !self.open.is_complete();
        let kind = match marker.kind {
            CheckpointKind::Memory => CheckpointKind::Memory,
            _ if high == Seqno::ZERO || initial => CheckpointKind::InitialDisk,
            _ => CheckpointKind::Disk,
        };
        // A snapshot that arrived in part is complete only at its end: replaced changes may have
        // their newer version there, however the rest is announced.
        let owed = self.open.range.end;
        let both_memory = kind == CheckpointKind::Memory && self.open.kind == kind;
        if marker.checkpoint || !both_memory || marker.historical != self.open.historical {
            self.close_checkpoint();
        } else {
            self.cut();
        }
        self.open.kind = kind;
        self.switch_history(marker.historical);
        self.open.snapshot += 1;
        self.open.range = SnapshotRange {
            start: marker.start,
            end: marker.end.max(owed),
        };
        let visible = marker.visible_end.unwrap_or_default().min(marker.end);
        self.open.visible_end = self.open.visible_end.max(visible);
        let completed = marker.high_completed.unwrap_or_default();
        self.open.prepares.completed = self.open.prepares.completed.max(completed);
        self.open.announced_prepared =
            (kind != CheckpointKind::Memory).then_some(marker.high_prepared.unwrap_or(marker.end));
        Ok(())
    }

    /// Checks that the active vBucket announced `document`, and that it may follow the changes
    /// held.
    pub(crate) fn check_next(
        &self,
        document: &Document,
        old: Option<&Document>,
        kept: bool,
    ) -> Result<(), ReplicaError> {
        let seqno = document.seqno();
        if seqno <= self.open.last || seqno > self.open.range.end || seqno < self.open.range.start {
            return Err(ReplicaError::OutOfRange);
        }
        if self.open.kind == CheckpointKind::Memory && self.collides(document, old, kept) {
            return Err(ReplicaError::Duplicate);
        }
        Ok(())
    }

    /// Last seqno at which the vBucket is consistent.
    pub(crate) fn last_complete(&self) -> Seqno {
        if self.open.is_complete() {
            self.open.last
        } else {
            self.open.complete_before
        }
    }

    /// Progress in the announced snapshots: from the last consistent seqno to the end of the
    /// snapshot that began after it. Both ends are the last seqno if no snapshot is incomplete.
    pub(crate) fn progress(&self) -> SnapshotRange {
        SnapshotRange {
            start: self.last_complete(),
            end: self.open.range.end.max(self.open.last),
        }
    }

    /// Declares the held changes complete, although the announced snapshot may not have ended.
    pub(crate) fn adopt(&mut self) {
        let last = self.open.last;
        self.open.range.end = last;
        self.open.announced_prepared = None;
        let begun = self.closed.iter_mut().rev();
        for run in begun.take_while(|run| run.range.end > last) {
            run.range.end = last;
        }
        self.close_checkpoint();
        self.open.kind = CheckpointKind::Memory;
        self.open.complete_before = last;
        if self.open.range.start <= last {
            self.open.range.start = last.next();
        }
    }
}
