//! Waits for the decisions of durable writes, and alarms for overdue ones.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use engine::{Decided, Decision};
use model::{Seqno, VbId};
use parking_lot::Mutex;
use storage::{KvStore, Next, Worker};

use crate::Bucket;
use crate::pool::Signal;
use crate::signals::Wake;

/// A wait for the decision of a durable write. Dropping it ends the wait, not the write.
pub struct DurableWait {
    decision: OnceLock<Decision>,
    wake: Arc<dyn Wake>,
}

impl DurableWait {
    /// Returns the decision, once there is one.
    pub fn decision(&self) -> Option<Decision> {
        self.decision.get().copied()
    }

    fn end(&self, decision: Decision) {
        if self.decision.set(decision).is_ok() {
            self.wake.wake();
        }
    }
}

/// All waits, by vBucket and seqno of the prepare.
#[derive(Default)]
pub(crate) struct DurableWaits {
    waits: Mutex<BTreeMap<(VbId, Seqno), Arc<DurableWait>>>,
    count: AtomicUsize,
}

impl DurableWaits {
    /// Ends the waits for decided writes.
    pub(crate) fn end(&self, vb: VbId, decided: &[Decided]) {
        if decided.is_empty() || self.count.load(Ordering::SeqCst) == 0 {
            return;
        }
        for one in decided {
            let wait = self.waits.lock().remove(&(vb, one.prepare));
            if let Some(wait) = wait {
                self.count.fetch_sub(1, Ordering::SeqCst);
                wait.end(one.decision);
            }
        }
    }

    /// Removes all waits for a deleted vBucket; the caller must end them.
    pub(crate) fn take(&self, vb: VbId) -> OrphanedWaits {
        let range = (vb, Seqno::ZERO)..=(vb, Seqno(u64::MAX));
        let mut waits = self.waits.lock();
        let gone = waits.extract_if(range, |_, _| true).map(|(_, wait)| wait);
        let gone: Vec<_> = gone.collect();
        self.count.fetch_sub(gone.len(), Ordering::SeqCst);
        OrphanedWaits(gone)
    }
}

/// Waits for durable writes of a deleted vBucket.
#[must_use = "each wait is to be ended"]
pub(crate) struct OrphanedWaits(Vec<Arc<DurableWait>>);

impl OrphanedWaits {
    /// Ends the waits as ambiguous: the writes may be committed or not.
    pub(crate) fn end(self) {
        for wait in self.0 {
            wait.end(Decision::Ambiguous);
        }
    }
}

/// Times at which vBuckets are to be checked, soonest first.
#[derive(Default)]
pub(crate) struct Alarms {
    due: Mutex<BinaryHeap<Reverse<(u64, VbId)>>>,
    pub(crate) signal: Signal,
}

impl Alarms {
    /// Schedules a check of `vb` at `at_ns` of the monotonic clock.
    pub(crate) fn set(&self, vb: VbId, at_ns: u64) {
        let mut due = self.due.lock();
        let soonest = due.peek().is_none_or(|Reverse((first, _))| at_ns < *first);
        due.push(Reverse((at_ns, vb)));
        drop(due);
        if soonest {
            self.signal.ring();
        }
    }

    fn take_due(&self, now_ns: u64) -> Option<VbId> {
        let mut due = self.due.lock();
        due.peek().filter(|Reverse((at, _))| *at <= now_ns)?;
        due.pop().map(|Reverse((_, vb))| vb)
    }

    fn next(&self) -> Option<u64> {
        self.due.lock().peek().map(|Reverse((at, _))| *at)
    }
}

impl<S: KvStore> Bucket<S> {
    /// Waits for the durable write of `vb` whose prepare has `seqno`; `wake` is woken when it is
    /// decided. Call this from within [`Bucket::run`], under the same lock hold as the prepare:
    /// then no decision is missed.
    pub fn await_decision(&self, vb: VbId, seqno: Seqno, wake: Arc<dyn Wake>) -> Arc<DurableWait> {
        let wait = Arc::new(DurableWait {
            decision: OnceLock::new(),
            wake,
        });
        self.durable.count.fetch_add(1, Ordering::SeqCst);
        let mut waits = self.durable.waits.lock();
        if waits.insert((vb, seqno), Arc::clone(&wait)).is_some() {
            self.durable.count.fetch_sub(1, Ordering::SeqCst);
        }
        drop(waits);
        wait
    }

    /// Aborts overdue durable writes. Returns the time of the next check, in nanoseconds of the monotonic clock.
    pub fn decide_step(&self) -> Option<u64> {
        let now = self.clock.now();
        while let Some(vb) = self.alarms.take_due(now.mono_ns) {
            self.with_vbucket(vb, |vbucket| vbucket.abort_overdue(now));
        }
        self.alarms.next()
    }
}

/// The worker that aborts overdue durable writes.
pub(crate) struct DurableTimeouts<S>(pub(crate) Arc<Bucket<S>>);

impl<S: KvStore> Worker for DurableTimeouts<S> {
    fn step(&mut self, now_ns: u64) -> Next {
        let Self(bucket) = self;
        if bucket.is_stopping() {
            return Next::Done;
        }
        bucket.decide_step().map_or(Next::OnSignal, |at| {
            Next::At(now_ns + at.saturating_sub(bucket.clock.mono_ns()))
        })
    }
}
