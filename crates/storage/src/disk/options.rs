//! Sizes of a store.

use std::time::Duration;

/// Sizes of a [`DiskStore`](super::DiskStore).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Bytes of blocks read from disk that are kept in memory; taken only as blocks are read.
    pub cache_bytes: u64,
    /// Bytes of the journal at which it becomes tables. In memory it takes 16 bytes a row.
    pub journal_bytes: u64,
    /// A commit is refused with `NoSpace` while fewer bytes are free on the file system, so that
    /// what runs in the background does not meet a full one.
    pub free_bytes_min: u64,
    /// A vBucket's batch of at least so many changes is written as tables at once, past the
    /// journal: it is written once instead of twice, but takes some nine syncs.
    pub direct_rows_min: usize,
    /// Rows of at least so many bytes lie in files of their own beside the tables. A merge holds
    /// a row of each run in memory, and writes all rows but these anew. A store keeps the number
    /// with which it was made.
    pub blob_bytes_min: u32,
    /// Rows of at least so many bytes, and below those apart, are not copied when a journal becomes
    /// tables: these refer to them until they are merged.
    pub refer_bytes_min: u32,
    /// A merge of runs does not copy rows of the youngest journals either, as long as these hold at
    /// most so many percent of what lives: most of them are dead by the time of a later one.
    pub left_percent: u32,
    /// Bytes that live, up to which a merge of runs takes all tables there are. Beyond that it takes some of
    /// them, and leaves no rows in journals.
    pub whole_bytes_max: u64,
    /// When no tables were added for so long, what is dead in them is merged away, ...
    pub quiet: Duration,
    /// ... if it is at least so many bytes, and half of all.
    pub dead_bytes_min: u64,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 16 << 20,
            journal_bytes: 32 << 20,
            free_bytes_min: 32 << 20,
            direct_rows_min: 30_000,
            blob_bytes_min: 1 << 20,
            refer_bytes_min: 512,
            left_percent: 130,
            whole_bytes_max: 6 << 30,
            quiet: Duration::from_secs(2),
            dead_bytes_min: 64 << 20,
        }
    }
}
