//! The reliever: brings memory back below the low mark, rung by rung of the ladder.

use std::sync::atomic::Ordering;

use model::{Document, VbId, VbState};
use storage::KvStore;

use crate::Bucket;
use crate::holds::Hold;
use crate::memory::{Eviction, Pressure, Relief, next_relief};
use crate::stats::Counters;

/// Table slots looked at under one lock hold: each costs a cache miss, and an allocation when
/// it is evicted.
const SLOTS_PER_HOLD: usize = 128;
/// Passes over the whole bucket before giving up: the first ones cool documents down.
const PASSES_MAX: usize = 4;

/// How far one vBucket came.
#[derive(Clone, Copy, Debug, Default)]
struct Evicted {
    documents: usize,
    /// There is no such vBucket, or it is none of those that this pass is about.
    skipped: bool,
}

impl<S: KvStore> Bucket<S> {
    /// Does what the ladder says until memory is below its low marks or nothing more can go;
    /// says whether the pressure is off then. Goes on where it stopped the last time.
    pub fn relieve_step(&self) -> bool {
        Counters::add(&self.counters().relief_steps, 1);
        // What waits to be flushed can neither leave memory nor, once replaced, be freed.
        if self.dirty.any() {
            self.hurry();
        }
        let mut tried = Pressure {
            evictable: 1,
            ..Pressure::default()
        };
        while let Relief::Evict = next_relief(&self.pressure(&tried)) {
            self.evict_down();
            tried.evictable = 0;
        }
        !self.memory.is_pressed()
    }

    /// What the ladder looks at; rungs that were tried in vain are 0 in `tried`.
    fn pressure(&self, tried: &Pressure) -> Pressure {
        let memory = &self.memory;
        let evicts = self.options.eviction != Eviction::None;
        Pressure {
            excess: memory.used().saturating_sub(memory.low_mark()),
            checkpoint_excess: memory
                .checkpoints()
                .saturating_sub(memory.checkpoint_lower_mark()),
            evictable: if evicts { tried.evictable } else { 0 },
            queued: u64::from(self.dirty.any()),
            ..Pressure::default()
        }
    }

    /// Lets the next one who passes a mark call the reliever; `false` when somebody passed it
    /// meanwhile.
    pub(crate) fn call_off_relief(&self) -> bool {
        // Whoever found the flag set counted his bytes before, and they are seen here.
        self.relieving.swap(false, Ordering::SeqCst);
        let above = self.memory.is_pressed();
        if above {
            self.relieving.store(true, Ordering::SeqCst);
        }
        !above
    }

    /// Evicts down to the low mark, from replicas first: nobody reads them. A few vBuckets get
    /// their turn each time, so that none is emptied alone.
    fn evict_down(&self) {
        for replicas in [true, false] {
            let mut next = self.relieve_next.load(Ordering::Relaxed);
            let mut left = PASSES_MAX * usize::from(self.vbuckets());
            let mut any = false;
            while left > 0 && self.memory.used() > self.memory.low_mark() {
                let evicted = self.evict_from(VbId(next), replicas);
                any |= !evicted.skipped;
                next = (next + 1) % self.vbuckets();
                left -= 1;
                if !any && left == (PASSES_MAX - 1) * usize::from(self.vbuckets()) {
                    break;
                }
            }
            self.relieve_next.store(next, Ordering::Relaxed);
        }
    }

    /// One pass over one vBucket, a bounded hold at a time.
    fn evict_from(&self, vb: VbId, replicas: bool) -> Evicted {
        let mut evicted = Evicted::default();
        let mut garbage: Vec<Document> = Vec::with_capacity(SLOTS_PER_HOLD);
        loop {
            let excess = self.memory.used().saturating_sub(self.memory.low_mark()) as usize;
            if excess == 0 {
                return evicted;
            }
            let now = self.clock.now();
            let progress = self.with_vbucket_for(Hold::Evict, vb, |vbucket| {
                let is_replica = vbucket.state() != VbState::Active;
                (is_replica == replicas).then(|| match self.options.eviction {
                    Eviction::Delete => vbucket.delete_cold(SLOTS_PER_HOLD, excess, now),
                    _ => vbucket.evict_cold(SLOTS_PER_HOLD, excess, now, &mut garbage),
                })
            });
            garbage.clear();
            let Some(Some(progress)) = progress else {
                evicted.skipped = evicted.documents == 0;
                return evicted;
            };
            evicted.documents += progress.changed;
            let counters = self.counters();
            let total = match self.options.eviction {
                Eviction::Delete => &counters.auto_deleted,
                _ => &counters.evicted,
            };
            Counters::add(total, progress.changed as u64);
            // A vBucket with nothing to give looks at no slot and is finished as well.
            if progress.finished || progress.slots == 0 {
                return evicted;
            }
        }
    }
}
