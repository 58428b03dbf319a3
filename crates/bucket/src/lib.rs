//! A running bucket: the engine's vBuckets behind locks, a store behind workers.
//!
//! This crate may not use async code or sockets, and it does not know the wire protocol. It adds to
//! `engine` and `storage` the parts of a running bucket: one lock per vBucket, the delivery of
//! outboxes, the memory account, the workers, and the pool whose threads run the workers of all
//! buckets.
//!
//! Lock order: the turn to write into the store (flusher and deletions), then one vBucket's slot
//! (at most one per thread), then leaves (signals, queues). No call leaves this crate while a leaf
//! is held, and no I/O is done while a slot is held.

mod admission;
mod backfill;
mod bucket;
mod buffers;
mod collections;
mod compactions;
mod durable;
mod erasure;
mod failure_log;
mod histogram;
mod history;
mod holds;
mod leases;
mod lifecycle;
mod memory;
mod persistence_waits;
mod pool;
mod prefetch;
mod quarantine;
mod read_batching;
mod replica;
mod reservation;
mod scans;
mod scheduling;
mod settings;
mod signals;
mod slot;
mod starvation;
mod stats;
mod stored_key;
mod subscribers;
mod summary;
mod workers;

pub use self::collections::SetManifestError;
pub use admission::{Limit, Purpose, Reservation, Shortage};
pub use backfill::{
    BACKFILL_BYTES_MAX, BACKFILL_BYTES_MIN, BACKFILLS_PER_CONNECTION_MAX, Backfill, BackfillBuffer,
    BackfillChunk, BackfillNews, ChosenRows, WantedRows,
};
pub use bucket::{Bucket, BucketOptions};
pub use buffers::{Buffers, SMALL_BYTES};
pub use compactions::{CompactionRules, CompactionTicket};
pub use durable::DurableWait;
pub use histogram::{Histogram, HistogramBucket};
pub use history::HistoryRetention;
pub use holds::{HOLDS, Hold, Holds};
pub use leases::Leases;
pub use memory::{
    Eviction, Limits, Memory, MemoryWaits, Pressure, Relief, Share, TransitBytes, Usage,
    next_relief,
};
pub use pool::Pool;
pub use quarantine::Quarantined;
pub use read_batching::ReadBatching;
pub use replica::{PrepareEnd, ReplicaPosition};
pub use scans::{
    Sampling, Scan, ScanError, ScanId, ScanInfo, ScanNext, ScanRequest, ScanRows, ScanRun,
    ScanStage,
};
pub use signals::{Bell, Clock, Wake};
pub use stats::{CompactionStats, Counters, FlusherState, RefillState, WarmupStage, WarmupStats};
pub use subscribers::ReadySet;
pub use workers::{Backfilled, Fetch, Flushed, WorkerFigures, Workers};
