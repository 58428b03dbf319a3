//! Back-pressure: the node's account of connection buffers (partly received requests and unread
//! responses). One limit applies to their sum.
//!
//! One peer may have some 20 MiB of each, which is little; a thousand peers would use all memory of
//! the machine. Below the limit nothing is delayed. Above it large reservations wait, and
//! connections whose peers move no data are closed, the largest first, until the sum is below the
//! limit. Small reservations are granted up to twice the limit.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::memory::{Memory, MemoryWaits, Usage};

/// Bytes that a connection may hold uncounted. Values below this size never wait.
pub const SMALL_BYTES: usize = 16 << 10;
/// Minimum of the limit: a few of the largest documents; less with small quotas.
const LEAST_BYTES: usize = 64 << 20;
const LEAST_QUOTA_PART: u64 = 4;
/// Limit of a node without buckets: the requests that create the first one have bodies, too.
const NO_QUOTA_BYTES: usize = 1 << 20;
/// Divisor: the limit is this part of the quotas.
const QUOTA_PART: u64 = 16;

/// Divisor: bodies of HTTP requests may take this part of the limit, so that slow requests leave
/// the rest to clients of documents.
const BODIES_PART: usize = 4;

/// Sum of the bytes that connections hold.
#[derive(Debug)]
pub struct Buffers {
    waits: MemoryWaits,
    held: AtomicUsize,
    limit: AtomicUsize,
    least: AtomicUsize,
    closed: AtomicU64,
    /// Bytes of `held` that belong to bodies of HTTP requests.
    bodies: AtomicUsize,
}

impl Default for Buffers {
    fn default() -> Self {
        Self::new(MemoryWaits::default())
    }
}

impl Buffers {
    /// Creates an empty account; `waits` limits how long clients wait for memory.
    pub fn new(waits: MemoryWaits) -> Self {
        Self {
            waits,
            held: AtomicUsize::new(0),
            limit: AtomicUsize::new(LEAST_BYTES),
            least: AtomicUsize::new(LEAST_BYTES),
            closed: AtomicU64::new(0),
            bodies: AtomicUsize::new(0),
        }
    }

    /// Returns the longest waits of clients.
    pub(crate) fn waits(&self) -> &MemoryWaits {
        &self.waits
    }

    /// Returns the bytes held.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Returns the bytes above which large reservations wait.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Returns the number of connections closed to free memory for others.
    pub fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// Counts a connection that was closed to free memory for others.
    pub fn count_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether large reservations have to wait: connections hold too much, in all or in the bucket of `memory`.
    #[inline]
    pub fn is_congested(&self, memory: Option<&Memory>) -> bool {
        self.held() >= self.limit() || memory.is_some_and(Memory::is_transit_congested)
    }

    /// Returns the bytes held and the limit.
    pub(crate) fn usage(&self) -> Usage {
        Usage {
            used: self.held() as u64,
            allowed: self.limit() as u64,
        }
    }

    /// Whether small reservations have to wait, too.
    pub(crate) fn overflows(&self) -> bool {
        self.held() >= self.limit().saturating_mul(2)
    }

    /// Returns the bytes of bodies with `bytes` added, and the allowed bytes, if the sum exceeds them.
    pub(crate) fn bodies_exceeded(&self, bytes: u64) -> Option<Usage> {
        let used = bytes.saturating_add(self.bodies.load(Ordering::Relaxed) as u64);
        let allowed = (self.limit() / BODIES_PART) as u64;
        (used > allowed).then_some(Usage { used, allowed })
    }

    /// Counts a part of an HTTP request's body.
    pub fn hold_body(&self, bytes: usize) {
        self.bodies.fetch_add(bytes, Ordering::Relaxed);
        self.change(0, bytes);
    }

    /// Subtracts a released part of an HTTP request's body.
    pub fn release_body(&self, bytes: usize) {
        self.bodies.fetch_sub(bytes, Ordering::Relaxed);
        self.change(bytes, 0);
    }

    /// Sets the limit from the sum of the quotas of all buckets.
    pub fn follow_quota(&self, quota_bytes: u64) {
        let part = |of: u64| usize::try_from(quota_bytes / of).unwrap_or(usize::MAX);
        let least = self.least.load(Ordering::Relaxed);
        let least = least.min(part(LEAST_QUOTA_PART));
        let limit = part(QUOTA_PART).max(least).max(NO_QUOTA_BYTES);
        self.limit.store(limit, Ordering::Relaxed);
    }

    /// Sets another minimum; it applies from the next `follow_quota` on.
    pub fn set_least(&self, bytes: usize) {
        self.least.store(bytes, Ordering::Relaxed);
    }

    /// Counts that a connection holds `after` bytes instead of `before`.
    pub fn change(&self, before: usize, after: usize) {
        if after >= before {
            self.held.fetch_add(after - before, Ordering::Relaxed);
            return;
        }
        self.held.fetch_sub(before - after, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_follows_quotas() {
        let buffers = Buffers::default();
        buffers.follow_quota(0);
        assert_eq!(buffers.limit(), NO_QUOTA_BYTES, "without buckets");
        buffers.follow_quota(100 << 20);
        assert_eq!(buffers.limit(), 25 << 20);
        buffers.follow_quota(512 << 20);
        assert_eq!(buffers.limit(), LEAST_BYTES);
        buffers.follow_quota(16 << 30);
        assert_eq!(buffers.limit(), 1 << 30);
        buffers.change(0, 1 << 30);
        assert!(buffers.is_congested(None) && !buffers.overflows());
        buffers.change(1 << 30, 5);
        assert_eq!((buffers.held(), buffers.is_congested(None)), (5, false));
    }
}
