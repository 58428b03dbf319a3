//! The log of changes: slots in segments; checkpoints are ranges of them.
//!
//! ```text
//! checkpoints   | 7        | 8                        | 9 open        |
//! runs          |          |             |            |       | open  |
//! segments      [ s s s s s s ][ s s . s s s s s s s s ][ s s s . s s s _ _ _ ]
//! positions     40                       ^52                         ^62
//!                          ^a stream     ^persistence  s change, . de-duplicated
//! ```
//!
//! Slots are never removed from the middle, so the position of a slot is a stable number, and a
//! cursor is such a number. Only the last segment, the tail, takes changes. Only in the open run
//! does a change replace an older one of its key in place. A reader ends the open run and takes
//! segments by reference, or copies of the slots of a short one. So changes that were read or
//! announced stay unchanged.

mod append;
mod batch;
mod cursor;
mod cursors;
mod flight;
mod log;
mod replica;
mod run;
mod segment;
mod spare;
mod stats;
#[cfg(test)]
mod tests;

pub(crate) use append::LogEntry;
pub(crate) use batch::{FlightId, Taken};
pub use batch::{FlushBatch, FlushBudget, FlushDone, FlushItem, Garbage, Released};
pub use cursor::{
    BatchPlace, CheckpointPressure, CursorBatch, CursorId, CursorRead, CursorStats, Registered,
    SlowestCursor,
};
pub(crate) use flight::Flight;
pub(crate) use log::CheckpointLog;
pub use replica::{ReplicaError, SnapshotMarker};
pub use run::CheckpointKind;
pub(crate) use run::{LogStart, PrepareProgress};
pub use spare::SpareBuffers;
pub use stats::CheckpointStats;
