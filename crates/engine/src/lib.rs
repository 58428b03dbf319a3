//! The vBucket as one plain value: hash table, checkpoints, document locks, failover log.
//!
//! This crate must not read a clock, draw random numbers, lock, start threads, touch files or
//! sockets, or know frames (`wire`) or rows (`storage`). Time and randomness are parameters. Work
//! that remains after an operation is put into the [`Outbox`].
//!
//! ```text
//!              get, store, delete, ...
//!                      |
//!                  VBucket --- commit() is the only entry point for a change
//!                 /        \
//!            Table          CheckpointLog        one Document, shared by both
//!     key -> newest      changes by seqno
//!                            |
//!                       FlushBatch               walked without the vBucket's lock
//! ```

mod bare;
mod checkpoint;
mod codec;
pub mod dcp;
mod drift;
mod durability;
mod error;
mod hlc;
mod locks;
mod mutated;
mod table;
mod types;
mod vbucket;

pub use bare::{BareCounts, BareTable};
pub use checkpoint::{
    BatchPlace, CheckpointKind, CheckpointPressure, CheckpointStats, CursorBatch, CursorId,
    CursorRead, CursorStats, FlushBatch, FlushBudget, FlushDone, FlushItem, Garbage, Registered,
    Released, ReplicaError, SlowestCursor, SnapshotMarker, SpareBuffers,
};
pub use codec::Codec;
pub use drift::{DriftLimits, FutureCas};
pub use durability::{Decided, Decision, Requirement};
pub use error::OpError;
pub use mutated::{CounterResult, Mutated};
pub use types::{
    Arithmetic, Concat, ConcatPlace, DocumentPart, Exchange, FetchKey, GetResult, GotMeta,
    HistoryPoint, KeyFilter, MemoryDelta, ObserveSeqno, ObserveState, Observed, Outbox, Outcome,
    ScanProgress, StoreMode, StoredKeys, VbConfig, WithMeta, Write,
};
pub use vbucket::{
    Applied, DurabilityChain, DurabilityStats, HashStats, Restored, VBucket, VbStats,
};
