//! Eviction: documents leave memory, from replicas first, a few under each lock hold; with active compression, values
//! are compressed before any leaves.

use std::sync::atomic::Ordering;

use engine::Garbage;
use model::{CompressionMode, Document, VbId, VbState};
use storage::KvStore;

use crate::Bucket;
use crate::holds::Hold;
use crate::memory::Eviction;
use crate::stats::Counters;

/// Table slots checked under one lock hold: each costs a cache miss, and an allocation when it is
/// evicted. Few, because a thread that the system interrupts in a hold blocks others for long, and
/// short holds are interrupted less often.
const SLOTS_PER_HOLD: usize = 3;
/// Maximum number of passes over the whole bucket: the first ones cool documents down.
const PASSES_MAX: usize = 4;

/// vBuckets visited by eviction in one step.
const VISITS_PER_STEP: usize = 64;

/// Result of a visit of one vBucket.
#[derive(Clone, Copy, Debug, Default)]
struct Evicted {
    documents: usize,
    /// Whether the vBucket is missing, or has another state than this pass handles.
    skipped: bool,
}

/// An eviction under way.
pub(super) struct Evicting {
    /// Whether replicas are visited; otherwise active vBuckets.
    replicas: bool,
    /// Remaining visits.
    left: usize,
    /// Whether any visited vBucket had the right state.
    any: bool,
    /// Remaining visits of the compression before eviction.
    to_compress: usize,
}

impl Evicting {
    fn from(replicas: bool, vbuckets: u16) -> Self {
        Self {
            replicas,
            left: PASSES_MAX * usize::from(vbuckets),
            any: false,
            to_compress: 0,
        }
    }
}

impl<S: KvStore> Bucket<S> {
    /// Returns an eviction that has visited nothing.
    pub(super) fn begin_eviction(&self) -> Evicting {
        let mut evicting = Evicting::from(true, self.vbuckets());
        if self.compresses() {
            evicting.to_compress = usize::from(self.vbuckets());
        }
        evicting
    }

    /// Evicts down to the low mark, from replicas first, because no client reads them. Each call
    /// visits a few vBuckets, so that none is emptied alone. Returns whether the eviction is
    /// finished.
    pub(super) fn evict_some(&self, evicting: &mut Evicting) -> bool {
        let all = usize::from(self.vbuckets());
        for _ in 0..VISITS_PER_STEP {
            let none_there = !evicting.any && evicting.left == (PASSES_MAX - 1) * all;
            if self.bytes_to_evict() == 0
                || (evicting.left == 0 || none_there) && !evicting.replicas
            {
                return true;
            }
            if evicting.left == 0 || none_there {
                *evicting = Evicting::from(false, self.vbuckets());
            }
            let next = self.relieving.next.load(Ordering::Relaxed);
            if evicting.to_compress > 0 {
                self.compress_in(VbId(next));
                evicting.to_compress -= 1;
            } else {
                let evicted = self.evict_from(VbId(next), evicting.replicas);
                evicting.any |= !evicted.skipped;
                evicting.left -= 1;
            }
            let next = (next + 1) % self.vbuckets();
            self.relieving.next.store(next, Ordering::Relaxed);
        }
        false
    }

    /// In a flood, evicts documents that have just become durable, down to the low mark. Otherwise
    /// compresses them above that mark.
    pub(super) fn evict_flushed(&self, vb: VbId, flushed: &Garbage) {
        if !self.relieving.flooded.load(Ordering::Relaxed) {
            if self.compresses() && self.bytes_to_evict() > 0 {
                let documents = flushed.documents();
                documents.for_each(|document| self.compress_or_cool(vb, document));
            }
            return;
        }
        // Prefetches documents one hold ahead, and their heads two holds ahead: other threads wait
        // while a lock holder waits for memory.
        let documents: Vec<&Document> = flushed.documents().collect();
        let mut holds = documents.chunks(SLOTS_PER_HOLD);
        let mut later = move || {
            let some = holds.next().unwrap_or_default();
            for document in some {
                document.prefetch_head();
            }
            some
        };
        let (mut this, mut next) = (later(), later());
        let mut garbage = Vec::with_capacity(SLOTS_PER_HOLD);
        while !this.is_empty() && self.bytes_to_evict() > 0 {
            let after = later();
            let now = self.clock.now();
            let evicted = self.with_vbucket_for(Hold::Evict, vb, |vbucket| {
                let evicted = vbucket.evict_flushed(this.iter().copied(), now, &mut garbage);
                for document in next {
                    vbucket.prefetch_key(document.key());
                }
                evicted
            });
            (this, next) = (next, after);
            garbage.clear();
            Counters::add(&self.counters().evicted, evicted.unwrap_or(0) as u64);
        }
    }

