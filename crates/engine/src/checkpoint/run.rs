//! Checkpoints and the runs that they consist of.

use model::{Seqno, SnapshotRange};

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
    /// The newest prepare so far, zero for none.
    pub(crate) high_prepared: Seqno,
    /// The newest prepare so far that was committed or aborted, zero for none.
    pub(crate) high_completed: Seqno,
}

impl Run {
    /// The first run of a log whose first change follows `high`.
    pub(crate) fn first(high: Seqno) -> Self {
        Self {
            checkpoint: 1,
            kind: CheckpointKind::Memory,
            first_position: 0,
            checkpoint_start: high.next(),
            range: SnapshotRange {
                start: high.next(),
                end: high,
            },
            last: high,
            complete_before: high,
            visible_end: high,
            high_prepared: Seqno::ZERO,
            high_completed: Seqno::ZERO,
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
        if self.is_complete() {
            next.complete_before = self.last;
            next.range = SnapshotRange {
                start: self.last.next(),
                end: self.last,
            };
        }
        next
    }
}
