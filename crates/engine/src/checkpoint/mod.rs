//! The log of changes: a line of slots in segments, over which checkpoints are laid.
//!
//! ```text
//! checkpoints   | 7        | 8                        | 9 open        |
//! runs          |          |             |            |       | open  |
//! segments      [ s s s s s s ][ s s . s s s s s s s s ][ s s s . s s s _ _ _ ]
//! positions     40                       ^52                         ^62
//!                          ^a stream     ^persistence  s change, . de-duplicated
//! ```
//!
//! Slots are never taken out of the middle, so a position on the item line is a number that
//! stays, and a cursor is such a number. Only the last segment, the tail, takes changes, and
//! only in the open run do they replace older ones of their keys in place. A reader ends the
//! open run and takes segments by reference, or, of a short one, copies of its slots; so what
//! was handed out, and what was announced, stays whole.

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
pub(crate) use run::{Origin, PrepareProgress};
pub use spare::SpareBuffers;
pub use stats::CheckpointStats;
