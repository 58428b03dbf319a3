//! The bucket's memory account: bytes in use, and the marks.

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

/// Share of the quota for backfills.
const BACKFILLS: Share = Share::percent(12);

/// Share of the low mark up to which memory is refilled: later fetches then find memory without an eviction.
const REFILL: Share = Share::percent(94);

/// Divisor: part of the quota that connections may hold even if the quota is used up.
const TRANSIT_LEAST_PART: u64 = 64;

/// Divisor: part of the quota that HTTP readers of changes may hold, without the last reservation.
const READERS_PART: u64 = 8;

/// Maximum back-off after a write; see [`Memory::write_backoff`].
const WRITE_BACKOFF_MAX: Duration = Duration::from_micros(300);

/// Bytes in use of a limited resource, and the allowed bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in use.
    pub used: u64,
    /// Bytes allowed.
    pub allowed: u64,
}

/// The marks in bytes, computed from [`Limits`].
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

/// The memory of the bucket's documents and queues, against its quota. All figures are in bytes.
///
/// Cost: a query is a few loads; a booking is one addition, two if checkpoints changed.
#[derive(Debug)]
pub struct Memory {
    booked: AtomicI64,
    checkpoints: AtomicI64,
    /// This bucket's share of the process's memory that no bucket books.
    overhead: AtomicU64,
    /// This bucket's share of what the process takes beyond all quotas.
    excess: AtomicU64,
    /// Requests and answers that connections hold.
    transit: Arc<AtomicU64>,
    /// The largest size for which a large request waits.
    asked: AtomicU64,
    /// Bytes that HTTP readers of changes hold.
    lent: AtomicU64,
    /// Documents read for streams and not yet sent; shared with the buffers of connections.
    backfills: Arc<BackfillAccount>,
    limits: Mutex<Limits>,
    marks: Marks,
}

impl Memory {
    /// Creates an account with the marks of the reference.
    pub fn new(quota_bytes: u64) -> Self {
        let limits = Limits::new(quota_bytes);
        let marks = Marks::default();
        marks.follow(&limits);
        Self {
            booked: AtomicI64::new(0),
            checkpoints: AtomicI64::new(0),
            overhead: AtomicU64::new(0),
            excess: AtomicU64::new(0),
            transit: Arc::default(),
            asked: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            backfills: Arc::new(BackfillAccount::new(BACKFILLS.of(quota_bytes))),
            limits: Mutex::new(limits),
            marks,
        }
    }

    /// Returns the settings of the marks.
    pub fn limits(&self) -> Limits {
        *self.limits.lock()
    }

    /// Changes the settings, either completely or not at all.
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

    /// Books a change. Returns whether the reliever has to work.
    pub(crate) fn add(&self, delta: MemoryDelta) -> bool {
        let booked = self.booked.fetch_add(delta.bytes, Ordering::Relaxed) + delta.bytes;
        let others = self.overhead() + self.excess() + self.backfills() + self.transit();
        let over = u64::try_from(booked).unwrap_or(0) + others > self.high_mark();
        if delta.checkpoint_bytes == 0 {
            return over;
        }
        self.checkpoints
            .fetch_add(delta.checkpoint_bytes, Ordering::Relaxed);
        over || self.checkpoints() > self.checkpoint_upper_mark()
    }

    /// Returns the memory in use and the limit for writes, if a write of `bytes` more exceeds it.
    pub(crate) fn mutation_exceeded(&self, bytes: u64) -> Option<Usage> {
        let (used, allowed) = (self.pressing(), self.mutation_limit());
        (used.saturating_add(bytes) > allowed).then_some(Usage { used, allowed })
    }

    /// Like [`Memory::mutation_exceeded`], without the excess of the process.
    pub(crate) fn large_mutation_exceeded(&self, bytes: u64) -> Option<Usage> {
        let (used, allowed) = (self.used(), self.mutation_limit());
        (used.saturating_add(bytes) > allowed).then_some(Usage { used, allowed })
    }

    /// Returns the bytes of a write and the limit for writes, if it alone exceeds the limit.
    pub(crate) fn one_mutation_exceeded(&self, bytes: u64) -> Option<Usage> {
        let (used, allowed) = (bytes, self.mutation_limit());
        (used > allowed).then_some(Usage { used, allowed })
    }

