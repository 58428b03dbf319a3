//! Signals between threads: bells, the dirty set, wakers, the clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use model::{Now, VbId};
use parking_lot::{Condvar, Mutex};

use crate::pool::Signal;

/// Clock of the bucket's workers; the simulator has its own.
pub trait Clock: Send + Sync {
    /// Returns the current time.
    fn now(&self) -> Now;

    /// Returns only the monotonic time, for measurements.
    fn mono_ns(&self) -> u64 {
        self.now().mono_ns
    }

    /// Returns the processor time of the calling thread in nanoseconds; `None` if the clock does not know it.
    fn thread_cpu_ns(&self) -> Option<u64> {
        None
    }
}

/// Wakes the owner of a parked request. Cheap; may be called from any thread, any number of times.
pub trait Wake: Send + Sync {
    /// Wakes the owner.
    fn wake(&self);
}

/// Wakes the owners of parked requests; once for consecutive requests of one owner.
pub(crate) fn wake_all(mut waiters: Vec<Arc<dyn Wake>>) {
    waiters.dedup_by(|one, other| Arc::ptr_eq(one, other));
    for waiter in waiters {
        waiter.wake();
    }
}

/// A flag on which one worker sleeps. A ring without a sleeper is kept until the next wait.
#[derive(Debug, Default)]
pub struct Bell {
    rung: Mutex<bool>,
    changed: Condvar,
}

impl Bell {
    /// Wakes the sleeper, or lets its next wait return at once.
    pub fn ring(&self) {
        *self.rung.lock() = true;
        self.changed.notify_one();
    }

    /// Sleeps until the bell rings, at most `limit`. Returns whether it rang.
    pub fn wait(&self, limit: Option<Duration>) -> bool {
        let mut rung = self.rung.lock();
        if !*rung {
            match limit {
                Some(limit) => {
                    self.changed.wait_while_for(&mut rung, |rung| !*rung, limit);
                }
                None => self.changed.wait_while(&mut rung, |rung| !*rung),
            }
        }
        std::mem::take(&mut *rung)
    }
}

/// The vBuckets with changes to flush: one bit each.
///
/// Marking a marked vBucket costs one load and wakes no thread.
#[derive(Debug, Default)]
pub(crate) struct DirtySet {
    words: Vec<AtomicU64>,
    asleep: AtomicBool,
    /// Wakes the flusher.
    pub(crate) signal: Signal,
}

impl DirtySet {
    pub(crate) fn new(vbuckets: usize) -> Self {
        Self {
            words: (0..vbuckets.div_ceil(64))
                .map(|_| AtomicU64::new(0))
                .collect(),
            ..Self::default()
        }
    }

    /// Marks that `vb` has changes; wakes the flusher if it sleeps.
    pub(crate) fn mark(&self, vb: VbId) {
        let word = &self.words[usize::from(vb.0) / 64];
        let bit = 1 << (vb.0 % 64);
        // If the bit is set, the flusher has not looked at the vBucket yet. It will see the change,
        // which was made under the vBucket's lock before this call.
        if word.load(Ordering::SeqCst) & bit == 0
            && word.fetch_or(bit, Ordering::SeqCst) & bit == 0
            && self.asleep.swap(false, Ordering::SeqCst)
        {
            self.signal.ring();
        }
    }

    /// Whether any vBucket is marked.
    pub(crate) fn any(&self) -> bool {
        self.words
            .iter()
            .any(|word| word.load(Ordering::SeqCst) != 0)
    }

    /// Takes all marks, ascending.
    pub(crate) fn take(&self) -> Vec<VbId> {
        let mut marked = Vec::new();
        for (index, word) in self.words.iter().enumerate() {
            if word.load(Ordering::SeqCst) == 0 {
                continue;
            }
            let mut bits = word.swap(0, Ordering::SeqCst);
            while bits != 0 {
                marked.push(VbId((index * 64) as u16 + bits.trailing_zeros() as u16));
                bits &= bits - 1;
            }
        }
        marked
    }

    /// Lets the next mark ring, unless there are marks. Returns whether the flusher may sleep.
    pub(crate) fn rearm(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        // An earlier mark did not see `asleep`, so check again.
        let is_idle = !self.any();
        if !is_idle {
            self.asleep.store(false, Ordering::SeqCst);
        }
        is_idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Lane, Pool};
    use std::sync::Arc;
    use storage::{Next, Worker};

    #[test]
    fn marks_are_taken_once_in_order() {
        let dirty = DirtySet::new(1024);
        for vb in [1023, 0, 64, 64, 63] {
            dirty.mark(VbId(vb));
        }
        assert!(dirty.any());
        assert_eq!(dirty.take(), [VbId(0), VbId(63), VbId(64), VbId(1023)]);
        assert!(!dirty.any());
        assert_eq!(dirty.take(), []);
    }

    /// Takes marks and reports each, until it has enough.
    struct Taker {
        dirty: Arc<DirtySet>,
        left: usize,
        done: std::sync::mpsc::Sender<()>,
    }

    impl Worker for Taker {
        fn step(&mut self, _: u64) -> Next {
            for _ in self.dirty.take() {
                self.left -= 1;
                self.done.send(()).unwrap();
            }
            match self.left {
                0 => Next::Done,
                _ if self.dirty.rearm() => Next::OnSignal,
                _ => Next::Again,
            }
        }
    }

    #[test]
    fn no_mark_is_missed_by_a_sleeper() {
        let dirty = Arc::new(DirtySet::new(1024));
        let (done, seen) = std::sync::mpsc::channel();
        let rounds = 2000_u16;
        let taker = Taker {
            dirty: Arc::clone(&dirty),
            left: rounds.into(),
            done,
        };
        let pool = Pool::new();
        let handle = pool.start(Lane::Flush, Box::new(taker)).unwrap();
        dirty.signal.connect(handle.clone());
        for round in 0..rounds {
            dirty.mark(VbId(round % 1024));
            seen.recv().unwrap();
        }
        handle.join();
    }

    #[test]
    fn ring_before_wait_is_kept() {
        let bell = Bell::default();
        bell.ring();
        assert!(bell.wait(None));
        assert!(!bell.wait(Some(Duration::from_millis(1))));
    }
}
