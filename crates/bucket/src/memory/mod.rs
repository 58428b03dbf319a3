//! The bucket's memory account: what is in use, and the marks.

mod ladder;
mod limits;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use engine::MemoryDelta;
pub use ladder::{Eviction, Pressure, Relief, next_relief};
pub use limits::{Limits, MemoryWaits, Share};
use parking_lot::Mutex;

use crate::backfill::BackfillAccount;

/// What backfills may hold: a share of the quota.
const BACKFILLS: Share = Share::percent(12);

/// Where refilling stops, a share of the low mark: what is asked for next finds memory without an eviction.
const REFILL: Share = Share::percent(94);

/// What connections may hold even at the quota, as a part of it.
const TRANSIT_LEAST_PART: u64 = 64;

/// What HTTP readers of changes may hold, as a part of the quota, but for what the last one took.
const READERS_PART: u64 = 8;

/// Longest back-off after a write; see [`Memory::write_backoff`].
const WRITE_BACKOFF_MAX: Duration = Duration::from_micros(300);

/// Bytes in use of what is limited, and those allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in use.
    pub used: u64,
    /// Bytes allowed.
    pub allowed: u64,
}

/// What [`Limits`] amount to, in bytes.
#[derive(Debug, Default)]
struct Marks {
    quota: AtomicU64,
    low: AtomicU64,
    high: AtomicU64,
    mutation: AtomicU64,
    backfill: AtomicU64,
    checkpoints: AtomicU64,
    checkpoint_upper: AtomicU64,
    checkpoint_lower: AtomicU64,
}

impl Marks {
    fn follow(&self, limits: &Limits) {
        let quota = limits.quota_bytes;
        let checkpoints = limits.checkpoints.of(quota);
        for (mark, bytes) in [
            (&self.quota, quota),
            (&self.low, limits.low.of(quota)),
            (&self.high, limits.high.of(quota)),
            (&self.mutation, limits.mutation.of(quota)),
            (&self.backfill, limits.backfill.of(quota)),
            (&self.checkpoints, checkpoints),
            (
                &self.checkpoint_upper,
                limits.checkpoint_upper.of(checkpoints),
            ),
            (
                &self.checkpoint_lower,
                limits.checkpoint_lower.of(checkpoints),
            ),
        ] {
            mark.store(bytes, Ordering::Relaxed);
        }
    }
}

/// What the bucket's documents and queues take, against its quota. All figures in bytes.
///
/// Cost: a question is a few loads; a booking is one addition, two when checkpoints changed.
#[derive(Debug)]
pub struct Memory {
    booked: AtomicI64,
    checkpoints: AtomicI64,
    /// What the process takes beyond what is booked, as far as it is this bucket's.
    overhead: AtomicU64,
    /// What connections hold of requests and answers.
    transit: AtomicU64,
    /// The bytes for which a large request waits.
    asked: AtomicU64,
    /// What HTTP readers of changes hold.
    lent: AtomicU64,
    /// What was read for streams and not yet sent; shared with the buffers of connections.
    backfills: Arc<BackfillAccount>,
    limits: Mutex<Limits>,
    marks: Marks,
}

impl Memory {
    /// An account with the marks of the reference.
    pub fn new(quota_bytes: u64) -> Self {
        let limits = Limits::new(quota_bytes);
        let marks = Marks::default();
        marks.follow(&limits);
        Self {
            booked: AtomicI64::new(0),
            checkpoints: AtomicI64::new(0),
            overhead: AtomicU64::new(0),
            transit: AtomicU64::new(0),
            asked: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            backfills: Arc::new(BackfillAccount::new(BACKFILLS.of(quota_bytes))),
            limits: Mutex::new(limits),
            marks,
        }
    }

    /// The settings behind the marks.
    pub fn limits(&self) -> Limits {
        *self.limits.lock()
    }

