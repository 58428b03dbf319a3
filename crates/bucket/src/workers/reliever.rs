//! The reliever: frees memory down to the low mark, rung by rung of the ladder.

use std::cmp::Reverse;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU16, AtomicU64, Ordering};

use model::{VbId, VbState};
use storage::{KvStore, Next, Worker};

use crate::Bucket;
use crate::holds::Hold;
use crate::memory::{Eviction, Pressure, Relief, next_relief};
use crate::pool::Signal;
use crate::stats::{Counters, FlusherState};

use super::eviction::Evicting;

/// Approximate memory of a document without its value.
const BARE_BYTES: u64 = 96;
/// With eviction of values, keys are evicted as well once documents without values would take the
/// first part of the quota, until they would take less than the second part.
const BARE_PART: u64 = 4;
const BARE_PART_AFTER: u64 = 8;

/// Cursors dropped under one lock hold.
const CURSORS_PER_HOLD: usize = 8;

/// Pause of the reliever after it could not free enough.
const PAUSE_NS: u64 = 100_000_000;

/// Maximum steps on the ladder in one relief.
const RUNGS_MAX: usize = 64;
/// Checkpoints that share the memory for them, in each vBucket with changes.
const CHECKPOINTS_PER_VBUCKET: u64 = 10;
const CHECKPOINT_BYTES_MIN: u64 = 16 << 10;
const CHECKPOINT_BYTES_MAX: u64 = 2 << 20;

/// Sums over all vBuckets.
#[derive(Clone, Debug, Default)]
struct ReliefTotals {
    /// Documents that could be evicted.
    evictable: u64,
    /// Changes that wait for the store, and their bytes.
    dirty: u64,
    queued: u64,
    /// Documents without a value in memory, including those without a key.
    away: u64,
    /// Bytes that the slowest cursor of each vBucket keeps, if any.
    pinned: Vec<(usize, VbId)>,
    /// vBuckets with changes in memory.
    busy: u64,
}

/// Rungs already used during this relief.
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
    /// The rung that takes several steps.
    evicting: Option<Evicting>,
}

/// State that the reliever shares with other threads.
#[derive(Default)]
pub(crate) struct Relieving {
    /// Rings the reliever.
    pub(crate) signal: Signal,
    /// Whether it was called and is not finished.
    pub(crate) called: AtomicBool,
    /// First vBucket of the next eviction pass.
    pub(super) next: AtomicU16,
    /// Number of vBuckets with changes in memory at the last round.
    busy: AtomicU64,
    /// Whether fewer documents are evictable than wait for the store: then they are evicted after their commits.
    pub(crate) flooded: AtomicBool,
    /// Whether any document was evictable at the last round.
    pub(crate) evictable: AtomicBool,
    /// Whether keys are evicted with their values, by the policy or because keys alone take much memory.
    keys_leave: AtomicBool,
    /// Eviction policy, as a number.
    eviction: AtomicU8,
}

impl Relieving {
    pub(crate) fn new(eviction: Eviction) -> Self {
        Self {
            keys_leave: AtomicBool::new(eviction == Eviction::Documents),
            eviction: AtomicU8::new(eviction as u8),
            ..Self::default()
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
    /// Follows the ladder until memory is below its low marks, has the requested space, or nothing
    /// more can be freed. Returns whether the pressure is over. Continues where the last call
    /// stopped.
    pub fn relieve_step(&self) -> bool {
        let mut relief = self.begin_relief();
        while !self.continue_relief(&mut relief) {}
        !self.memory.is_pressed()
    }

    fn begin_relief(&self) -> ReliefPass {
        Counters::add(&self.counters().relief_steps, 1);
        // Changes that wait for the store can neither be evicted nor, once replaced, be freed.
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

    /// Takes one rung. Returns whether there is none left.
    fn take_rung(&self, relief: &mut ReliefPass) -> bool {
        let totals = self.totals();
        let pressure = self.pressure(&totals, relief.tried, relief.checkpoint_goal);
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
                self.drop_cursors(totals.pinned, wanted);
            }
            Relief::Evict => {
                relief.evicting = Some(self.begin_eviction());
                relief.tried.evict = true;
            }
        }
        false
    }

    /// Collects the figures of every vBucket, and gives those with changes an equal part of the memory for checkpoints.
    fn totals(&self) -> ReliefTotals {
        let mut totals = ReliefTotals::default();
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
            totals.dirty += checkpoints.dirty_items;
            totals.queued += checkpoints.dirty_bytes as u64;
            totals.busy += u64::from(checkpoints.slot_bytes > 0);
            totals.away += figures.non_resident;
            totals.evictable += match self.eviction() {
                Eviction::Values if !keys_leave => {
                    (figures.items - figures.non_resident).saturating_sub(checkpoints.dirty_items)
                }
                Eviction::Values | Eviction::Documents => {
                    entries.saturating_sub(checkpoints.dirty_items)
                }
                Eviction::Delete if state == VbState::Active => figures.items,
                Eviction::Delete | Eviction::None => 0,
            };
            totals
                .pinned
                .extend(pressure.slowest.map(|slowest| (slowest.pinned_bytes, vb)));
        }
        self.relieving.busy.store(totals.busy, Ordering::Relaxed);
        let flooded = self.eviction().keeps_a_copy()
            && self.flusher_state() == FlusherState::Running
            && totals.evictable < totals.dirty;
        self.relieving.flooded.store(flooded, Ordering::Relaxed);
        self.relieving
            .evictable
            .store(totals.evictable > 0, Ordering::Relaxed);
        if self.eviction() == Eviction::Values {
            self.look_at_keys(totals.away * BARE_BYTES);
        }
        totals
    }