    /// Returns the bytes still to be evicted. Deleted documents are freed after their commit: until
    /// then checkpoints hold them, and more deletions would not help.
    fn bytes_to_evict(&self) -> u64 {
        let leaving = match self.eviction() {
            Eviction::Delete => self.memory.checkpoints(),
            _ => 0,
        };
        self.memory.to_free().saturating_sub(leaving)
    }

    /// Runs one pass over one vBucket, a bounded hold at a time.
    fn evict_from(&self, vb: VbId, replicas: bool) -> Evicted {
        if self.compresses() {
            return self.compress_or_evict_from(vb, replicas);
        }
        let mut evicted = Evicted::default();
        let mut garbage: Vec<Document> = Vec::with_capacity(SLOTS_PER_HOLD);
        loop {
            let excess = self.bytes_to_evict() as usize;
            if excess == 0 {
                return evicted;
            }
            let now = self.clock.now();
            let progress = self.with_vbucket_for(Hold::Evict, vb, |vbucket| {
                let is_replica = vbucket.state() != VbState::Active;
                let stays = self.eviction() == Eviction::Delete && !self.may_change(vb, now);
                (is_replica == replicas && !stays).then(|| match self.eviction() {
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
            let total = match self.eviction() {
                Eviction::Delete => &counters.auto_deleted,
                _ => &counters.evicted,
            };
            Counters::add(total, progress.changed as u64);
            // A vBucket without evictable documents checks no slot, and is finished as well.
            if progress.finished || progress.slots == 0 {
                return evicted;
            }
        }
    }
}

/// Active compression.
impl<S: KvStore> Bucket<S> {
    fn compresses(&self) -> bool {
        self.compression() == CompressionMode::Active && self.eviction().keeps_a_copy()
    }

    /// Before any eviction: compresses values of one vBucket that were not read since they were written.
    fn compress_in(&self, vb: VbId) {
        let mut unread: Vec<Document> = Vec::with_capacity(SLOTS_PER_HOLD);
        while self.bytes_to_evict() > 0 {
            let progress = self.with_vbucket_for(Hold::Evict, vb, |vbucket| {
                vbucket.plain_unread(SLOTS_PER_HOLD, &mut unread)
            });
            for document in unread.drain(..) {
                self.compress_or_cool(vb, &document);
            }
            if progress.is_none_or(|progress| progress.finished || progress.slots == 0) {
                return;
            }
        }
    }

    /// Runs one pass over one vBucket: compresses cold values, and evicts those that are compressed
    /// already or gain nothing.
    fn compress_or_evict_from(&self, vb: VbId, replicas: bool) -> Evicted {
        let mut evicted = Evicted::default();
        let mut cold: Vec<Document> = Vec::with_capacity(SLOTS_PER_HOLD);
        while self.bytes_to_evict() > 0 {
            let progress = self.with_vbucket_for(Hold::Evict, vb, |vbucket| {
                let is_replica = vbucket.state() != VbState::Active;
                (is_replica == replicas).then(|| vbucket.cool(SLOTS_PER_HOLD, &mut cold))
            });
            let Some(Some(progress)) = progress else {
                evicted.skipped = evicted.documents == 0;
                return evicted;
            };
            for document in cold.drain(..) {
                evicted.documents += usize::from(self.compress_or_evict(vb, &document));
            }
            if progress.finished || progress.slots == 0 {
                return evicted;
            }
        }
        evicted
    }
}
