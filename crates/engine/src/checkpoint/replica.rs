//! The log of a vBucket that follows another node's: its runs are the snapshots announced there.

use std::fmt;

use model::{Document, Seqno, SnapshotRange};

use super::{CheckpointKind, CheckpointLog};

/// What the active vBucket says of the changes that it is about to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotMarker {
    /// First seqno.
    pub start: Seqno,
    /// Last seqno; the state is that of the active vBucket once it is here.
    pub end: Seqno,
    /// Memory or Disk; whether it is an initial one is found out here.
    pub kind: CheckpointKind,
    /// Whether the active vBucket began a checkpoint.
    pub checkpoint: bool,
    /// The newest decided prepare, if it was told.
    pub high_completed: Option<Seqno>,
    /// Of a Disk snapshot: the newest prepare, if it was told.
    pub high_prepared: Option<Seqno>,
    /// The newest change that clients may see, if it was told.
    pub visible_end: Option<Seqno>,
    /// Highest purged tombstone, if it was told.
    pub purge_seqno: Option<Seqno>,
    /// Whether no change of a collection with history is missing in it.
    pub historical: bool,
}

/// Why a change or a snapshot of another node's vBucket is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaError {
    /// This vBucket does not follow another one.
    NotReplica,
    /// The seqno was here before, or no snapshot with it was announced.
    OutOfRange,
    /// The announcement contradicts itself; the text says how.
    Marker(&'static str),
    /// The active vBucket put two changes into one checkpoint that must not replace each other.
    Duplicate,
    /// The active vBucket decided a prepare that is not here.
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
    /// Begins the run that `marker` announces, in a checkpoint of its own if the active vBucket
    /// began one, or if it or the one before has rows of a store.
    pub(crate) fn begin_snapshot(&mut self, marker: &SnapshotMarker) -> Result<(), ReplicaError> {
        let high = self.open.last;
        marker.check(high)?;
        // The rest of the first rows, told as a part of its own or by another stream.
        let initial = self.open.kind == CheckpointKind::InitialDisk && !self.open.is_complete();
        let kind = match marker.kind {
            CheckpointKind::Memory => CheckpointKind::Memory,
            _ if high == Seqno::ZERO || initial => CheckpointKind::InitialDisk,
            _ => CheckpointKind::Disk,
        };
        // A snapshot of which only a part came is not whole before its end has passed: what was
        // replaced in it had its successor there, however the rest is announced now.
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

    /// Whether the active vBucket announced `document`, and it may follow what is here.
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

    /// The newest point at which the vBucket is consistent.
    pub(crate) fn last_complete(&self) -> Seqno {
        if self.open.is_complete() {
            self.open.last
        } else {
            self.open.complete_before
        }
    }

    /// Where this vBucket stands in what was announced: from the newest consistent point to the
    /// end of the snapshot that has begun after it; the newest change twice if there is none.
    pub(crate) fn progress(&self) -> SnapshotRange {
        SnapshotRange {
            start: self.last_complete(),
            end: self.open.range.end.max(self.open.last),
        }
    }

    /// What is here is from now on the truth: nothing is missing from the snapshot that has begun.
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
