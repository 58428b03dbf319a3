//! Checkpoints, and the runs of which they consist.

use model::{Document, Seqno, SnapshotRange};

/// Source of a checkpoint's changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointKind {
    /// Changes as they were made.
    #[default]
    Memory,
    /// Rows of another node's store; they are not de-duplicated.
    Disk,
    /// Rows of another node's store, into an empty vBucket.
    InitialDisk,
}

/// Consecutive changes that readers get as one snapshot.
///
/// A checkpoint has one run or several: a run also ends where a reader has taken all changes, so
/// that changes before that point stay unchanged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Number of the checkpoint; consecutive.
    pub(crate) checkpoint: u64,
    pub(crate) kind: CheckpointKind,
    /// Whether changes of collections with history are kept in its checkpoint.
    pub(crate) historical: bool,
    /// Number of the announced snapshot; all runs of one snapshot have the same.
    pub(crate) snapshot: u64,
    pub(crate) first_position: u64,
    /// First seqno of the checkpoint.
    pub(crate) checkpoint_start: Seqno,
    /// Seqno range for the snapshot marker. On an active vBucket, `end` is the last seqno, and
    /// `start` is above `end` while the run is empty. On a replica, the range that the active node
    /// announced.
    pub(crate) range: SnapshotRange,
    /// Last seqno.
    pub(crate) last: Seqno,
    /// Last seqno before this run at which the vBucket is consistent.
    pub(crate) complete_before: Seqno,
    /// Last seqno so far that is visible to clients: neither a prepare nor an abort.
    pub(crate) visible_end: Seqno,
    /// Progress of prepares at its last seqno.
    pub(crate) prepares: PrepareProgress,
    /// Progress of prepares before this run.
    pub(crate) prepares_before: PrepareProgress,
    /// Last prepare of a disk snapshot as announced; valid once the whole snapshot has arrived.
    pub(crate) announced_prepared: Option<Seqno>,
}

/// Progress of prepares at some point of the log; zero for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrepareProgress {
    /// Last prepare.
    pub(crate) prepared: Seqno,
    /// Last committed or aborted prepare.
    pub(crate) completed: Seqno,
}

/// Start of a log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LogStart {
    /// Last seqno before the log.
    pub(crate) high: Seqno,
    /// Snapshot that contains it; ends above `high` if a part is missing.
    pub(crate) snapshot: SnapshotRange,
    /// Progress of prepares at `high`.
    pub(crate) prepares: PrepareProgress,
    /// Number of cursors made by earlier logs: their numbers are not reused.
    pub(crate) cursors_made: u64,
}

impl Run {
    /// Returns the first run of a log.
    pub(crate) fn first(origin: &LogStart) -> Self {
        let LogStart { high, snapshot, .. } = *origin;
        let partial = snapshot.end > high;
        Self {
            checkpoint: 1,
            kind: CheckpointKind::Memory,
            historical: false,
            snapshot: 0,
            first_position: 0,
            checkpoint_start: high.next(),
            range: SnapshotRange {
                start: high.next(),
                end: if partial { snapshot.end } else { high },
            },
            last: high,
            complete_before: if partial {
                snapshot.start.min(high)
            } else {
                high
            },
            visible_end: high,
            prepares: origin.prepares,
            prepares_before: origin.prepares,
            announced_prepared: None,
        }
    }

    /// Records the newest change.
    pub(crate) fn add(&mut self, change: &Document) {
        let (seqno, kind) = (change.seqno(), change.kind());
        self.last = seqno;
        self.range.end = self.range.end.max(seqno);
        if !kind.is_prepared() {
            self.visible_end = self.visible_end.max(seqno);
        }
        if kind.is_prepare() {
            self.prepares.prepared = seqno;
        } else if kind.is_durable() {
            let completed = &mut self.prepares.completed;
            *completed = change.prepare_seqno().max(*completed);
        }
        if let (true, Some(prepared)) = (self.is_complete(), self.announced_prepared) {
            self.prepares.prepared = self.prepares.prepared.max(prepared);
        }
    }

    /// Whether all announced changes have arrived.
    pub(crate) fn is_complete(&self) -> bool {
        self.last >= self.range.end
    }

    /// Returns the next run of the same checkpoint, which begins at `position`.
    pub(crate) fn next(&self, position: u64) -> Self {
        let mut next = *self;
        next.first_position = position;
        next.prepares_before = self.prepares;
        next.range.start = next.range.start.max(self.last.next());
        if self.is_complete() {
            next.snapshot += 1;
            next.complete_before = self.last;
            next.range.end = self.last;
            next.announced_prepared = None;
        }
        next
    }
}
