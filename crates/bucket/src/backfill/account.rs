//! Memory limits of backfills: for a bucket in all, and for each connection.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// Default maximum of bytes of read documents that a connection's streams hold, plus one chunk;
/// less if all streams of the bucket hold much.
pub const BACKFILL_BYTES_MAX: usize = 20 << 20;
/// Default maximum of concurrent backfills of one connection; more wait.
pub const BACKFILLS_PER_CONNECTION_MAX: usize = 64;
/// Maximum size of a chunk.
pub(crate) const CHUNK_DOCUMENTS_MAX: usize = 4096;
const CHUNK_BYTES_MAX: usize = 4 << 20;
/// Bytes that a connection without read documents may always read: the others may have clients that do not read.
pub const BACKFILL_BYTES_MIN: usize = 64 << 10;

/// Bytes that all backfills of a bucket hold, and their limits.
#[derive(Debug)]
pub(crate) struct BackfillAccount {
    bytes: AtomicU64,
    bytes_max: AtomicU64,
    /// Limits of each connection: bytes held, and concurrent backfills.
    each_max: AtomicUsize,
    at_once: AtomicUsize,
    /// Whether no backfill had space to read. Then the next release of bytes rings the backfiller.
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

    /// Returns the bytes that may still be read.
    pub(crate) fn free(&self) -> usize {
        let free = self.bytes_max().saturating_sub(self.bytes());
        usize::try_from(free).unwrap_or(usize::MAX)
    }

    /// Whether no connection may read more, not even one that holds nothing: documents were larger
    /// than the smallest chunks.
    pub(crate) fn is_overfull(&self) -> bool {
        self.bytes() > self.bytes_max().saturating_mul(2)
    }

    pub(crate) fn add(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::SeqCst);
    }

    /// Subtracts released bytes. Returns whether a backfill waits for them.
    pub(crate) fn give_back(&self, bytes: usize) -> bool {
        self.bytes.fetch_sub(bytes as u64, Ordering::SeqCst);
        self.starved.swap(false, Ordering::SeqCst)
    }

    /// Records that no backfill had space. Returns `false` if bytes were released since the last
    /// call: then the caller should check again.
    pub(crate) fn note_starved(&self) -> bool {
        self.starved.swap(true, Ordering::SeqCst)
    }
}

/// Returns the bytes that a connection may read next, if it holds `held` of `max` bytes and `free`
/// bytes are left for all; `None` for nothing.
///
/// Each connection may hold as much as is left: if n connections do not read, the next one gets as
/// much as each of them holds.
pub(super) fn chunk_of(held: usize, max: usize, free: usize) -> Option<usize> {
    let left = free.min(max).saturating_sub(held);
    (left > 0 || held == 0).then(|| left.clamp(BACKFILL_BYTES_MIN, CHUNK_BYTES_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn connection_may_hold_as_much_as_is_left() {
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
    fn give_back_reports_a_waiting_backfill_once() {
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
