//! The reliever: brings memory back below the low mark, rung by rung of the ladder.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};

use engine::Garbage;
use model::{CompressionMode, Document, VbId, VbState};
use storage::{KvStore, Next, Worker};

use crate::Bucket;
use crate::holds::Hold;
use crate::memory::{Eviction, Pressure, Relief, next_relief};
use crate::pool::Signal;
use crate::stats::{Counters, FlusherState};

/// Table slots looked at under one lock hold: each costs a cache miss, and an allocation when
/// it is evicted. Few: a thread that the system stops while it holds the lock holds it for long,
/// and that happens less often in shorter holds.
const SLOTS_PER_HOLD: usize = 3;
/// Passes over the whole bucket before giving up: the first ones cool documents down.
const PASSES_MAX: usize = 4;

/// About what a document takes without its value.
const BARE_BYTES: u64 = 96;
/// Where only values leave, keys do, too, once those of documents without values would take this part of the
/// quota, until they would take less than that part.
const BARE_PART: u64 = 4;
const BARE_PART_AFTER: u64 = 8;

/// Cursors dropped under one lock hold.
const CURSORS_PER_HOLD: usize = 8;

/// vBuckets that documents are evicted from in one step.
const VISITS_PER_STEP: usize = 64;

/// Pause of the reliever when it could not free enough.
const PAUSE_NS: u64 = 100_000_000;

/// Steps on the ladder in one relief.
const RUNGS_MAX: usize = 64;
/// Checkpoints that the memory for them is meant for, in each vBucket that has changes.
const CHECKPOINTS_PER_VBUCKET: u64 = 10;
const CHECKPOINT_BYTES_MIN: u64 = 16 << 10;
const CHECKPOINT_BYTES_MAX: u64 = 2 << 20;

/// How far one vBucket came.
#[derive(Clone, Copy, Debug, Default)]
struct Evicted {
    documents: usize,
    /// There is no such vBucket, or it is none of those that this pass is about.
    skipped: bool,
}

/// What a look at every vBucket found.
#[derive(Clone, Debug, Default)]
struct Survey {
    /// Documents that could leave.
    evictable: u64,
    /// Changes that wait for the store, and their bytes.
    dirty: u64,
    queued: u64,
    /// Documents whose values have left, or all of them.
    away: u64,
    /// What the slowest cursor of each vBucket keeps, where it keeps anything.
    pinned: Vec<(usize, VbId)>,
    /// vBuckets with changes in memory.
    busy: u64,
}

/// Rungs that were tried in vain during this relief.
#[derive(Clone, Copy, Debug, Default)]
struct TriedRungs {
    expel: bool,
    evict: bool,
}

/// A relief under way.
struct ReliefPass {
    tried: TriedRungs,
    checkpoint_goal: u64,
    rungs_left: usize,
    /// The rung that takes long.
    evicting: Option<Evicting>,
}

/// An eviction under way.
struct Evicting {
    /// From replicas, or from active vBuckets.
    replicas: bool,
    /// vBuckets to visit still.
    left: usize,
    /// Whether any was visited that it is about.
    any: bool,
    /// vBuckets to visit before, whose values are compressed.
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

/// What the reliever shares with other threads.
pub(crate) struct Relieving {
    /// For the reliever.
    pub(crate) signal: Signal,
    /// Whether it was called and is not done.
    pub(crate) called: AtomicBool,
    /// Where the next pass of eviction begins.
    next: AtomicU16,
    /// vBuckets that had changes in memory at the last look.
    busy: AtomicU64,
    /// Whether fewer documents can leave memory than wait for the store: then they leave with their commits.
    pub(crate) flooded: AtomicBool,
    /// Whether any document could leave memory at the last look.
    pub(crate) evictable: AtomicBool,
    /// Whether keys leave memory with their values, by its settings or because keys alone take much of it.
    keys_leave: AtomicBool,
    /// How memory is freed, as a number.
    eviction: AtomicU8,
}

impl Relieving {
    pub(crate) fn new(eviction: Eviction) -> Self {
        Self {
            signal: Signal::default(),
            called: AtomicBool::new(false),
            next: AtomicU16::new(0),
            busy: AtomicU64::new(0),
            flooded: AtomicBool::new(false),
            evictable: AtomicBool::new(false),
            keys_leave: AtomicBool::new(eviction == Eviction::Documents),
            eviction: AtomicU8::new(eviction as u8),
        }
    }

