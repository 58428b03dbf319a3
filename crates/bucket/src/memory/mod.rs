//! The bucket's memory account: what is in use, the marks, and who is refused at them.

mod ladder;
mod limits;
#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use engine::{MemoryDelta, OpError};
pub use ladder::{Eviction, Pressure, Relief, next_relief};
pub use limits::{Limits, Share};
use parking_lot::Mutex;

use crate::backfill::BackfillAccount;

/// What backfills may hold: a share of the quota.
const BACKFILLS: Share = Share::percent(12);

/// What connections may hold in any case, as a part of the quota.
const TRANSIT_LEAST_PART: u64 = 64;

/// How long who has just written rests at most; see [`Memory::write_rest`].
const WRITE_REST_MAX: Duration = Duration::from_micros(300);

/// A limit that memory ran into.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The quota itself.
    Quota,
    /// The share of it up to which writes are let in.
    Mutation,
    /// The same for a single write: it would not be let in if nothing else were in memory.
    OneMutation,
    /// The share of it up to which values are read back.
    Backfill,
    /// The share of it that checkpoints may take.
    Checkpoints,
}

impl Limit {
    /// The name of its setting.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Quota => "ep_max_size",
            Self::Mutation | Self::OneMutation => "ep_mutation_mem_ratio",
            Self::Backfill => "ep_backfill_mem_threshold",
            Self::Checkpoints => "ep_checkpoint_memory_ratio",
        }
    }
}

/// Why something was refused for lack of memory. `Display` is one line for the error context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryRefusal {
    /// What the client should do about it: `TemporaryFailure` or `OutOfMemory`.
    pub error: OpError,
    /// The limit.
    pub limit: Limit,
    /// Bytes in use of what is limited; of [`Limit::OneMutation`], those of the write.
    pub used: u64,
    /// Bytes allowed.
    pub allowed: u64,
}

impl From<MemoryRefusal> for OpError {
    fn from(refusal: MemoryRefusal) -> Self {
        refusal.error
    }
}

impl fmt::Display for MemoryRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { used, allowed, .. } = self;
        let what = match self.limit {
            Limit::Quota => "the memory quota is used up",
            Limit::Mutation => "memory is above the limit for writes",
            Limit::OneMutation => "the write takes more than the limit for all of them",
            Limit::Backfill => "memory is above the limit for reading from the store",
            Limit::Checkpoints => "checkpoints are above their share of memory",
        };
        let name = self.limit.name();
        write!(f, "{what}: {used} of {allowed} bytes ({name})")
    }
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
    /// What a large request waits for room for.
    asked: AtomicU64,
    /// What was read for streams and not yet sent; shared with whoever gives it back.
    backfills: Arc<BackfillAccount>,
    limits: Mutex<Limits>,
    marks: Marks,
}

