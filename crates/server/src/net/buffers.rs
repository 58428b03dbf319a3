//! What connections hold for their peers, all together: half-received requests, and answers
//! that are not read.
//!
//! One peer may have some 20 MiB of each, which is little; a thousand of them would take the
//! machine. So there is a sum for all. Up to it nobody notices anything. Above it whoever would
//! take more waits, and those whose peers move nothing are closed, the fattest first, until
//! there is room again. What is small goes on as before, up to twice the sum.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bucket::Memory;

use super::line::Place;
use crate::connections::ConnectionInfo;
use crate::node::NodeState;
use crate::served::ServedBucket;

/// What a connection may hold without it being counted; values below it never wait.
pub(crate) const SMALL_BYTES: usize = 16 << 10;
/// The least that all connections may hold together: a few of the largest documents; less with small
/// quotas.
const LEAST_BYTES: usize = 64 << 20;
const LEAST_QUOTA_PART: u64 = 4;
/// The most, as a part of the quotas.
const QUOTA_PART: u64 = 16;

/// The share of the limit that bodies of HTTP requests may take, so that slow requests leave the rest
/// to clients of documents.
const BODIES_PART: usize = 4;

/// How often it is looked who moves nothing.
const PERIOD: Duration = Duration::from_millis(250);
/// A connection that moves fewer bytes than this in a period stands still: 32 KiB a second.
const MOVED_BYTES: u64 = 8 << 10;

/// The sum that connections hold.
pub(crate) struct Buffers {
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
    pub(crate) fn held(&self) -> usize {
        self.held.load(Ordering::Relaxed)
    }