    pub(crate) fn eviction(&self) -> Eviction {
        Eviction::of_number(self.eviction.load(Ordering::Relaxed))
    }

    pub(crate) fn set_eviction(&self, eviction: Eviction) {
        self.eviction.store(eviction as u8, Ordering::Relaxed);
        let keys_leave = eviction == Eviction::Documents;
        self.keys_leave.store(keys_leave, Ordering::Relaxed);
    }
}

impl<S: KvStore> Bucket<S> {
    /// Does what the ladder says until memory is below its low marks, has space for what was asked for, or
    /// nothing more can go. Returns whether the pressure is off then. Goes on where it stopped the last time.
    pub fn relieve_step(&self) -> bool {
        let mut relief = self.begin_relief();
        while !self.continue_relief(&mut relief) {}
        !self.memory.is_pressed()
    }

    fn begin_relief(&self) -> ReliefPass {
        Counters::add(&self.counters().relief_steps, 1);
        // What waits to be flushed can neither leave memory nor, once replaced, be freed.
        if self.flushes.dirty.any() {
            self.hurry();
        }
        let memory = &self.memory;
        let checkpoint_goal = if memory.checkpoints() > memory.checkpoint_upper_mark() {
            memory.checkpoint_lower_mark()
        } else {
            u64::MAX
        };
        ReliefPass {
            tried: TriedRungs::default(),
            checkpoint_goal,
            rungs_left: RUNGS_MAX,
            evicting: None,
        }
    }

    /// Takes one rung, or a part of a long one. Returns whether that was the last one.
    fn continue_relief(&self, relief: &mut ReliefPass) -> bool {
        if let Some(evicting) = &mut relief.evicting {
            if self.evict_some(evicting) {
                relief.evicting = None;
            }
            return false;
        }
        let ended = relief.rungs_left == 0 || self.take_rung(relief);
        relief.rungs_left = relief.rungs_left.saturating_sub(1);
        if ended {
            self.memory.forget_asked();
        }
        ended
    }

    /// Returns whether there is no rung left.
    fn take_rung(&self, relief: &mut ReliefPass) -> bool {
        let survey = self.survey();
        let pressure = self.pressure(&survey, relief.tried, relief.checkpoint_goal);
        match next_relief(&pressure) {
            Relief::Rest | Relief::Stuck | Relief::AwaitFlush => return true,
            Relief::Expel => {
                self.expel_all();
                relief.tried.expel = true;
            }
            Relief::DropCursor => {
                let wanted = match pressure.checkpoint_excess {
                    0 => pressure.excess,
                    excess => excess,
                };
                self.drop_cursors(survey.pinned, wanted);
            }
            Relief::Evict => {
                let mut evicting = Evicting::from(true, self.vbuckets());
                if self.compresses() {
                    evicting.to_compress = usize::from(self.vbuckets());
                }
                relief.evicting = Some(evicting);
                relief.tried.evict = true;
            }
        }
        false
    }

