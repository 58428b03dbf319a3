//! Checkpoints and the runs that they consist of.

use model::{Document, Seqno, SnapshotRange};

/// What a checkpoint was made from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CheckpointKind {
    /// Changes as they were made.
    #[default]
    Memory,
    /// Rows of another node's store: nothing in it is de-duplicated.
    Disk,
    /// The same, into a vBucket that had nothing.
    InitialDisk,
}

/// Consecutive changes that readers get as one snapshot.
///
/// A checkpoint is one run, or several: a run also ends where a reader took what there was, so
/// that nothing before that point changes any more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Number of the checkpoint; they are strictly consecutive.
    pub(crate) checkpoint: u64,
    pub(crate) kind: CheckpointKind,
    /// Whether changes of collections with history are kept in its checkpoint.
    pub(crate) historical: bool,
    /// Counts what was announced; runs of one snapshot have the same number.
    pub(crate) snapshot: u64,
    pub(crate) first_position: u64,
    /// Where the checkpoint begins.
    pub(crate) checkpoint_start: Seqno,
    /// What a marker says of it. On an active vBucket `end` is the newest change; `start` is past
    /// `end` while there is none. On a replica, the range that its own active announced.
    pub(crate) range: SnapshotRange,
    /// Its newest change.
    pub(crate) last: Seqno,
    /// The newest point before this run at which the vBucket is consistent.
    pub(crate) complete_before: Seqno,
    /// The newest change so far that clients may see: not a prepare, not an abort.
    pub(crate) visible_end: Seqno,
    /// The prepares up to its newest change.
    pub(crate) prepares: PrepareProgress,
    /// The same before this run.
    pub(crate) prepares_before: PrepareProgress,
    /// Of rows of another node's store: its newest prepare, known once all rows are here.
    pub(crate) announced_prepared: Option<Seqno>,
}

/// How far prepares have come at some point of the log; zero for none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PrepareProgress {
    /// The newest prepare.
    pub(crate) prepared: Seqno,
    /// The newest prepare that was committed or aborted.
    pub(crate) completed: Seqno,
}

/// Where a log begins.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Origin {
    /// The newest change.
    pub(crate) high: Seqno,
    /// The snapshot to which it belongs; past `high` if parts of it are missing.
    pub(crate) snapshot: SnapshotRange,
    /// The prepares up to it.
    pub(crate) prepares: PrepareProgress,
    /// Cursors are numbered from here on, so that none is taken for another vBucket object's.
    pub(crate) cursors_made: u64,
}

impl Run {
    /// The first run of a log.
    pub(crate) fn first(origin: &Origin) -> Self {
        let Origin { high, snapshot, .. } = *origin;
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

    /// Takes note of its newest change.
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

    /// Whether everything that was announced is here.
    pub(crate) fn is_complete(&self) -> bool {
        self.last >= self.range.end
    }

    /// What follows it, in the same checkpoint, from `position` on.
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
