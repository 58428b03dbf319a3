//! Statistics of the log, computed without reading its changes.

use model::Seqno;

use super::batch::Released;
use super::cursor::Cursor;
use super::run::Run;
use super::segment::{Sealed, slots_bytes};
use super::{CheckpointKind, CheckpointLog};

/// Statistics of the checkpoints.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointStats {
    /// Number of the open checkpoint; consecutive.
    pub open_id: u64,
    /// Source of the open checkpoint's changes.
    pub open_kind: CheckpointKind,
    /// Checkpoints in memory, the open one included.
    pub checkpoints: u64,
    /// First seqno of the open checkpoint; above the last one while it is empty.
    pub snapshot_start: Seqno,
    /// Last seqno of the open checkpoint.
    pub snapshot_end: Seqno,
    /// Last seqno up to here that is visible to clients.
    pub visible_end: Seqno,
    /// Segments in memory, including the open one.
    pub segments: u64,
    /// Changes in memory.
    pub items: u64,
    /// Changes that are not durable yet.
    pub dirty_items: u64,
    /// Allocated bytes of their documents.
    pub dirty_bytes: usize,
    /// Bytes of slots and segments, without documents.
    pub slot_bytes: usize,
    /// Bytes of documents that only checkpoints hold.
    pub stale_bytes: usize,
    /// Position of the next change: the number of changes ever appended.
    pub next_position: u64,
    /// Position of the persistence cursor.
    pub persistence_position: u64,
    /// Checkpoint that the persistence cursor reads next.
    pub persistence_checkpoint: u64,
    /// Changes that were replaced in place by a later one of the same key.
    pub deduplicated: u64,
    /// Stream cursors.
    pub cursors: u64,
    /// Cursors that were dropped to free memory.
    pub cursors_dropped: u64,
    /// Changes removed because the last cursor had passed them.
    pub removed: Released,
    /// Changes expelled because memory was short.
    pub expelled: Released,
}

impl CheckpointLog {
    /// Bytes of slots, segments, and documents that only this log holds.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.slot_bytes
            + self.stale_bytes
            + self.sealed.capacity().saturating_sub(self.sealed.len()) * size_of::<Sealed>()
            + self.closed.capacity() * size_of::<Run>()
            + self.cursors.capacity() * size_of::<Cursor>()
            + self
                .prepared_keys
                .as_ref()
                .map_or(0, |keys| keys.allocation_size())
    }

    pub(crate) fn stats(&self) -> CheckpointStats {
        CheckpointStats {
            open_id: self.open.checkpoint,
            open_kind: self.open.kind,
            checkpoints: self.open.checkpoint + 1 - self.run(0).checkpoint,
            snapshot_start: self.open.checkpoint_start,
            snapshot_end: self.open.last,
            visible_end: self.open.visible_end,
            segments: self.sealed.len() as u64 + u64::from(!self.tail.is_empty()),
            items: self.items as u64,
            dirty_items: self.dirty_items as u64,
            dirty_bytes: self.dirty_bytes,
            slot_bytes: self.slot_bytes,
            stale_bytes: self.stale_bytes,
            next_position: self.next_position(),
            persistence_position: self.persisted,
            persistence_checkpoint: self.run(self.run_at(self.persisted)).checkpoint,
            deduplicated: self.deduplicated,
            cursors: self.cursors.len() as u64,
            cursors_dropped: self.cursors_dropped,
            removed: self.removed,
            expelled: self.expelled,
        }
    }

    /// Bytes that only the log holds, in segments that end in this range of positions.
    pub(super) fn bytes_between(&self, from: u64, to: u64) -> usize {
        let sealed = self
            .sealed
            .iter()
            .skip_while(|sealed| sealed.end_position <= from)
            .take_while(|sealed| sealed.end_position <= to);
        let tail = if to == u64::MAX {
            slots_bytes(&self.tail) + self.tail_facts.stale_bytes
        } else {
            0
        };
        sealed
            .map(|sealed| sealed.slot_bytes + sealed.facts.stale_bytes)
            .sum::<usize>()
            + tail
    }
}
