//! What the log can tell about itself without looking at its changes.

use model::{Seqno, SnapshotRange};

use super::segment::Sealed;
use super::{Checkpoint, CheckpointLog};

/// Figures of the checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointStats {
    /// Number of the open checkpoint; they are strictly consecutive.
    pub open_id: u64,
    /// Checkpoints in memory, the open one included.
    pub checkpoints: u64,
    /// First seqno of the open checkpoint; past the last one while it is empty.
    pub snapshot_start: Seqno,
    /// Last seqno of the open checkpoint.
    pub snapshot_end: Seqno,
    /// Segments in memory, the one that takes changes included.
    pub segments: u64,
    /// Changes in memory.
    pub items: u64,
    /// Changes that are not durable yet.
    pub dirty_items: u64,
    /// Bytes of the documents of these, as allocated.
    pub dirty_bytes: usize,
    /// Bytes of slots and segments, without documents.
    pub slot_bytes: usize,
    /// Bytes of documents that only checkpoints still hold.
    pub stale_bytes: usize,
    /// Changes ever queued: where the next one will lie on the item line.
    pub next_position: u64,
    /// Where the persistence cursor stands on the item line.
    pub persistence_position: u64,
    /// Changes that a later one of the same key replaced in place.
    pub deduplicated: u64,
}

impl CheckpointLog {
    /// Range of the open checkpoint; of nothing (`high..=high`) while it is empty.
    pub(crate) fn snapshot(&self) -> SnapshotRange {
        let SnapshotRange { start, end } = self.open.snapshot;
        SnapshotRange {
            start: start.min(end),
            end,
        }
    }

    /// Bytes of slots, segments, and documents that only this log holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slot_bytes
            + self.stale_bytes
            + self.sealed.capacity().saturating_sub(self.sealed.len()) * size_of::<Sealed>()
            + self.closed.capacity() * size_of::<Checkpoint>()
    }

    pub(crate) fn stats(&self) -> CheckpointStats {
        CheckpointStats {
            open_id: self.open.id,
            checkpoints: self.closed.len() as u64 + 1,
            snapshot_start: self.open.snapshot.start,
            snapshot_end: self.open.snapshot.end,
            segments: self.sealed.len() as u64 + u64::from(!self.tail.is_empty()),
            items: self.items as u64,
            dirty_items: self.dirty_items as u64,
            dirty_bytes: self.dirty_bytes,
            slot_bytes: self.slot_bytes,
            stale_bytes: self.stale_bytes,
            next_position: self.next_position(),
            persistence_position: self.persisted,
            deduplicated: self.deduplicated,
        }
    }
}
