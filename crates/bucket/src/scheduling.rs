//! How the work of a bucket shares the processors with the threads that answer clients.
//!
//! - *Foreground*: requests wait for it. Its threads have the priority of those that answer clients.
//! - *Background*: it may be late. Its threads have a lower priority, and it pauses after each
//!   100 us or so of work.
//! - *Hurried*: background work that clients wait for, for memory or for durability. It does not
//!   pause, and does its work in smaller parts.

use std::time::Duration;

/// Niceness of the threads of background work. With it, requests of 50 connections beside a flush
/// have a median 12 % lower.
#[cfg(target_os = "linux")]
const BACKGROUND_NICENESS: i32 = 10;

/// How long background work pauses; the system adds some 50 us. Longer pieces of work hold up a
/// thread that answers clients for milliseconds, however low their priority. Yielding would give
/// the rest of the thread's slice away, and let it wait for as long.
pub(crate) const PAUSE: Duration = Duration::from_micros(20);

/// How the threads of a lane are scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Priority {
    Foreground,
    Background,
}

impl Priority {
    /// Gives this thread the priority; threads that it starts inherit it. Where the system cannot,
    /// nothing changes.
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

/// How much one commit takes, and whether it pauses.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CommitPolicy {
    /// So that a burst does not delay what comes after it.
    pub(crate) bytes_max: usize,
    /// A commit of more changes does not pause: much is to be done.
    pub(crate) paused_changes_max: usize,
}

impl CommitPolicy {
    pub(crate) const BACKGROUND: Self = Self {
        bytes_max: 16 << 20,
        paused_changes_max: 2048,
    };
    /// Writes wait for the memory that a commit sets free.
    pub(crate) const HURRIED: Self = Self {
        bytes_max: 2 << 20,
        paused_changes_max: 256,
    };
    /// vBuckets that are visited between two pauses, in some 100 us.
    const VISITS_PER_PAUSE: usize = 64;

    /// Whether a commit of so many changes pauses before this visit of a vBucket, counted from 1.
    pub(crate) fn pauses_at(&self, visit: usize, changes: usize) -> bool {
        visit.is_multiple_of(Self::VISITS_PER_PAUSE) && changes <= self.paused_changes_max
    }
}
