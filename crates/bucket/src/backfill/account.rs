//! How much backfills may hold: all of a bucket together, and each connection.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Most bytes of read documents that a connection's streams hold, but for one chunk, until a
/// bucket is told otherwise; less where all of the bucket hold much.
pub const BACKFILL_BYTES_MAX: usize = 20 << 20;
/// Backfills of one connection that read at the same time until a bucket is told otherwise; more
/// wait.
pub const BACKFILLS_PER_CONNECTION_MAX: usize = 64;
/// The largest chunk.
pub(crate) const CHUNK_DOCUMENTS_MAX: usize = 4096;
const CHUNK_BYTES_MAX: usize = 4 << 20;
/// What a connection that holds nothing may read whatever the others hold: theirs may be
/// clients that do not read.
pub const BACKFILL_BYTES_MIN: usize = 64 << 10;

/// What all backfills of a bucket hold, and what they may.
#[derive(Debug)]
pub(crate) struct BackfillAccount {
    bytes: AtomicU64,
    bytes_max: AtomicU64,
    /// What each connection may hold, and how many of its backfills read at once.
    each_max: AtomicUsize,
    at_once: AtomicUsize,
    /// No backfill had space to read: the next return of bytes rings the backfiller.
    starved: AtomicBool,
}

impl BackfillAccount {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            bytes: AtomicU64::new(0),
            bytes_max: AtomicU64::new(bytes_max),
            each_max: AtomicUsize::new(BACKFILL_BYTES_MAX),
            at_once: AtomicUsize::new(BACKFILLS_PER_CONNECTION_MAX),
            starved: AtomicBool::new(false),
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::SeqCst)
    }

    pub(crate) fn bytes_max(&self) -> u64 {
        self.bytes_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_bytes_max(&self, bytes: u64) {
        self.bytes_max.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn each_max(&self) -> usize {
        self.each_max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_each_max(&self, bytes: usize) {
        self.each_max.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn at_once(&self) -> usize {
        self.at_once.load(Ordering::Relaxed)
    }

    pub(crate) fn set_at_once(&self, count: usize) {
        self.at_once.store(count, Ordering::Relaxed);
    }

    /// What may be read beyond what is held.
    pub(crate) fn free(&self) -> usize {
        let free = self.bytes_max().saturating_sub(self.bytes());
        usize::try_from(free).unwrap_or(usize::MAX)
    }

    /// Whether no connection may read any more, not even one that holds nothing: documents were
    /// larger than the least chunks.
    pub(crate) fn is_overfull(&self) -> bool {
        self.bytes() > self.bytes_max().saturating_mul(2)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    /// Returns whether a backfill waits for it.
    pub(crate) fn give_back(&self, bytes: usize) -> bool {
        self.bytes.fetch_sub(bytes as u64, Ordering::SeqCst);
        self.starved.swap(false, Ordering::SeqCst)
    }

    /// Notes that no backfill had space. Returns `false` when something was given back since the
    /// last call, so that it is worth another look.
    pub(crate) fn note_starved(&self) -> bool {
        self.starved.swap(true, Ordering::SeqCst)
    }
}

/// Bytes that a connection may read next which holds `held` of `max` while `free` are left for
/// all; `None` for nothing.
///
/// Each may hold as much as is left: n connections that do not read leave as much as each of
/// them holds for the next one.
pub(super) fn chunk_of(held: usize, max: usize, free: usize) -> Option<usize> {
    let left = free.min(max).saturating_sub(held);
    (left > 0 || held == 0).then(|| left.clamp(BACKFILL_BYTES_MIN, CHUNK_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn each_may_hold_as_much_as_is_left_for_all() {
        let chunk = |held, free| chunk_of(held, 20 * MIB, free);
        assert_eq!(chunk(0, 100 * MIB), Some(CHUNK_BYTES_MAX));
        assert_eq!(chunk(19 * MIB, 100 * MIB), Some(MIB));
        assert_eq!(chunk(20 * MIB, 100 * MIB), None, "its own limit");
        assert_eq!(chunk(3 * MIB, 4 * MIB), Some(MIB));
        assert_eq!(chunk(4 * MIB, 4 * MIB), None);
        assert_eq!(chunk(MIB, MIB + 1), Some(BACKFILL_BYTES_MIN));
        assert_eq!(chunk(0, 0), Some(BACKFILL_BYTES_MIN));
        assert_eq!(chunk(1, 0), None);
    }

    #[test]
    fn who_gives_back_is_told_once_that_somebody_waits() {
        let account = BackfillAccount::new(100);
        account.add(70);
        assert_eq!(account.free(), 30);
        assert!(!account.give_back(10));
        assert!(!account.note_starved(), "worth another look");
        assert!(account.note_starved());
        assert!(account.give_back(10));
        assert!(!account.give_back(10));
        assert_eq!((account.bytes(), account.free()), (40, 60));
        account.set_bytes_max(20);
        assert_eq!((account.free(), account.is_overfull()), (0, false));
        account.set_bytes_max(10);
        assert!(account.is_overfull());
    }
}
