//! Readers of the log: streams, each with a cursor of its own.

use model::Seqno;

use super::VBucket;
use crate::checkpoint::{
    CheckpointPressure, CursorId, CursorRead, CursorStats, FlushBudget, Garbage, Registered,
};

impl VBucket {
    /// Seats a reader after `after`, or at the oldest change in memory if that is later; the
    /// answer tells which, and so what must come from the store. Register before reading the
    /// store, and nothing is missed. A cursor of the same name is replaced.
    ///
    /// A reader is told what it has to come back for by [`Outbox::changed`](crate::Outbox).
    ///
    /// Cost: the logarithm of the changes held, and O(cursors).
    pub fn register_cursor(&mut self, name: &str, after: Seqno) -> Registered {
        self.streams_told = false;
        self.checkpoints.register(name, after)
    }

    /// Moves the cursor over its next changes, of one snapshot, and hands them out by reference:
    /// for each key the newest one when it was taken. Snapshots are whole: what was announced
    /// comes, in one batch or several, and at its end the reader has the state of that seqno.
    ///
    /// Cost: O(segments taken + cursors) under the lock.
    pub fn take_from(&mut self, cursor: CursorId, budget: FlushBudget) -> CursorRead {
        self.streams_told = false;
        self.checkpoints.take(cursor, budget)
    }

    /// Ends a cursor. Drop the answer outside of the lock.
    ///
    /// Cost: O(cursors + segments that only it held).
    pub fn remove_cursor(&mut self, cursor: CursorId) -> Garbage {
        self.checkpoints.remove(cursor)
    }

    /// Figures of every cursor. Cost: O(segments) for each.
    pub fn cursor_stats(&self) -> impl Iterator<Item = CursorStats> {
        self.checkpoints.cursor_stats()
    }

    /// Takes the cursor away from its stream, which hears of it from its next read and goes on
    /// from the store. Drop the answer outside of the lock.
    ///
    /// Cost: O(cursors + segments detached).
    pub fn drop_cursor(&mut self, cursor: CursorId) -> Garbage {
        self.checkpoints.drop_cursor(cursor)
    }

    /// What the changes in memory cost, and what could be done about it. Cost: O(segments held +
    /// cursors).
    pub fn checkpoint_pressure(&self) -> CheckpointPressure {
        self.checkpoints.pressure()
    }

    /// Detaches what every reader has passed. They do so themselves with every step, so that
    /// there is rarely anything left to find. Drop the answer outside of the lock.
    ///
    /// Cost: O(segments detached), whatever is in them.
    pub fn expel(&mut self) -> Garbage {
        self.checkpoints.expel()
    }

    /// Bytes of changes after which checkpoints are closed from now on; one that is larger is
    /// closed with the next change.
    pub fn set_checkpoint_bytes_max(&mut self, bytes: usize) {
        self.checkpoints.set_bytes_max(bytes);
    }
}
