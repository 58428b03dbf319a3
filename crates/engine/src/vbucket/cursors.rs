//! Cursors of streams over the log.

use model::Seqno;

use super::VBucket;
use crate::checkpoint::{
    CheckpointPressure, CursorId, CursorRead, CursorStats, FlushBudget, Garbage, Registered,
};

impl VBucket {
    /// Registers a cursor after `after`, or at the oldest change in memory if that is later. The
    /// result has the gap that must come from the store. Register before the store is read, so that
    /// no change is missed. Replaces a cursor of the same name.
    ///
    /// [`Outbox::changed`](crate::Outbox) notifies readers of new changes.
    ///
    /// Cost: O(log changes held), and O(cursors).
    pub fn register_cursor(&mut self, name: &str, after: Seqno) -> Registered {
        self.streams_notified = false;
        self.checkpoints.register(name, after)
    }

    /// Takes the next changes of one snapshot by reference, and moves the cursor past them. Each
    /// key has the version that was the newest when it was taken. Snapshots are complete: all
    /// announced changes come, in one batch or several, and at the snapshot's end the reader has
    /// the state of that seqno.
    ///
    /// Cost: O(segments taken + cursors) under the lock.
    pub fn take_from(&mut self, cursor: CursorId, budget: FlushBudget) -> CursorRead {
        self.streams_notified = false;
        self.checkpoints.take(cursor, budget)
    }

    /// Removes a cursor. Drop the result outside the lock.
    ///
    /// Cost: O(cursors + segments that only it pinned).
    pub fn remove_cursor(&mut self, cursor: CursorId) -> Garbage {
        self.checkpoints.remove(cursor)
    }

    /// Statistics of every cursor. Cost: O(segments) for each.
    pub fn cursor_stats(&self) -> impl Iterator<Item = CursorStats> {
        self.checkpoints.cursor_stats()
    }

    /// Drops the cursor of a stream, to free memory. The stream notices at its next read, and
    /// continues from the store. Drop the result outside the lock.
    ///
    /// Cost: O(cursors + segments detached).
    pub fn drop_cursor(&mut self, cursor: CursorId) -> Garbage {
        self.checkpoints.drop_cursor(cursor)
    }

    /// Returns the memory used by the log, and the ways to free some of it. Cost: O(segments held +
    /// cursors).
    pub fn checkpoint_pressure(&self) -> CheckpointPressure {
        self.checkpoints.pressure()
    }

    /// Detaches segments that every reader has passed. Reads and flushes do this themselves, so
    /// there is rarely anything left. Drop the result outside the lock.
    ///
    /// Cost: O(segments detached), independent of their length.
    pub fn expel(&mut self) -> Garbage {
        self.checkpoints.expel()
    }

    /// Sets the size in bytes at which checkpoints are closed; a larger open one is closed with the
    /// next change.
    pub fn set_checkpoint_bytes_max(&mut self, bytes: usize) {
        self.checkpoints.set_bytes_max(bytes);
    }
}