impl Memory {
    /// An account with the marks of the reference.
    #[must_use]
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
            backfills: Arc::new(BackfillAccount::new(BACKFILLS.of(quota_bytes))),
            limits: Mutex::new(limits),
            marks,
        }
    }

    /// The settings behind the marks.
    #[must_use]
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

    /// Books a change; says whether the reliever has something to do.
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

    /// Whether a write of `bytes` more may go on.
    ///
    /// # Errors
    /// `TemporaryFailure` while there is hope that memory is freed; `OutOfMemory` at the quota,
    /// and for what could never fit ([`Limit::OneMutation`]).
    pub fn admit(&self, bytes: usize) -> Result<(), MemoryRefusal> {
        self.admit_removal()?;
        let (bytes, used, allowed) = (bytes as u64, self.used(), self.mutation_limit());
        if used.saturating_add(bytes) <= allowed {
            return Ok(());
        }
        let refusal = |error, limit, used, allowed| MemoryRefusal {
            error,
            limit,
            used,
            allowed,
        };
        Err(if bytes > allowed {
            refusal(OpError::OutOfMemory, Limit::OneMutation, bytes, allowed)
        } else if used >= self.quota() {
            refusal(OpError::OutOfMemory, Limit::Quota, used, self.quota())
        } else {
            refusal(OpError::TemporaryFailure, Limit::Mutation, used, allowed)
        })
    }

    /// Whether a deletion may go on: it frees memory, but queues a change.
    ///
    /// # Errors
    /// `TemporaryFailure` while checkpoints are above their share.
    pub fn admit_removal(&self) -> Result<(), MemoryRefusal> {
        let (used, allowed) = (self.checkpoints(), self.checkpoint_quota());
        if used < allowed || allowed == 0 {
            return Ok(());
        }
        Err(MemoryRefusal {
            error: OpError::TemporaryFailure,
            limit: Limit::Checkpoints,
            used,
            allowed,
        })
    }

    /// Whether something may be read from the store into memory, for a client or a stream.
    ///
    /// Only what is booked and what connections hold counts: while a full disk keeps changes in memory, and the allocator
    /// keeps what left it, reads go on.
    ///
    /// # Errors
    /// `TemporaryFailure` or, at the quota, `OutOfMemory`.
    pub fn admit_fetch(&self) -> Result<(), MemoryRefusal> {
        let used = self.booked() + self.transit();
        let allowed = self.backfill_limit();
        if used < allowed {
            return Ok(());
        }
        let (error, limit, allowed) = if used >= self.quota() {
            (OpError::OutOfMemory, Limit::Quota, self.quota())
        } else {
            (OpError::TemporaryFailure, Limit::Backfill, allowed)
        };
        Err(MemoryRefusal {
            error,
            limit,
            used,
            allowed,
        })
    }

    /// Asks for room for `bytes`, more than relief leaves by itself: the next relief goes on until
    /// they are let in, or nothing more can leave. Who still waits then asks again.
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
    #[must_use]
    pub fn overhead(&self) -> u64 {
        self.overhead.load(Ordering::Relaxed)
    }

    /// Takes over that a connection holds `after` bytes for its peer, and no longer `before`.
    pub(crate) fn change_transit(&self, before: usize, after: usize) {
        if after >= before {
            self.transit
                .fetch_add((after - before) as u64, Ordering::Relaxed);
        } else {
            self.transit
                .fetch_sub((before - after) as u64, Ordering::Relaxed);
        }
    }

    /// Bytes that connections hold: requests that are not whole, answers that are not read.
    #[must_use]
    pub fn transit(&self) -> u64 {
        self.transit.load(Ordering::Relaxed)
    }

    /// Whether connections hold so much of what there is that nobody should take more.
    #[must_use]
    #[inline]
    pub fn is_transit_crowded(&self) -> bool {
        let (transit, quota) = (self.transit(), self.quota());
        transit > quota / TRANSIT_LEAST_PART && self.used() >= quota
    }

    /// Bytes in use: what is booked, what connections hold, and the overhead.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.booked() + self.transit() + self.overhead()
    }

    /// Bytes of documents, tables, checkpoints and locks, and of what backfills hold.
    #[must_use]
    pub fn booked(&self) -> u64 {
        u64::try_from(self.booked.load(Ordering::Relaxed)).unwrap_or(0) + self.backfills()
    }

    /// Bytes of documents that were read for streams and not yet sent.
    #[must_use]
    pub fn backfills(&self) -> u64 {
        self.backfills.bytes()
    }

    /// As much as all backfills together may hold, but for a chunk of each that holds nothing
    /// else.
    #[must_use]
    pub fn backfills_max(&self) -> u64 {
        self.backfills.bytes_max()
    }

    /// Where backfills book what they hold.
    pub(crate) fn backfill_account(&self) -> Arc<BackfillAccount> {
        Arc::clone(&self.backfills)
    }

    /// Bytes that checkpoints take for themselves: slots, and documents that nobody else holds.
    #[must_use]
    pub fn checkpoints(&self) -> u64 {
        u64::try_from(self.checkpoints.load(Ordering::Relaxed)).unwrap_or(0)
    }

    /// The quota.
    #[must_use]
    pub fn quota(&self) -> u64 {
        self.marks.quota.load(Ordering::Relaxed)
    }

    /// Where eviction stops.
    #[must_use]
    pub fn low_mark(&self) -> u64 {
        self.marks.low.load(Ordering::Relaxed)
    }

    /// Where this relief stops: the low mark, or lower for what was asked for.
    #[must_use]
    pub(crate) fn relief_mark(&self) -> u64 {
        let asked = self.asked.load(Ordering::Relaxed);
        let room = self.mutation_limit().saturating_sub(asked);
        self.low_mark().min(room)
    }

    /// Where eviction starts.
    #[must_use]
    pub fn high_mark(&self) -> u64 {
        self.marks.high.load(Ordering::Relaxed)
    }

    /// Above this a write is refused.
    #[must_use]
    pub fn mutation_limit(&self) -> u64 {
        self.marks.mutation.load(Ordering::Relaxed)
    }

    /// At this nothing is read from the store into memory.
    #[must_use]
    pub fn backfill_limit(&self) -> u64 {
        self.marks.backfill.load(Ordering::Relaxed)
    }

    /// At this every change is refused until checkpoints are relieved.
    #[must_use]
    pub fn checkpoint_quota(&self) -> u64 {
        self.marks.checkpoints.load(Ordering::Relaxed)
    }

    /// Above this checkpoints are relieved.
    #[must_use]
    pub fn checkpoint_upper_mark(&self) -> u64 {
        self.marks.checkpoint_upper.load(Ordering::Relaxed)
    }

    /// Down to this.
    #[must_use]
    pub fn checkpoint_lower_mark(&self) -> u64 {
        self.marks.checkpoint_lower.load(Ordering::Relaxed)
    }

    /// How long who has just written should rest where writes come faster than memory is freed: nothing up to the
    /// high mark, then more and more, up to [`WRITE_REST_MAX`] where nothing is let in any more.
    pub(crate) fn write_rest(&self) -> Duration {
        let (high, limit) = (self.high_mark(), self.mutation_limit());
        let above = self.used().saturating_sub(high);
        let part = (above * 1000)
            .checked_div(limit.saturating_sub(high))
            .map_or(0, |part| part.min(1000));
        // With the third power there is next to none where there is still much room.
        WRITE_REST_MAX * (part * part * part / 1_000_000) as u32 / 1000
    }

    /// Whether the reliever has something to do.
    #[must_use]
    pub fn is_pressed(&self) -> bool {
        self.used() > self.high_mark() || self.checkpoints() > self.checkpoint_upper_mark()
    }
}
