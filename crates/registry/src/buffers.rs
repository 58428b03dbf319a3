//! Back-pressure: the total of what connections hold for their peers, half-received requests and
//! answers that are not read, has one limit.
//!
//! One peer may have some 20 MiB of each, which is little; a thousand of them would take the
//! machine. Below the limit nothing is delayed. Above it large reservations wait, and connections
//! whose peers move nothing are closed, the largest first, until the total is below the limit.
//! Small reservations go on up to twice the limit.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::admission_queue::QueuePosition;
use crate::connections::ConnectionInfo;
use crate::served::ServedBucket;

/// What a connection may hold without it being counted; values below it never wait.
pub const SMALL_BYTES: usize = 16 << 10;
/// The least that all connections may hold together: a few of the largest documents; less with small
/// quotas.
const LEAST_BYTES: usize = 64 << 20;
const LEAST_QUOTA_PART: u64 = 4;
/// The most, as a part of the quotas.
const QUOTA_PART: u64 = 16;

/// The share of the limit that bodies of HTTP requests may take, so that slow requests leave the rest
/// to clients of documents.
const BODIES_PART: usize = 4;

/// The sum that connections hold.
pub struct Buffers {
    held: AtomicUsize,
    limit: AtomicUsize,
    least: AtomicUsize,
    closed: AtomicU64,
    /// What of it bodies of HTTP requests are.
    bodies: AtomicUsize,
}

impl Default for Buffers {
    fn default() -> Self {
        Self {
            held: AtomicUsize::new(0),
            limit: AtomicUsize::new(LEAST_BYTES),
            least: AtomicUsize::new(LEAST_BYTES),
            closed: AtomicU64::new(0),
            bodies: AtomicUsize::new(0),
        }
    }
}

impl Buffers {
    /// Bytes held now.
    pub fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes above which large reservations wait.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Connections closed so that others have room.
    pub fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// Counts a connection that was closed so that others have room.
    pub fn count_closed(&self) {
        self.closed.fetch_add(1, Ordering::Relaxed);
    }

    /// Whether large reservations have to wait.
    pub fn is_crowded(&self) -> bool {
        self.held() >= self.limit()
    }

    /// Whether small reservations have to wait, too.
    pub fn is_full(&self) -> bool {
        self.held() >= self.limit().saturating_mul(2)
    }

    /// Counts a part of an HTTP request's body, if there is room for it.
    pub fn hold_body(&self, bytes: usize) -> bool {
        let most = self.limit() / BODIES_PART;
        let add = |held: usize| held.checked_add(bytes).filter(|sum| *sum <= most);
        let order = Ordering::Relaxed;
        let fits = !self.is_crowded() && self.bodies.fetch_update(order, order, add).is_ok();
        if fits {
            self.change(0, bytes);
        }
        fits
    }

    /// Gives it back.
    pub fn release_body(&self, bytes: usize) {
        self.bodies.fetch_sub(bytes, Ordering::Relaxed);
        self.change(bytes, 0);
    }

    /// Lets the limit follow the quotas of all buckets.
    pub fn follow_quota(&self, quota_bytes: u64) {
        let part = |of: u64| usize::try_from(quota_bytes / of).unwrap_or(usize::MAX);
        let least = self.least.load(Ordering::Relaxed);
        let least = least.min(part(LEAST_QUOTA_PART));
        self.limit
            .store(part(QUOTA_PART).max(least), Ordering::Relaxed);
    }

    /// Another least sum; it counts from the next look on.
    #[cfg(feature = "testing")]
    pub fn set_least(&self, bytes: usize) {
        self.least.store(bytes, Ordering::Relaxed);
    }

    fn change(&self, before: usize, after: usize) {
        if after >= before {
            self.held.fetch_add(after - before, Ordering::Relaxed);
            return;
        }
        self.held.fetch_sub(before - after, Ordering::Relaxed);
    }
}

/// What one connection holds; given back when it is dropped. It counts against the quota of its
/// bucket meanwhile.
pub struct Held {
    buffers: Arc<Buffers>,
    info: Arc<ConnectionInfo>,
    bytes: usize,
    bucket: Option<Arc<ServedBucket>>,
    /// Its position in the bucket's admission queue.
    position: Option<QueuePosition>,
}

impl Held {
    /// A connection that holds nothing yet.
    pub fn nothing(buffers: &Arc<Buffers>, info: &Arc<ConnectionInfo>) -> Self {
        Self {
            buffers: Arc::clone(buffers),
            info: Arc::clone(info),
            bytes: 0,
            bucket: None,
            position: None,
        }
    }

    /// Joins the admission queue of `bucket`. Returns whether it is first.
    pub fn is_first_in_queue(&mut self, bucket: &ServedBucket) -> bool {
        let join = || bucket.admission_queue.join();
        self.position.get_or_insert_with(join).is_first()
    }

    /// Leaves the admission queue.
    pub fn leave_queue(&mut self) {
        self.position = None;
    }

    /// Notes that it holds so many bytes now, for what is done in `bucket`.
    pub fn note(&mut self, bytes: usize, bucket: Option<&Arc<ServedBucket>>) {
        let bytes = if bytes <= SMALL_BYTES { 0 } else { bytes };
        if bytes == self.bytes {
            return;
        }
        self.buffers.change(self.bytes, bytes);
        self.info.note_held(bytes);
        let before = std::mem::replace(&mut self.bytes, bytes);
        match (&self.bucket, bucket) {
            (Some(old), Some(new)) if Arc::ptr_eq(old, new) => {
                old.bucket.change_transit(before, bytes);
            }
            (old, new) => {
                if let Some(old) = old {
                    old.bucket.change_transit(before, 0);
                }
                if let Some(new) = new {
                    new.bucket.change_transit(0, bytes);
                }
                self.bucket = new.cloned();
            }
        }
        if bytes == 0 {
            // A bucket that is dropped does not stay for the sake of a connection at rest.
            self.bucket = None;
        }
    }

    /// The sum that this is a part of.
    pub fn all(&self) -> &Buffers {
        &self.buffers
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.note(0, None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_of_requests_hold_a_part_and_give_it_back() {
        let buffers = Buffers::default();
        let most = LEAST_BYTES / BODIES_PART;
        assert!(buffers.hold_body(most - 1) && !buffers.hold_body(2) && buffers.hold_body(1));
        assert_eq!(buffers.held(), most);
        buffers.release_body(most);
        assert_eq!(buffers.held(), 0);
        buffers.change(0, LEAST_BYTES);
        assert!(!buffers.hold_body(1), "there is no room at all");
    }

    #[test]
    fn the_limit_follows_the_quotas() {
        let buffers = Buffers::default();
        buffers.follow_quota(100 << 20);
        assert_eq!(buffers.limit(), 25 << 20);
        buffers.follow_quota(512 << 20);
        assert_eq!(buffers.limit(), LEAST_BYTES);
        buffers.follow_quota(16 << 30);
        assert_eq!(buffers.limit(), 1 << 30);
        buffers.change(0, 1 << 30);
        assert!(buffers.is_crowded() && !buffers.is_full());
        buffers.change(1 << 30, 5);
        assert_eq!((buffers.held(), buffers.is_crowded()), (5, false));
    }
}