    /// Bytes above which whoever would take more waits.
    pub(crate) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Connections closed so that others have room.
    pub(crate) fn closed(&self) -> u64 {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether whoever would take much has to wait.
    pub(crate) fn is_crowded(&self) -> bool {
        self.held() >= self.limit()
    }

    /// Whether even those wait who would take little.
    pub(crate) fn is_full(&self) -> bool {
        self.held() >= self.limit().saturating_mul(2)
    }

    /// Counts a part of an HTTP request's body, if there is room for it.
    pub(crate) fn hold_body(&self, bytes: usize) -> bool {
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
    pub(crate) fn release_body(&self, bytes: usize) {
        self.bodies.fetch_sub(bytes, Ordering::Relaxed);
        self.change(bytes, 0);
    }

    /// Lets the limit follow the quotas of all buckets.
    pub(crate) fn follow_quota(&self, quota_bytes: u64) {
        let part = |of: u64| usize::try_from(quota_bytes / of).unwrap_or(usize::MAX);
        let least = self.least.load(Ordering::Relaxed);
        let least = least.min(part(LEAST_QUOTA_PART));
        self.limit
            .store(part(QUOTA_PART).max(least), Ordering::Relaxed);
    }

    /// Another least sum; it counts from the next look on.
    #[cfg(test)]
    pub(crate) fn set_least(&self, bytes: usize) {
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
pub(super) struct Held {
    buffers: Arc<Buffers>,
    info: Arc<ConnectionInfo>,
    bytes: usize,
    bucket: Option<Arc<ServedBucket>>,
    /// Where it stands among those who wait for room.
    place: Option<Place>,
}

impl Held {
    pub(super) fn nothing(buffers: &Arc<Buffers>, info: &Arc<ConnectionInfo>) -> Self {
        Self {
            buffers: Arc::clone(buffers),
            info: Arc::clone(info),
            bytes: 0,
            bucket: None,
            place: None,
        }
    }

    /// Stands in line for room in `bucket`; whether it is its turn.
    pub(super) fn is_first_in_line(&mut self, bucket: &ServedBucket) -> bool {
        let join = || bucket.line.join();
        self.place.get_or_insert_with(join).is_first()
    }

    /// Has what it waited for, or waits no more.
    pub(super) fn leave_line(&mut self) {
        self.place = None;
    }

    /// Notes that it holds so many bytes now, for what is done in `bucket`.
    pub(super) fn note(&mut self, bytes: usize, bucket: Option<&Arc<ServedBucket>>) {
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
    pub(super) fn all(&self) -> &Buffers {
        &self.buffers
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.note(0, None);
    }
}

/// What is remembered of a connection while there is no room.
#[derive(Clone, Copy, Debug)]
struct Seen {
    moved: u64,
    still: u32,
}

/// Makes room where there is none, for as long as the node serves.
pub(crate) async fn watch(node: Arc<NodeState>) {
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut seen = HashMap::new();
    let granted = node.waits.stillness.as_nanos().div_ceil(PERIOD.as_nanos());
    let granted = u32::try_from(granted).unwrap_or(u32::MAX);
    loop {
        ticks.tick().await;
        let buffers = &node.buffers;
        let buckets = node.all_buckets();
        let memories = || buckets.iter().map(|served| served.bucket.memory());
        buffers.follow_quota(memories().map(Memory::quota).sum());
        let limit = if buffers.is_crowded() {
            buffers.limit()
        } else if memories().any(Memory::is_transit_crowded) {
            // One at a time: the documents give way, too.
            buffers.held()
        } else {
            seen.clear();
            continue;
        };
        let holders: Vec<_> = node.connections.all();
        let figures = holders.iter().map(|info| Holder::of(info));
        let closing = to_close(
            (buffers.held(), limit),
            granted,
            figures.collect(),
            &mut seen,
        );
        for info in holders.iter().filter(|info| closing.contains(&info.id)) {
            tracing::warn!(
                connection = info.id,
                peer = %info.peer(),
                held_bytes = info.held(),
                "closed: it moves nothing of what it holds, and connections hold too much"
            );
            buffers.closed.fetch_add(1, Ordering::Relaxed);
            info.mailbox.shut_down();
        }
    }
}

/// A connection as far as it matters here.
#[derive(Clone, Copy, Debug)]
struct Holder {
    id: u64,
    held: usize,
    /// Bytes that ever came from the peer, or that it took late.
    moved: u64,
    /// It waits for room itself.
    waits: bool,
}

impl Holder {
    fn of(info: &ConnectionInfo) -> Self {
        Self {
            id: info.id,
            held: info.held(),
            moved: info.moved(),
            waits: info.waits_for_room(),
        }
    }
}

/// Who is to be closed of those that hold something, so that less than the limit is held.
fn to_close(
    (mut held, limit): (usize, usize),
    granted: u32,
    mut holders: Vec<Holder>,
    seen: &mut HashMap<u64, Seen>,
) -> Vec<u64> {
    let full = held >= limit.saturating_mul(2);
    let granted = if full { 1 } else { granted };
    holders.retain(|holder| holder.held > 0);
    let before = std::mem::take(seen);
    for holder in &holders {
        let still = match before.get(&holder.id) {
            Some(old) if holder.moved - old.moved < MOVED_BYTES => old.still.saturating_add(1),
            _ => 0,
        };
        let moved = holder.moved;
        seen.insert(holder.id, Seen { moved, still });
    }
    let stands = |holder: &Holder| seen[&holder.id].still >= granted && (full || !holder.waits);
    holders.retain(stands);
    holders.sort_unstable_by_key(|holder| std::cmp::Reverse(holder.held));
    let mut closing = Vec::new();
    for holder in holders {
        if held < limit {
            break;
        }
        held = held.saturating_sub(holder.held);
        closing.push(holder.id);
    }
    closing
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(id: u64, held: usize, moved: u64) -> Holder {
        Holder {
            id,
            held,
            moved,
            waits: false,
        }
    }

    #[test]
    fn the_fattest_that_stand_still_make_room() {
        let mut seen = HashMap::new();
        let mut look = |held, round: u64| {
            let holders = vec![
                holder(1, 30, 7),
                holder(2, 50, 7),
                holder(3, 60, round * MOVED_BYTES),
                holder(4, 40, 7),
                Holder {
                    waits: true,
                    ..holder(5, 90, 7)
                },
                holder(6, 0, 7),
            ];
            to_close((held, 100), 8, holders, &mut seen)
        };
        for round in 0..8 {
            assert!(look(180, round).is_empty(), "they are granted some time");
        }
        let round = 8;
        assert_eq!(look(120, round), [2], "one is enough");
        assert_eq!(look(180, round + 1), [2, 4], "not who moves, not who waits");
        assert_eq!(look(99, round + 2), [0; 0]);
        let closed = look(270, round + 3);
        assert_eq!(closed, [5, 2, 4], "above twice the limit nobody may wait");
    }

    #[test]
    fn a_flood_is_not_granted_any_time() {
        let mut seen = HashMap::new();
        let all = || vec![holder(1, 150, 3), holder(2, 60, 3)];
        assert!(to_close((210, 100), 8, all(), &mut seen).is_empty());
        assert_eq!(to_close((210, 100), 8, all(), &mut seen), [1]);
    }

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