    /// Returns the memory of checkpoints and their share, if that is used up.
    pub(crate) fn checkpoints_exceeded(&self) -> Option<Usage> {
        let (used, allowed) = (self.checkpoints(), self.checkpoint_quota());
        (used >= allowed && allowed > 0).then_some(Usage { used, allowed })
    }

    /// Returns the memory in use and the limit for reads from the store, if nothing more should be read.
    ///
    /// Only booked bytes and those of connections count. So reads continue while a full disk keeps
    /// changes in memory, and the allocator keeps freed memory.
    pub(crate) fn backfill_exceeded(&self) -> Option<Usage> {
        let (used, allowed) = (self.booked() + self.transit(), self.backfill_limit());
        (used >= allowed).then_some(Usage { used, allowed })
    }

    /// Returns the memory in use and the quota, if that is used up while documents are `evictable`:
    /// reads bring documents into memory faster than the reliever evicts others.
    pub(crate) fn quota_exceeded(&self, evictable: bool) -> Option<Usage> {
        let (used, allowed) = (self.pressing(), self.quota());
        (used >= allowed && evictable).then_some(Usage { used, allowed })
    }

    /// Returns the bytes of HTTP readers of changes and their share of the quota, if that is used up.
    pub(crate) fn readers_exceeded(&self) -> Option<Usage> {
        let (used, allowed) = (self.lent(), self.quota() / READERS_PART);
        (used >= allowed).then_some(Usage { used, allowed })
    }

    /// Requests space for `bytes`: the next relief frees more than usual, until a write of this
    /// size is granted or nothing more can be evicted. A request that still waits then must ask
    /// again.
    pub(crate) fn ask(&self, bytes: usize) {
        self.asked.fetch_max(bytes as u64, Ordering::Relaxed);
    }

    /// Resets the requested space.
    pub(crate) fn forget_asked(&self) {
        self.asked.store(0, Ordering::Relaxed);
    }

    /// Sets the process's memory for other things than documents. It counts as used.
    pub fn set_overhead(&self, bytes: u64) {
        self.overhead.store(bytes, Ordering::Relaxed);
    }

    /// Sets the memory that the process takes beyond the quotas: mostly memory that the allocator keeps. Documents
    /// leave for it, and writes wait for it, but not large ones: they use what the allocator keeps of others.
    pub fn set_excess(&self, bytes: u64) {
        self.excess.store(bytes, Ordering::Relaxed);
    }

    /// Returns the value set by [`Memory::set_excess`].
    pub fn excess(&self) -> u64 {
        self.excess.load(Ordering::Relaxed)
    }

    /// Returns the value set by [`Memory::set_overhead`].
    pub fn overhead(&self) -> u64 {
        self.overhead.load(Ordering::Relaxed)
    }

    /// Counts that a connection holds `after` bytes for its peer instead of `before`.
    pub(crate) fn change_transit(&self, before: usize, after: usize) {
        change(&self.transit, before, after);
    }

    /// Counts `bytes` as memory of connections until the returned value is dropped.
    pub(crate) fn hold_transit(&self, bytes: usize) -> TransitBytes {
        let transit = Arc::clone(&self.transit);
        change(&transit, 0, bytes);
        TransitBytes { transit, bytes }
    }

    /// Counts that a reader of changes holds `after` bytes instead of `before`.
    pub(crate) fn change_lent(&self, before: usize, after: usize) {
        change(&self.lent, before, after);
    }

    /// Returns the bytes that HTTP readers of changes hold: text made for them, and large values.
    pub fn lent(&self) -> u64 {
        self.lent.load(Ordering::Relaxed)
    }

    /// Returns the bytes that connections hold: partly received requests, and unread answers.
    pub fn transit(&self) -> u64 {
        self.transit.load(Ordering::Relaxed)
    }

    /// Whether connections hold so much of a used-up quota that they must not take more.
    #[inline]
    pub fn is_transit_congested(&self) -> bool {
        let (transit, quota) = (self.transit(), self.quota());
        transit > quota / TRANSIT_LEAST_PART && self.used() >= quota
    }

    /// Returns the bytes in use: booked bytes, bytes of connections, and the overhead.
    pub fn used(&self) -> u64 {
        self.booked() + self.transit() + self.overhead()
    }

    /// Returns the bytes in use as eviction counts them: with the excess of the process.
    pub(crate) fn pressing(&self) -> u64 {
        self.used() + self.excess()
    }