    /// With eviction of values: decides whether keys are evicted as well, if those that stay take `bare_bytes`.
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

    /// Returns the input of the ladder. In a flood the flusher evicts: a pass would walk the whole
    /// table for the few documents that are evictable.
    fn pressure(&self, totals: &ReliefTotals, tried: TriedRungs, checkpoint_goal: u64) -> Pressure {
        let memory = &self.memory;
        let clock_rests = tried.evict || self.relieving.flooded.load(Ordering::Relaxed);
        let checkpoints = memory.checkpoints();
        Pressure {
            excess: memory.to_free(),
            checkpoint_excess: checkpoints.saturating_sub(checkpoint_goal),
            expellable: if tried.expel { 0 } else { checkpoints },
            pinned: totals
                .pinned
                .iter()
                .map(|(bytes, _)| *bytes as u64)
                .max()
                .unwrap_or(0),
            evictable: if clock_rests { 0 } else { totals.evictable },
            queued: totals.queued,
        }
    }

    fn expel_all(&self) {
        for vb in (0..self.vbuckets()).map(VbId) {
            let garbage = self.with_vbucket_for(Hold::Expel, vb, engine::VBucket::expel);
            drop(garbage);
        }
    }

    /// Drops cursors, in the vBuckets where they keep most first, until about `wanted` bytes are free.
    fn drop_cursors(&self, mut pinned: Vec<(usize, VbId)>, wanted: u64) {
        pinned.sort_unstable_by_key(|(bytes, _)| Reverse(*bytes));
        let mut left = wanted;
        for (bytes, vb) in pinned {
            if left == 0 {
                break;
            }
            // Cursors at similar positions free memory only together, so those with half as much go, too.
            self.drop_cursors_of(vb, (bytes / 2).max(1));
            left = left.saturating_sub(bytes as u64);
        }
    }

    /// Drops the cursors of one vBucket that keep at least `bytes_min`.
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

    /// Resets the call, so that the next booking above a mark calls the reliever; `false` if memory
    /// is above a mark already.
    pub(crate) fn call_off_relief(&self) -> bool {
        // Bookings that found the flag set were made before this swap, and are seen here.
        self.relieving.called.swap(false, Ordering::SeqCst);
        let above = self.memory.is_pressed();
        if above {
            self.relieving.called.store(true, Ordering::SeqCst);
        }
        !above
    }
}

/// The worker that relieves memory, a rung in each step, from a call until the pressure is over.
pub(super) struct Reliever<S> {
    bucket: Arc<Bucket<S>>,
    relief: Option<ReliefPass>,
    /// Number of evictions when the relief began.
    evicted_before: u64,
    /// During the pause after a relief: whether the pressure was over.
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
        // The signal that ends a pause does not call the reliever.
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
        if bucket.memory.pressing() > bucket.memory.low_mark() && !helps {
            // Everything possible was done: another pass at once would find the same.
            self.pausing = Some(relieved);
            return Next::At(now_ns + PAUSE_NS);
        }
        if relieved && bucket.call_off_relief() {
            return Next::OnSignal;
        }
        Next::Again
    }
}
