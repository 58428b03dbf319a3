//! The reliever: brings memory back below the low mark by evicting values that are persisted.

use std::sync::atomic::Ordering;

use model::VbId;
use storage::KvStore;

use crate::Bucket;
use crate::stats::Counters;

/// Table slots looked at under one lock hold.
const SLOTS_PER_HOLD: usize = 256;
/// Passes over the whole bucket before giving up: the first ones cool documents down.
const PASSES_MAX: usize = 4;

impl<S: KvStore> Bucket<S> {
    /// Evicts until memory is below the low mark or nothing more can go; says whether memory is
    /// below the high mark then. Goes on where it stopped the last time.
    pub fn relieve_step(&self) -> bool {
        Counters::add(&self.counters().relief_steps, 1);
        // What waits to be flushed can neither lose its value nor, once replaced, be freed.
        if self.dirty.any() {
            self.hurry();
        }
        if self.options.evicts {
            let mut next = self.relieve_next.load(Ordering::Relaxed);
            for _ in 0..PASSES_MAX * usize::from(self.vbuckets()) {
                if self.memory.used() <= self.memory.low_mark() {
                    break;
                }
                self.evict_from(VbId(next));
                next = (next + 1) % self.vbuckets();
            }
            self.relieve_next.store(next, Ordering::Relaxed);
        }
        self.memory.used() <= self.memory.high_mark()
    }

    /// Lets the next one who passes the high mark call the reliever; `false` when somebody
    /// passed it meanwhile.
    pub(crate) fn call_off_relief(&self) -> bool {
        // Whoever found the flag set counted his bytes before, and they are seen here.
        self.relieving.swap(false, Ordering::SeqCst);
        let above = self.memory.used() > self.memory.high_mark();
        if above {
            self.relieving.store(true, Ordering::SeqCst);
        }
        !above
    }

    /// One pass over one vBucket, a bounded hold at a time.
    fn evict_from(&self, vb: VbId) {
        loop {
            let excess = self.memory.used().saturating_sub(self.memory.low_mark()) as usize;
            if excess == 0 {
                return;
            }
            let progress =
                self.with_vbucket(vb, |vbucket| vbucket.evict_cold(SLOTS_PER_HOLD, excess));
            let Some(progress) = progress else { return };
            Counters::add(&self.counters().evicted, progress.changed as u64);
            // A vBucket with nothing to give looks at no slot and is finished as well.
            if progress.finished || progress.slots == 0 {
                return;
            }
        }
    }
}