    /// Looks at every vBucket, and gives each its part of the memory for checkpoints: those that
    /// have changes share it.
    fn survey(&self) -> Survey {
        let mut survey = Survey::default();
        let busy = self.relieving.busy.load(Ordering::Relaxed).max(1);
        let tenth = self.memory.checkpoint_quota() / CHECKPOINTS_PER_VBUCKET / busy;
        let bytes_max = tenth.clamp(CHECKPOINT_BYTES_MIN, CHECKPOINT_BYTES_MAX) as usize;
        let keys_leave = self.relieving.keys_leave.load(Ordering::Relaxed);
        for vb in (0..self.vbuckets()).map(VbId) {
            let found = self.with_vbucket_for(Hold::Expel, vb, |vbucket| {
                vbucket.set_checkpoint_bytes_max(bytes_max);
                vbucket.set_evicts_keys(keys_leave);
                (
                    vbucket.checkpoint_pressure(),
                    vbucket.stats(),
                    vbucket.checkpoint_stats(),
                    vbucket.hash_stats().entries as u64,
                    vbucket.state(),
                )
            });
            let Some((pressure, figures, checkpoints, entries, state)) = found else {
                continue;
            };
            survey.dirty += checkpoints.dirty_items;
            survey.queued += checkpoints.dirty_bytes as u64;
            survey.busy += u64::from(checkpoints.slot_bytes > 0);
            survey.away += figures.non_resident;
            survey.evictable += match self.eviction() {
                Eviction::Values if !keys_leave => {
                    (figures.items - figures.non_resident).saturating_sub(checkpoints.dirty_items)
                }
                Eviction::Values | Eviction::Documents => {
                    entries.saturating_sub(checkpoints.dirty_items)
                }
                Eviction::Delete if state == VbState::Active => figures.items,
                Eviction::Delete | Eviction::None => 0,
            };
            survey
                .pinned
                .extend(pressure.slowest.map(|slowest| (slowest.pinned_bytes, vb)));
        }
        self.relieving.busy.store(survey.busy, Ordering::Relaxed);
        let flooded = self.eviction().keeps_a_copy()
            && self.flusher_state() == FlusherState::Running
            && survey.evictable < survey.dirty;
        self.relieving.flooded.store(flooded, Ordering::Relaxed);
        self.relieving
            .evictable
            .store(survey.evictable > 0, Ordering::Relaxed);
        if self.eviction() == Eviction::Values {
            self.look_at_keys(survey.away * BARE_BYTES);
        }
        survey
    }

    /// Where values leave, and the keys that stay would take `bare_bytes`: whether they leave, too, from now on.
    fn look_at_keys(&self, bare_bytes: u64) {
        let before = self.relieving.keys_leave.load(Ordering::Relaxed);
        let part = if before { BARE_PART_AFTER } else { BARE_PART };
        let after = bare_bytes > self.memory.quota() / part;
        if before != after {
            self.relieving.keys_leave.store(after, Ordering::Relaxed);
            let bucket = self.name();
            tracing::info!(bucket, after, "whether keys leave memory with their values");
        }
    }

    /// What the ladder looks at. In a flood the flusher evicts: the clock would pass the whole
    /// table for the few documents that can go.
    fn pressure(&self, survey: &Survey, tried: TriedRungs, checkpoint_goal: u64) -> Pressure {
        let memory = &self.memory;
        let clock_rests = tried.evict || self.relieving.flooded.load(Ordering::Relaxed);
        let checkpoints = memory.checkpoints();
        Pressure {
            excess: memory.used().saturating_sub(memory.relief_mark()),
            checkpoint_excess: checkpoints.saturating_sub(checkpoint_goal),
            expellable: if tried.expel { 0 } else { checkpoints },
            pinned: survey
                .pinned
                .iter()
                .map(|(bytes, _)| *bytes as u64)
                .max()
                .unwrap_or(0),
            evictable: if clock_rests { 0 } else { survey.evictable },
            queued: survey.queued,
        }
    }

    fn expel_all(&self) {
        for vb in (0..self.vbuckets()).map(VbId) {
            let garbage = self.with_vbucket_for(Hold::Expel, vb, engine::VBucket::expel);
            drop(garbage);
        }
    }

    /// Sends readers to the store, of the vBuckets where they keep most first, until about so
    /// many bytes are free.
    fn drop_cursors(&self, mut pinned: Vec<(usize, VbId)>, wanted: u64) {
        pinned.sort_unstable_by_key(|(bytes, _)| Reverse(*bytes));
        let mut left = wanted;
        for (bytes, vb) in pinned {
            if left == 0 {
                break;
            }
            // Where many read alike, one of them gone frees nothing.
            self.drop_cursors_of(vb, (bytes / 2).max(1));
            left = left.saturating_sub(bytes as u64);
        }
    }

    /// Those of one vBucket that keep at least so much.
    fn drop_cursors_of(&self, vb: VbId, bytes_min: usize) {
        loop {
            let mut garbage = Vec::with_capacity(CURSORS_PER_HOLD);
            let gone = self.with_vbucket_for(Hold::Expel, vb, |vbucket| {
                while garbage.len() < CURSORS_PER_HOLD
                    && let Some(slowest) = vbucket.checkpoint_pressure().slowest
                    && slowest.pinned_bytes >= bytes_min
                {
                    garbage.push(vbucket.drop_cursor(slowest.cursor));
                }
            });
            let dropped = garbage.len();
            Counters::add(&self.counters().cursors_dropped, dropped as u64);
            tracing::debug!(
                bucket = self.name(),
                vb = vb.0,
                streams = dropped,
                "streams go back to the store"
            );
            if gone.is_none() || dropped < CURSORS_PER_HOLD {
                return;
            }
        }
    }

