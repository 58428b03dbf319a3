//! Durable history of the vBuckets of one bucket: the [`KvStore`] port and its implementations, on
//! disk ([`DiskStore`]) and in memory ([`MemStore`]).
//!
//! This crate may not know hash tables, checkpoints or connections. All its calls block, so they
//! are made from worker threads only, and never under a vBucket's lock. Only `lsm` and `names`
//! touch files.
//!
//! The layout on disk is drawn in `docs/format/`.

mod by_key;
mod error;
mod history;
mod key_range;
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where files are touched"
)]
mod lsm;
mod mem;
mod merged;
#[expect(
    clippy::disallowed_methods,
    reason = "the one place where names of files are changed"
)]
pub mod names;
mod per_vb;
mod points;
mod port;
#[cfg(test)]
mod suite;
mod work;

pub use cipher::{EncryptionKeys, KeysError};

pub use by_key::{KeyQuery, KeyRow, KeyRows};
pub use error::{ErrorKind, StoreError};
pub use history::{HistoryKept, HistoryLimits};
pub use key_range::KeyRange;
pub use lsm::{
    CheckProgress, Checked, Damage, DiskOptions, DiskStore, FileEncryption, FileLock, Keys,
    OpenError, OpenErrorKind, OpenedStore, SalvageError, Salvaged, check, encryption, key_text,
    salvage,
};
pub use mem::MemStore;
pub use port::{
    Change, Changes, CommitInfo, Compacted, DamagedRow, DiskUsage, DocumentRequest, Documents,
    Keep, KvStore, RowLooker, ScannedRow, Snapshot, VbBatch, WorkTotals,
};
pub use work::{Next, RunningWorker, Threads, WorkKind, Worker};