    /// Returns the bytes of documents, tables, checkpoints and locks, and of backfills.
    pub fn booked(&self) -> u64 {
        u64::try_from(self.booked.load(Ordering::Relaxed)).unwrap_or(0) + self.backfills()
    }

    /// Returns the bytes of documents that were read for streams and not yet sent.
    pub fn backfills(&self) -> u64 {
        self.backfills.bytes()
    }

    /// Returns the maximum bytes of all backfills together, without one chunk for each connection
    /// that holds nothing else.
    pub fn backfills_max(&self) -> u64 {
        self.backfills.bytes_max()
    }

    /// Returns the account of backfills.
    pub(crate) fn backfill_account(&self) -> Arc<BackfillAccount> {
        Arc::clone(&self.backfills)
    }

    /// Returns the bytes of checkpoints: slots, and documents that only they hold.
    pub fn checkpoints(&self) -> u64 {
        u64::try_from(self.checkpoints.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// Returns the quota.
    pub fn quota(&self) -> u64 {
        self.marks.quota.load(Ordering::Relaxed)
    }

    /// Returns the mark at which eviction stops.
    pub fn low_mark(&self) -> u64 {
        self.marks.low.load(Ordering::Relaxed)
    }

    /// Returns the mark up to which memory is filled after a start.
    pub(crate) fn refill_mark(&self) -> u64 {
        REFILL.of(self.low_mark())
    }

    /// Returns the bytes that a relief still has to free: down to the low mark, and for requested space.
    pub(crate) fn to_free(&self) -> u64 {
        let asked = self.asked.load(Ordering::Relaxed);
        let headroom = self.mutation_limit().saturating_sub(asked);
        let space = self.used().saturating_sub(headroom);
        self.pressing().saturating_sub(self.low_mark()).max(space)
    }

    /// Returns the mark at which eviction starts.
    pub fn high_mark(&self) -> u64 {
        self.marks.high.load(Ordering::Relaxed)
    }

    /// Returns the limit above which a write is refused.
    pub fn mutation_limit(&self) -> u64 {
        self.marks.mutation.load(Ordering::Relaxed)
    }

    /// Returns the limit at which nothing is read from the store into memory.
    pub fn backfill_limit(&self) -> u64 {
        self.marks.backfill.load(Ordering::Relaxed)
    }

    /// Returns the limit at which every change is refused until checkpoints are relieved.
    pub fn checkpoint_quota(&self) -> u64 {
        self.marks.checkpoints.load(Ordering::Relaxed)
    }

    /// Returns the mark above which checkpoints are relieved.
    pub fn checkpoint_upper_mark(&self) -> u64 {
        self.marks.checkpoint_upper.load(Ordering::Relaxed)
    }

    /// Returns the mark down to which checkpoints are relieved.
    pub fn checkpoint_lower_mark(&self) -> u64 {
        self.marks.checkpoint_lower.load(Ordering::Relaxed)
    }

    /// Returns the back-off after a write: zero up to the high mark, then growing with the third
    /// power of memory in use, up to [`WRITE_BACKOFF_MAX`] at the limit for writes.
    pub(crate) fn write_backoff(&self) -> Duration {
        let (high, limit) = (self.high_mark(), self.mutation_limit());
        let above = self.pressing().saturating_sub(high);
        let part = (above * 1000)
            .checked_div(limit.saturating_sub(high))
            .map_or(0, |part| part.min(1000));
        WRITE_BACKOFF_MAX * (part * part * part / 1_000_000) as u32 / 1000
    }

    /// Whether the reliever has to work.
    pub fn is_pressed(&self) -> bool {
        self.pressing() > self.high_mark() || self.checkpoints() > self.checkpoint_upper_mark()
    }
}

/// Bytes that count as memory of connections until this value is dropped.
#[derive(Debug)]
pub struct TransitBytes {
    transit: Arc<AtomicU64>,
    bytes: usize,
}

impl Drop for TransitBytes {
    fn drop(&mut self) {
        change(&self.transit, self.bytes, 0);
    }
}

fn change(sum: &AtomicU64, before: usize, after: usize) {
    if after >= before {
        sum.fetch_add((after - before) as u64, Ordering::Relaxed);
    } else {
        sum.fetch_sub((before - after) as u64, Ordering::Relaxed);
    }
}