    /// Lets the next booking that passes a mark call the reliever; `false` when memory is above
    /// a mark by now.
    pub(crate) fn call_off_relief(&self) -> bool {
        // Bookings that found the flag set were made before this swap, and are seen here.
        self.relieving.called.swap(false, Ordering::SeqCst);
        let above = self.memory.is_pressed();
        if above {
            self.relieving.called.store(true, Ordering::SeqCst);
        }
        !above
    }

    /// Evicts down to the low mark, from replicas first: no client reads them. A few vBuckets get
    /// their turn each time, so that none is emptied alone. Returns whether that is all.
    fn evict_some(&self, evicting: &mut Evicting) -> bool {
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

    /// In a flood, lets what has just become durable leave memory, down to the low mark; else compresses it above that.
    pub(crate) fn evict_flushed(&self, vb: VbId, flushed: &Garbage) {
        if !self.relieving.flooded.load(Ordering::Relaxed) {
            if self.compresses() && self.bytes_to_evict() > 0 {
                let documents = flushed.documents();
                documents.for_each(|document| self.compress_or_cool(vb, document));
            }
            return;
        }
        // The memory that a hold looks at is asked for in the one before it, what that takes yet one
        // earlier: others wait while a holder waits for memory.
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

    /// How much is still to go. What was deleted is freed once the store knows of it: until then
    /// checkpoints hold it, and deleting more would not help.
    fn bytes_to_evict(&self) -> u64 {
        let leaving = match self.eviction() {
            Eviction::Delete => self.memory.checkpoints(),
            _ => 0,
        };
        let staying = self.memory.used().saturating_sub(leaving);
        staying.saturating_sub(self.memory.relief_mark())
    }

    /// One pass over one vBucket, a bounded hold at a time.
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
                (is_replica == replicas).then(|| match self.eviction() {
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
            // A vBucket with nothing to give looks at no slot and is finished as well.
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

    /// Before anything leaves: compresses values of one vBucket that were not read since they were written.
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

    /// One pass over one vBucket: cold values are compressed, and those that are so already, or gain nothing by
    /// it, leave memory.
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

/// Relieves memory, a rung in each step, once it was called and until the pressure is off.
pub(super) struct Reliever<S> {
    bucket: Arc<Bucket<S>>,
    relief: Option<ReliefPass>,
    /// What had been evicted when the relief began.
    evicted_before: u64,
    /// While it pauses after a relief: whether the pressure was off by then.
    pausing: Option<bool>,
}

impl<S: KvStore> Reliever<S> {
    pub(super) fn new(bucket: Arc<Bucket<S>>) -> Self {
        Self {
            bucket,
            relief: None,
            evicted_before: 0,
            pausing: None,
        }
    }
}

impl<S: KvStore> Worker for Reliever<S> {
    fn step(&mut self, now_ns: u64) -> Next {
        let bucket = &self.bucket;
        if bucket.is_stopping() {
            return Next::Done;
        }
        // The signal that ends a pause is no call.
        if self.pausing.take() == Some(true) && bucket.call_off_relief() {
            return Next::OnSignal;
        }
        if !bucket.relieving.called.load(Ordering::SeqCst) {
            return Next::OnSignal;
        }
        let evicted = Counters::read(&bucket.counters().evicted);
        let relief = self.relief.get_or_insert_with(|| {
            self.evicted_before = evicted;
            bucket.begin_relief()
        });
        if !bucket.continue_relief(relief) {
            return Next::Again;
        }
        self.relief = None;
        let relieved = !bucket.memory.is_pressed();
        let evicted = Counters::read(&bucket.counters().evicted);
        let helped = evicted > self.evicted_before;
        let helps = helped && !bucket.relieving.flooded.load(Ordering::Relaxed);
        if bucket.memory.used() > bucket.memory.low_mark() && !helps {
            // It did all it could: another pass at once would find the same.
            self.pausing = Some(relieved);
            return Next::At(now_ns + PAUSE_NS);
        }
        if relieved && bucket.call_off_relief() {
            return Next::OnSignal;
        }
        Next::Again
    }
}
