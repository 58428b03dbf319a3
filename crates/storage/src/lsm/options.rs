//! Sizes of a store.

use std::time::Duration;

/// Sizes of a store on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskOptions {
    /// Bytes of the log at which it becomes a run. In memory it takes some 40 bytes a row.
    pub log_bytes: u64,
    /// A commit is refused with `NoSpace` while fewer bytes are free on the file system, so that what runs in the
    /// background does not meet a full one.
    pub free_bytes_min: u64,
    /// Values of at least so many bytes are not copied into runs, which refer to where they were written first.
    pub apart_bytes_min: u32,
    /// Runs of about one size are merged when there are so many.
    pub runs_max: usize,
    /// When nothing was committed for so long, what is dead is merged away, ...
    pub quiet: Duration,
    /// ... if it is at least so many bytes, and more than a fifth of all.
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
