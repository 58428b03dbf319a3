//! Reservation of a bucket's memory, and the back-off after writes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use engine::OpError;
use storage::KvStore;

use crate::Bucket;
use crate::admission::{Accounts, LARGE_WRITE_BYTES, Limit, Purpose, Reservation};
use crate::memory::Eviction;
use crate::stats::{Counters, FlusherState};

/// Duration after which a commit counts as hanging. The disk of a virtual machine sometimes stops
/// for some hundred milliseconds.
const COMMIT_HANGS_NS: u64 = 1_000_000_000;

impl<S: KvStore> Bucket<S> {
    /// Reserves memory of the bucket and of the node's buffers for a request that has waited for
    /// `waited`. Only this function lets requests wait or refuses them for lack of memory.
    #[inline]
    pub fn reserve(&self, purpose: Purpose, bytes: usize, waited: Duration) -> Reservation {
        let evicts = self.eviction() != Eviction::None;
        let purpose = match purpose {
            Purpose::Write if evicts && bytes >= LARGE_WRITE_BYTES => Purpose::LargeWrite,
            purpose => purpose,
        };
        let accounts = Accounts {
            buffers: &self.options.buffers,
            memory: Some(&self.memory),
            evicts,
            evictable: self.relieving.evictable.load(Ordering::Relaxed),
            is_storing: &|| self.is_storing(),
        };
        let reservation = accounts.reserve(purpose, bytes, waited);
        if !reservation.is_granted() {
            self.relieve_for(&reservation, bytes);
        }
        reservation
    }

    /// Whether there is memory for more changes of other nodes; if not, it starts to free some.
    pub fn takes_replication(&self) -> bool {
        let reservation = self.reserve(Purpose::Replication, 0, Duration::ZERO);
        let found = reservation.is_granted();
        self.starvation.note(found, self.clock.mono_ns());
        found
    }

    /// Whether changes of other nodes wait for memory, and have for a while.
    pub fn is_starved(&self) -> bool {
        self.starvation.is_starved(self.clock.mono_ns())
    }

    /// Whether expired documents may be deleted: each deletion queues a change.
    pub(crate) fn may_expire(&self) -> bool {
        self.reserve(Purpose::Expiry, 0, Duration::ZERO)
            .is_granted()
    }

    /// Starts the reliever for a request without memory, and counts refusals.
    #[cold]
    fn relieve_for(&self, reservation: &Reservation, bytes: usize) {
        let limit = match reservation {
            Reservation::Granted => return,
            Reservation::Wait { limit, .. } => *limit,
            Reservation::Refused { shortage, .. } => shortage.limit,
        };
        if !limit.is_of_bucket() {
            return;
        }
        if matches!(limit, Limit::Space | Limit::LargeMutation) {
            self.memory.ask(bytes);
        }
        if let Reservation::Refused { shortage, .. } = reservation {
            let counters = self.counters();
            let counter = match shortage.error() {
                OpError::OutOfMemory => &counters.refused_at_quota,
                _ => &counters.refused_for_memory,
            };
            Counters::add(counter, 1);
        }
        self.relieve();
    }

    /// Whether changes that wait for the store fill memory, as of the reliever's last check. Such
    /// documents can leave memory after their commits.
    pub fn is_flooded(&self) -> bool {
        self.relieving.flooded.load(Ordering::Relaxed)
            && self.flusher_state() == FlusherState::Running
    }

    /// Returns the back-off of a connection after its write, while writes arrive faster than the
    /// store commits them. Without it all writers take processor time from the flusher and then
    /// wait for memory together.
    pub fn write_backoff(&self) -> Option<Duration> {
        if !self.is_flooded() {
            return None;
        }
        let backoff = self.memory.write_backoff();
        let backs_off = !backoff.is_zero();
        Counters::add(&self.counters().write_backoffs, u64::from(backs_off));
        backs_off.then_some(backoff)
    }

    /// Whether a commit is pending that frees memory: the flusher runs, does not hang, and its
    /// changes can be evicted afterwards.
    pub fn is_storing(&self) -> bool {
        self.eviction().keeps_a_copy()
            && self.flusher_state() == FlusherState::Running
            && !self.commit_hangs()
            && (self.flushes.dirty.any() || self.flushes.under_way.load(Ordering::SeqCst))
    }

    /// Whether the commit under way takes too long to wait for.
    fn commit_hangs(&self) -> bool {
        let began_ns = self.flushes.commit_began_ns.load(Ordering::Relaxed);
        began_ns > 0 && self.clock.mono_ns().saturating_sub(began_ns) > COMMIT_HANGS_NS
    }
}
