//! Options of a store on disk.

use std::time::Duration;

/// Sizes and limits of a store on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Bytes of the log at which it is written to a run. In memory its index takes some 40 bytes a row.
    pub log_bytes: u64,
    /// Free bytes of the file system below which a commit is refused with `NoSpace`, so that
    /// background work still has space.
    pub free_bytes_min: u64,
    /// Minimum size of values that are not copied into runs; runs refer to their first position.
    pub apart_bytes_min: u32,
    /// Number of runs of similar size at which they are merged.
    pub runs_max: usize,
    /// Time without commits after which dead data is merged away ...
    pub quiet: Duration,
    /// ... if it has at least so many bytes, and is more than a fifth of all, or dead rows are more than a twelfth.
    pub dead_bytes_min: u64,
}

impl Default for DiskOptions {
    fn default() -> Self {
        Self {
            log_bytes: 32 << 20,
            free_bytes_min: 32 << 20,
            apart_bytes_min: 1 << 10,
            runs_max: 8,
            quiet: Duration::from_secs(2),
            dead_bytes_min: 64 << 20,
        }
    }
}