    /// Changes them, all or none.
    ///
    /// # Errors
    /// Those of `change` and of [`Limits::check`].
    pub(crate) fn change_limits(
        &self,
        change: impl FnOnce(&mut Limits) -> Result<(), &'static str>,
    ) -> Result<(), &'static str> {
        let mut limits = self.limits.lock();
        let mut changed = *limits;
        change(&mut changed)?;
        changed.check()?;
        self.marks.follow(&changed);
        self.backfills
            .set_bytes_max(BACKFILLS.of(changed.quota_bytes));
        *limits = changed;
        Ok(())
    }

    /// Books a change. Returns whether the reliever has something to do.
    pub(crate) fn add(&self, delta: MemoryDelta) -> bool {
        let booked = self.booked.fetch_add(delta.bytes, Ordering::Relaxed) + delta.bytes;
        let others = self.overhead() + self.backfills() + self.transit();
        let over = u64::try_from(booked).unwrap_or(0) + others > self.high_mark();
        if delta.checkpoint_bytes == 0 {
            return over;
        }
        self.checkpoints
            .fetch_add(delta.checkpoint_bytes, Ordering::Relaxed);
        over || self.checkpoints() > self.checkpoint_upper_mark()
    }

    /// Memory in use and the limit for writes, if a write of `bytes` more exceeds it.
    pub(crate) fn mutation_exceeded(&self, bytes: u64) -> Option<Usage> {
        let (used, allowed) = (self.used(), self.mutation_limit());
        (used.saturating_add(bytes) > allowed).then_some(Usage { used, allowed })
    }

    /// The bytes of a write and the limit for writes, if it alone exceeds the limit.
    pub(crate) fn one_mutation_exceeded(&self, bytes: u64) -> Option<Usage> {
        let (used, allowed) = (bytes, self.mutation_limit());
        (used > allowed).then_some(Usage { used, allowed })
    }

    /// What checkpoints take and their share, if that is used up.
    pub(crate) fn checkpoints_exceeded(&self) -> Option<Usage> {
        let (used, allowed) = (self.checkpoints(), self.checkpoint_quota());
        (used >= allowed && allowed > 0).then_some(Usage { used, allowed })
    }

    /// Memory in use and the limit for reading from the store, if nothing more should be read.
    ///
    /// Only what is booked and what connections hold counts: while a full disk keeps changes in memory, and the
    /// allocator keeps what left it, reads go on.
    pub(crate) fn backfill_exceeded(&self) -> Option<Usage> {
        let (used, allowed) = (self.booked() + self.transit(), self.backfill_limit());
        (used >= allowed).then_some(Usage { used, allowed })
    }

    /// Memory in use and the quota, if that is used up while documents are `evictable`: reads bring documents into
    /// memory faster than the reliever evicts others.
    pub(crate) fn quota_exceeded(&self, evictable: bool) -> Option<Usage> {
        let (used, allowed) = (self.used(), self.quota());
        (used >= allowed && evictable).then_some(Usage { used, allowed })
    }

    /// What HTTP readers of changes hold and their share of the quota, if that is used up.
    pub(crate) fn readers_exceeded(&self) -> Option<Usage> {
        let (used, allowed) = (self.lent(), self.quota() / READERS_PART);
        (used >= allowed).then_some(Usage { used, allowed })
    }

    /// Asks for space for `bytes`, more than relief leaves by itself: the next relief goes on until a write of them
    /// is granted, or nothing more can leave. A request that still waits then asks again.
    pub(crate) fn ask(&self, bytes: usize) {
        self.asked.fetch_max(bytes as u64, Ordering::Relaxed);
    }

    /// Ends what was asked for.
    pub(crate) fn forget_asked(&self) {
        self.asked.store(0, Ordering::Relaxed);
    }

    /// Sets what the process takes beyond what is booked: fragments of the allocator, buffers.
    /// It counts as used from now on.
    pub fn set_overhead(&self, bytes: u64) {
        self.overhead.store(bytes, Ordering::Relaxed);
    }

    /// What [`Memory::set_overhead`] said last.
    pub fn overhead(&self) -> u64 {
        self.overhead.load(Ordering::Relaxed)
    }

    /// Counts that a connection holds `after` bytes for its peer instead of `before`.
    pub(crate) fn change_transit(&self, before: usize, after: usize) {
        change(&self.transit, before, after);
    }

    /// Counts that a reader of changes holds `after` bytes instead of `before`.
    pub(crate) fn change_lent(&self, before: usize, after: usize) {
        change(&self.lent, before, after);
    }

    /// Bytes that HTTP readers of changes hold: text made for them, and large values.
    pub fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    /// Bytes that connections hold: requests that are not whole, answers that are not read.
    pub fn transit(&self) -> u64 {
        self.transit.load(Ordering::Relaxed)
    }

    /// Whether connections hold so much of a used-up quota that they should not take more.
    #[inline]
    pub fn is_transit_congested(&self) -> bool {
        let (transit, quota) = (self.transit(), self.quota());
        transit > quota / TRANSIT_LEAST_PART && self.used() >= quota
    }

    /// Bytes in use: what is booked, what connections hold, and the overhead.
    pub fn used(&self) -> u64 {
        self.booked() + self.transit() + self.overhead()
    }

    /// Bytes of documents, tables, checkpoints and locks, and of what backfills hold.
    pub fn booked(&self) -> u64 {
        u64::try_from(self.booked.load(Ordering::Relaxed)).unwrap_or(0) + self.backfills()
    }

    /// Bytes of documents that were read for streams and not yet sent.
    pub fn backfills(&self) -> u64 {
        self.backfills.bytes()
    }

    /// As much as all backfills together may hold, but for a chunk of each that holds nothing
    /// else.
    pub fn backfills_max(&self) -> u64 {
        self.backfills.bytes_max()
    }

    /// Where backfills book what they hold.
    pub(crate) fn backfill_account(&self) -> Arc<BackfillAccount> {
        Arc::clone(&self.backfills)
    }

    /// Bytes that checkpoints take for themselves: slots, and documents that only they hold.
    pub fn checkpoints(&self) -> u64 {
        u64::try_from(self.checkpoints.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// The quota.
    pub fn quota(&self) -> u64 {
        self.marks.quota.load(Ordering::Relaxed)
    }

    /// Where eviction stops.
    pub fn low_mark(&self) -> u64 {
        self.marks.low.load(Ordering::Relaxed)
    }

    /// Up to this memory is filled after a start.
    pub(crate) fn refill_mark(&self) -> u64 {
        REFILL.of(self.low_mark())
    }

    /// Where this relief stops: the low mark, or lower for what was asked for.
    pub(crate) fn relief_mark(&self) -> u64 {
        let asked = self.asked.load(Ordering::Relaxed);
        let headroom = self.mutation_limit().saturating_sub(asked);
        self.low_mark().min(headroom)
    }

    /// Where eviction starts.
    pub fn high_mark(&self) -> u64 {
        self.marks.high.load(Ordering::Relaxed)
    }

    /// Above this a write is refused.
    pub fn mutation_limit(&self) -> u64 {
        self.marks.mutation.load(Ordering::Relaxed)
    }

    /// At this nothing is read from the store into memory.
    pub fn backfill_limit(&self) -> u64 {
        self.marks.backfill.load(Ordering::Relaxed)
    }

    /// At this every change is refused until checkpoints are relieved.
    pub fn checkpoint_quota(&self) -> u64 {
        self.marks.checkpoints.load(Ordering::Relaxed)
    }

    /// Above this checkpoints are relieved.
    pub fn checkpoint_upper_mark(&self) -> u64 {
        self.marks.checkpoint_upper.load(Ordering::Relaxed)
    }

    /// Down to this.
    pub fn checkpoint_lower_mark(&self) -> u64 {
        self.marks.checkpoint_lower.load(Ordering::Relaxed)
    }

    /// Back-off after a write where writes come faster than memory is freed: zero up to the high mark, then
    /// growing with the third power of memory in use, up to [`WRITE_BACKOFF_MAX`] at the limit for writes.
    pub(crate) fn write_backoff(&self) -> Duration {
        let (high, limit) = (self.high_mark(), self.mutation_limit());
        let above = self.used().saturating_sub(high);
        let part = (above * 1000)
            .checked_div(limit.saturating_sub(high))
            .map_or(0, |part| part.min(1000));
        WRITE_BACKOFF_MAX * (part * part * part / 1_000_000) as u32 / 1000
    }

    /// Whether the reliever has something to do.
    pub fn is_pressed(&self) -> bool {
        self.used() > self.high_mark() || self.checkpoints() > self.checkpoint_upper_mark()
    }
}

fn change(sum: &AtomicU64, before: usize, after: usize) {
    if after >= before {
        sum.fetch_add((after - before) as u64, Ordering::Relaxed);
    } else {
        sum.fetch_sub((before - after) as u64, Ordering::Relaxed);
    }
}
