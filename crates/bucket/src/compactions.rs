//! Requested compactions and their results.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use model::{Seqno, VbId};
use parking_lot::Mutex;
use storage::{KvStore, StoreError};

use crate::Bucket;
use crate::failure_log::FailureLog;
use crate::pool::Signal;
use crate::signals::Wake;

/// Maximum number of waiting compactions.
const WAITING_MAX: usize = 4096;
/// Maximum number of results kept; some requesters may be gone.
const RESULTS_MAX: usize = 4096;

/// Tombstones that a compaction purges beyond those that are old enough.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompactionRules {
    /// Tombstones before this time are purged, in seconds of the wall clock.
    pub before_s: u64,
    /// Limits `before_s` to tombstones up to this seqno; zero for no limit.
    pub up_to: Seqno,
    /// Whether all tombstones are purged, whatever their age.
    pub drop_deletes: bool,
}

/// A request for a compaction: its vBucket, time and waker.
#[derive(Clone)]
pub struct CompactionTicket {
    /// The vBucket.
    pub vb: VbId,
    /// Time of the request, in monotonic nanoseconds.
    pub asked_ns: u64,
    /// Woken when there is a result.
    pub wake: Arc<dyn Wake>,
}

impl CompactionTicket {
    fn is(&self, other: &Self) -> bool {
        (self.vb, self.asked_ns) == (other.vb, other.asked_ns)
            && Arc::ptr_eq(&self.wake, &other.wake)
    }
}

/// Requester that ignores the end of its compactions.
struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}
}

/// Waiting compactions and results.
#[derive(Default)]
pub(crate) struct Compactions {
    /// Age at which tombstones are purged, in seconds.
    pub(crate) purge_age_s: AtomicU64,
    pub(crate) signal: Signal,
    /// Failures of compactions and erasures.
    failures: FailureLog,
    waiting: Mutex<VecDeque<(CompactionTicket, CompactionRules)>>,
    results: Mutex<VecDeque<(CompactionTicket, bool)>>,
}

impl Compactions {
    pub(crate) fn new(purge_age_s: u64) -> Self {
        Self {
            purge_age_s: AtomicU64::new(purge_age_s),
            ..Self::default()
        }
    }

    /// Removes the next waiting compaction, if any.
    pub(crate) fn next(&self) -> Option<(CompactionTicket, CompactionRules)> {
        self.waiting.lock().pop_front()
    }

    /// Adds a result and wakes the requester.
    pub(crate) fn done(&self, ticket: CompactionTicket, well: bool) {
        let wake = Arc::clone(&ticket.wake);
        let mut results = self.results.lock();
        if results.len() == RESULTS_MAX {
            results.pop_front();
        }
        results.push_back((ticket, well));
        drop(results);
        wake.wake();
    }
}

impl<S: KvStore> Bucket<S> {
    /// Requests a compaction of a vBucket; `false` if too many wait already.
    #[must_use = "nothing rings when it was refused"]
    pub fn ask_compaction(&self, ticket: CompactionTicket, rules: CompactionRules) -> bool {
        let mut waiting = self.compactions.waiting.lock();
        if waiting.len() == WAITING_MAX {
            return false;
        }
        waiting.push_back((ticket, rules));
        drop(waiting);
        self.compactions.signal.ring();
        true
    }

    /// Requests a compaction of every vBucket of this node, without a notice of its end. Returns
    /// `false` and adds none if too many wait already.
    #[must_use = "nothing is compacted when it was refused"]
    pub fn ask_compaction_of_all(&self) -> bool {
        let wake: Arc<dyn Wake> = Arc::new(NoWake);
        let asked_ns = self.clock().mono_ns();
        let here = (0..self.vbuckets()).map(VbId);
        let here: Vec<VbId> = here
            .filter(|vb| self.with_vbucket(*vb, |_| ()).is_some())
            .collect();
        let mut waiting = self.compactions.waiting.lock();
        if waiting.len() + here.len() > WAITING_MAX {
            return false;
        }
        waiting.extend(here.into_iter().map(|vb| {
            let wake = Arc::clone(&wake);
            (
                CompactionTicket { vb, asked_ns, wake },
                CompactionRules::default(),
            )
        }));
        drop(waiting);
        self.compactions.signal.ring();
        true
    }

    /// Returns whether a requested compaction succeeded; `None` while it is not finished. Each result is returned once.
    pub fn compaction_result(&self, ticket: &CompactionTicket) -> Option<bool> {
        let mut results = self.compactions.results.lock();
        let at = results.iter().position(|(of, _)| of.is(ticket))?;
        results.remove(at).map(|(_, well)| well)
    }

    /// Withdraws a requested compaction, unless it has begun.
    pub fn forget_compaction(&self, ticket: &CompactionTicket) {
        let mut waiting = self.compactions.waiting.lock();
        waiting.retain(|(of, _)| !of.is(ticket));
    }

    /// Returns the number of waiting compactions.
    pub fn compactions_waiting(&self) -> usize {
        self.compactions.waiting.lock().len()
    }

    /// Logs that a compaction or an erasure failed: all vBuckets may have the same reason.
    pub(crate) fn log_compaction_failure(&self, error: &StoreError) {
        if let Some(times) = self.compactions.failures.note(self.clock.mono_ns()) {
            tracing::warn!(bucket = self.name(), %error, times, "compactions failed");
        }
    }

    /// Runs the first requested compaction. Returns whether there was one.
    pub(crate) fn serve_compaction(&self) -> bool {
        let Some((ticket, rules)) = self.compactions.next() else {
            return false;
        };
        let done = self.compact(ticket.vb, rules);
        if let Err(error) = &done {
            self.log_compaction_failure(error);
        }
        self.compactions.done(ticket, done.is_ok());
        true
    }
}
