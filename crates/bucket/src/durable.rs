//! Waits for the decisions of durable writes, and alarms for those whose time is over.

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

/// The wait for the decision of a durable write. Dropping it ends the wait, not the write.
pub struct DurableWait {
    decision: OnceLock<Decision>,
    wake: Arc<dyn Wake>,
}

impl DurableWait {
    /// How it ended, once it has.
    pub fn decision(&self) -> Option<Decision> {
        self.decision.get().copied()
    }

    fn end(&self, decision: Decision) {
        if self.decision.set(decision).is_ok() {
            self.wake.wake();
        }
    }
}

/// All of them, by vBucket and seqno of the prepare.
#[derive(Default)]
pub(crate) struct DurableWaits {
    waits: Mutex<BTreeMap<(VbId, Seqno), Arc<DurableWait>>>,
    count: AtomicUsize,
}

impl DurableWaits {
    /// Ends the waits for writes that were decided.
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

    /// The vBucket is gone: removes all waits for it, which are to be ended.
    pub(crate) fn take(&self, vb: VbId) -> OrphanedWaits {
        let range = (vb, Seqno::ZERO)..=(vb, Seqno(u64::MAX));
        let mut waits = self.waits.lock();
        let gone = waits.extract_if(range, |_, _| true).map(|(_, wait)| wait);
        let gone: Vec<_> = gone.collect();
        self.count.fetch_sub(gone.len(), Ordering::SeqCst);
        OrphanedWaits(gone)
    }
}

/// Waits for durable writes of a vBucket that is gone.
#[must_use = "each wait is to be ended"]
pub(crate) struct OrphanedWaits(Vec<Arc<DurableWait>>);

impl OrphanedWaits {
    /// What was prepared may be committed or not.
    pub(crate) fn end(self) {
        for wait in self.0 {
            wait.end(Decision::Ambiguous);
        }
    }
}

/// When to look at which vBucket, soonest first.
#[derive(Default)]
pub(crate) struct Alarms {
    due: Mutex<BinaryHeap<Reverse<(u64, VbId)>>>,
    pub(crate) signal: Signal,
}

impl Alarms {
    /// Looks at `vb` at `at_ns` of the monotonic clock.
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
    /// Waits for the durable write whose prepare has `seqno` of `vb`; `wake` rings when it is
    /// decided. To be called with the lock under which it was prepared still held, from within
    /// [`Bucket::run`]: then no decision is missed.
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

    /// Aborts the durable writes whose time is over. Returns when to look again, on the monotonic
    /// clock, nanoseconds.
    pub fn decide_step(&self) -> Option<u64> {
        let now = self.clock.now();
        while let Some(vb) = self.alarms.take_due(now.mono_ns) {
            self.with_vbucket(vb, |vbucket| vbucket.abort_overdue(now));
        }
        self.alarms.next()
    }
}

/// Aborts durable writes whose time is over.
pub(crate) struct Decider<S>(pub(crate) Arc<Bucket<S>>);

impl<S: KvStore> Worker for Decider<S> {
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
