//! The flusher: takes dirty vBuckets, commits their changes with one sync, and informs the vBuckets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use engine::{FlushBatch, FlushBudget, FlushItem, SpareBuffers};
use model::{VbId, VbRecord};
use parking_lot::Mutex;
use storage::{Change, Changes, ErrorKind, KvStore, Next, StoreError, VbBatch, Worker};

use crate::Bucket;
use crate::holds::Hold;
use crate::scheduling::{CommitPolicy, PAUSE};
use crate::signals::{Bell, DirtySet};
use crate::stats::{Counters, FlusherState, WarmupStage};

const COMMIT_ITEMS_MAX: usize = 1 << 20;
/// Pause before a failed commit is retried.
const RETRY: Duration = Duration::from_millis(200);
/// Length from which a commit is logged, us: durable writes of its vBuckets have waited for it, and some of them in vain.
const SLOW_COMMIT_US: u64 = 5_000_000;
/// Attempts of the last flush without disk space, before the bucket stops without it.
const DRAIN_TRIES: usize = 25;
/// Divisor: part of the quota that must become durable before a resting reliever is woken.
const RELIEF_SHARE: u64 = 64;

/// Result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a failed commit is to be tried again"]
pub enum Flushed {
    /// All changes that were dirty at the start are durable, or a commit was full and the rest waits for the next step.
    Clean,
    /// The commit failed; retry after a pause.
    Retry(Duration),
    /// The store accepts no more commits.
    Failed,
}

/// A flush batch of the engine as the store reads it, and the current time in Unix seconds.
struct FlushRows<'a>(&'a FlushBatch, u32);

impl Changes for FlushRows<'_> {
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>)) {
        self.0.for_each(&mut |item| match item {
            FlushItem::Put {
                document,
                supersedes,
            } => f(Change::Put {
                document,
                supersedes,
            }),
            FlushItem::Remove {
                of,
                prepared,
                seqno,
            } => f(Change::Remove {
                key: of.key(),
                prepared,
                seqno,
            }),
            FlushItem::Keep(document) => f(Change::Keep {
                document,
                at_s: self.1,
            }),
        });
    }
}

/// State that the flusher shares with writes and with waiting requests.
#[derive(Default)]
pub(crate) struct Flushes {
    pub(crate) dirty: DirtySet,
    /// The turn to write into the store, with the vBuckets that are deleted from memory but not yet
    /// from the store. Taken before any slot.
    pub(crate) writing: Mutex<Vec<(VbId, VbRecord)>>,
    /// Whether some vBuckets were taken from `dirty` and are not flushed yet.
    pub(crate) under_way: AtomicBool,
    /// Time at which the current commit began; 0 without one.
    pub(crate) commit_began_ns: AtomicU64,
    /// Number of commits whose result the vBuckets know.
    pub(crate) finished: AtomicU64,
    /// Bytes that became durable since the reliever was last woken for them.
    persisted_bytes: AtomicU64,
    /// Whether commits are suspended.
    pub(crate) paused: AtomicBool,
    /// Whether a client observes persistence.
    pub(crate) urgent: AtomicBool,
    pub(crate) state: AtomicU8,
    /// Error of the last commit, until one succeeds.
    pub(crate) failure: Mutex<Option<ErrorKind>>,
}

impl Flushes {
    pub(crate) fn new(vbuckets: usize) -> Self {
        Self {
            dirty: DirtySet::new(vbuckets),
            state: AtomicU8::new(FlusherState::Running as u8),
            ..Self::default()
        }
    }

    /// Whether commits are suspended, and the last one is finished.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst) && !self.under_way.load(Ordering::SeqCst)
    }
}

fn changes(batches: &[FlushBatch]) -> usize {
    batches.iter().map(FlushBatch::len).sum()
}

impl<S: KvStore> Bucket<S> {
    /// Makes all dirty changes durable: each marked vBucket gets one turn, in as many commits as
    /// their limits require. Does nothing after a permanent failure of the store.
    pub fn flush_step(&self) -> Flushed {
        self.flush_step_with_pauses(&|| {})
    }

    /// [`Bucket::flush_step`] that calls `pause` after each 100 us or so of a small commit. No vBucket is locked then.
    pub fn flush_step_with_pauses(&self, pause: &dyn Fn()) -> Flushed {
        if self.flusher_state() == FlusherState::Failed {
            return Flushed::Failed;
        }
        let mut waiting = self.begin_flush();
        loop {
            let flushed = self.go_on_with_flush(&mut waiting, pause);
            if waiting.is_empty() {
                return flushed;
            }
        }
    }

    /// Takes all marks, in reverse order: the last vBucket of the list has the first turn.
    fn begin_flush(&self) -> Vec<VbId> {
        self.flushes.under_way.store(true, Ordering::SeqCst);
        let mut waiting = self.flushes.dirty.take();
        waiting.reverse();
        waiting
    }

    /// Runs one commit of a flush. If that fails, all waiting vBuckets are marked again.
    fn go_on_with_flush(&self, waiting: &mut Vec<VbId>, pause: &dyn Fn()) -> Flushed {
        let result = if waiting.is_empty() {
            Ok(())
        } else {
            self.flush_some(waiting, pause)
        };
        if result.is_err() {
            for vb in waiting.drain(..) {
                self.flushes.dirty.mark(vb);
            }
        }
        if waiting.is_empty() {
            self.flushes.under_way.store(false, Ordering::SeqCst);
        }
        result.map_or_else(|error| self.commit_failed(&error), |()| Flushed::Clean)
    }

    /// Runs one commit. On a failure its vBuckets are marked again, except those in `waiting`.
    fn flush_some(&self, waiting: &mut Vec<VbId>, pause: &dyn Fn()) -> Result<(), StoreError> {
        let mut owed = self.flushes.writing.lock();
        if let Err(error) = self.settle(&mut owed) {
            for (vb, _) in owed.iter() {
                self.flushes.dirty.mark(*vb);
            }
            return Err(error);
        }
        let batches = self.collect(waiting, pause);
        if batches.is_empty() {
            // The earlier failure is over.
            self.commit_succeeded();
            return Ok(());
        }
        let began_ns = self.clock.mono_ns().max(1);
        self.flushes
            .commit_began_ns
            .store(began_ns, Ordering::Relaxed);
        let result = self.commit(&batches);
        self.flushes.commit_began_ns.store(0, Ordering::Relaxed);
        if result.is_err() {
            self.finish(batches, false, pause);
            return result;
        }
        self.commit_succeeded();
        self.finish(batches, true, pause);
        Ok(())
    }

    /// Reports the result of the commit to the vBuckets and frees replaced versions. In a flood
    /// evicts documents that are durable. Marks vBuckets with more changes again.
    fn finish(&self, batches: Vec<FlushBatch>, ok: bool, pause: &dyn Fn()) {
        let (policy, changes) = (self.commit_policy(), changes(&batches));
        for (visit, batch) in (1..).zip(batches) {
            if policy.pauses_at(visit, changes) {
                pause();
            }
            let vb = batch.vb;
            // Memory is freed without the lock.
            let garbage = self.with_vbucket_for(Hold::Flush, vb, |vbucket| {
                let garbage = vbucket.finish_flush(batch.done(ok));
                (garbage, vbucket.is_dirty())
            });
            let Some((garbage, dirty)) = garbage else {
                continue;
            };
            if dirty {
                self.flushes.dirty.mark(vb);
            }
            self.evict_flushed(vb, &garbage);
        }
        self.flushes.finished.fetch_add(1, Ordering::SeqCst);
        // The reliever may rest because nothing could be freed; now durable documents can be.
        let persisted = &self.flushes.persisted_bytes;
        if persisted.load(Ordering::Relaxed) > self.memory.quota() / RELIEF_SHARE {
            persisted.store(0, Ordering::Relaxed);
            if self.relieving.called.load(Ordering::SeqCst) {
                self.relieving.signal.ring();
            }
        }
    }

    fn commit_policy(&self) -> CommitPolicy {
        if self.is_flooded() {
            CommitPolicy::HURRIED
        } else {
            CommitPolicy::BACKGROUND
        }
    }

    /// Takes vBuckets off `waiting` until one commit is full. Returns their batches.
    fn collect(&self, waiting: &mut Vec<VbId>, pause: &dyn Fn()) -> Vec<FlushBatch> {
        let mut spare = SpareBuffers::default();
        let mut batches = Vec::new();
        let (mut visits, mut bytes, mut items) = (0, 0, 0);
        let policy = self.commit_policy();
        while bytes < policy.bytes_max && items < COMMIT_ITEMS_MAX {
            let Some(vb) = waiting.pop() else { break };
            visits += 1;
            if policy.pauses_at(visits, items) {
                pause();
            }
            let budget = FlushBudget {
                items: COMMIT_ITEMS_MAX - items,
                bytes: policy.bytes_max - bytes,
            };
            spare.refill();
            let batch = self
                .with_vbucket_for(Hold::Flush, vb, |vbucket| {
                    vbucket.begin_flush(budget, &mut spare)
                })
                .flatten();
            if let Some(batch) = batch {
                bytes += batch.bytes();
                items += batch.len();
                batches.push(batch);
            }
        }
        batches
    }

    fn commit(&self, batches: &[FlushBatch]) -> Result<(), StoreError> {
        let started = self.clock.mono_ns();
        let at_s = self.clock.now().unix_s();
        let rows: Vec<FlushRows<'_>> = batches.iter().map(|batch| FlushRows(batch, at_s)).collect();
        let batches: Vec<VbBatch<'_>> = rows
            .iter()
            .map(|rows| VbBatch {
                vb: rows.0.vb,
                record: &rows.0.record,
                changes: rows,
            })
            .collect();
        let info = self.store.commit(&batches)?;
        for rows in rows.iter().filter(|rows| rows.0.has_history()) {
            self.histories.grew(rows.0.vb, rows.0.bytes() as u64);
        }
        let took_us = (self.clock.mono_ns().saturating_sub(started)) / 1000;
        if took_us >= SLOW_COMMIT_US {
            let (bucket, seconds) = (self.name(), took_us / 1_000_000);
            tracing::warn!(
                bucket,
                seconds,
                rows = info.rows,
                "a commit took long: the disk is slow"
            );
        }
        let counters = self.counters();
        Counters::add(&counters.commits, 1);
        Counters::add(&counters.commits_waited, u64::from(info.waited));
        Counters::add(&counters.rows_persisted, info.rows as u64);
        Counters::add(&counters.bytes_persisted, info.bytes);
        Counters::add(&counters.commit_us, took_us);
        counters.commit_last_us.store(took_us, Ordering::Relaxed);
        counters.commit_times_us.record(took_us);
        self.flushes
            .persisted_bytes
            .fetch_add(info.bytes, Ordering::Relaxed);
        Ok(())
    }

    fn commit_succeeded(&self) {
        if self.flushes.failure.lock().take().is_some() {
            tracing::info!(bucket = self.name(), "commits succeed again");
            self.set_flusher_state(FlusherState::Running);
        }
    }

    fn commit_failed(&self, error: &StoreError) -> Flushed {
        Counters::add(&self.counters().commits_failed, 1);
        let last = self.flushes.failure.lock().replace(error.kind);
        if error.kind.may_pass() {
            if last != Some(error.kind) {
                tracing::error!(bucket = self.name(), %error, "commit failed; trying again");
            }
            self.set_flusher_state(FlusherState::Retrying);
            return Flushed::Retry(RETRY);
        }
        tracing::error!(
            bucket = self.name(),
            %error,
            "commit failed; nothing is persisted any more until a restart"
        );
        self.set_flusher_state(FlusherState::Failed);
        Flushed::Failed
    }
}

/// The worker that makes changes durable, a commit in each step; when the bucket stops, until all are.
pub(super) struct Flusher<S> {
    bucket: Arc<Bucket<S>>,
    /// vBuckets of the current flush that have not had their turn.
    waiting: Vec<VbId>,
    /// Earliest time of the next flush, unless it is hurried.
    next_ns: u64,
    /// Pause after a failed commit, which neither changes nor `urgent` shorten: first its length, then its end.
    pause: Option<Duration>,
    pause_until_ns: u64,
    /// Remaining attempts once the bucket stops.
    tries_left: Option<usize>,
    pausing: Bell,
}

impl<S: KvStore> Flusher<S> {
    pub(super) fn new(bucket: Arc<Bucket<S>>) -> Self {
        Self {
            bucket,
            waiting: Vec::new(),
            next_ns: 0,
            pause: None,
            pause_until_ns: 0,
            tries_left: None,
            pausing: Bell::default(),
        }
    }

    /// Returns the event to wait for before the next flush: changes, and then the end of the
    /// interval, unless a client observes persistence. `None` to flush at once.
    fn wait_for_work(&mut self, now_ns: u64) -> Option<Next> {
        let flushes = &self.bucket.flushes;
        if let Some(pause) = self.pause.take() {
            self.pause_until_ns = now_ns + pause.as_nanos() as u64;
        }
        if now_ns < self.pause_until_ns {
            return Some(Next::At(self.pause_until_ns));
        }
        if self.tries_left.is_some() {
            return None;
        }
        if self.bucket.flusher_state() == FlusherState::Failed {
            return Some(Next::OnSignal);
        }
        if flushes.paused.load(Ordering::SeqCst) {
            return Some(Next::OnSignal);
        }
        let hurried = flushes.urgent.swap(false, Ordering::SeqCst);
        if hurried {
            return None;
        }
        if flushes.dirty.rearm() {
            return Some(Next::OnSignal);
        }
        (now_ns < self.next_ns).then_some(Next::At(self.next_ns))
    }

    /// Pauses, unless a client waits for durability or the bucket stops.
    fn pause_unless_hurried(&self) {
        if !self.bucket.flushes.urgent.load(Ordering::SeqCst) && !self.bucket.is_stopping() {
            self.pausing.wait(Some(PAUSE));
        }
    }

    /// Whether the flush was the last one of a stopping bucket.
    fn is_drained(&mut self, flushed: Flushed) -> bool {
        let Some(tries_left) = &mut self.tries_left else {
            return false;
        };
        let drained = flushed == Flushed::Clean && !self.bucket.flushes.dirty.any();
        if drained || flushed == Flushed::Failed || *tries_left == 0 {
            return true;
        }
        *tries_left -= 1;
        false
    }
}

impl<S: KvStore> Worker for Flusher<S> {
    fn step(&mut self, now_ns: u64) -> Next {
        let bucket = Arc::clone(&self.bucket);
        if bucket.is_stopping() && self.tries_left.is_none() {
            self.tries_left = Some(DRAIN_TRIES);
            (self.pause, self.pause_until_ns) = (None, 0);
        }
        if bucket.warmup().stage() == WarmupStage::Failed {
            return self.tries_left.map_or(Next::OnSignal, |_| Next::Done);
        }
        if self.waiting.is_empty() {
            if let Some(next) = self.wait_for_work(now_ns) {
                return next;
            }
            let interval_ns = bucket.options.flush_interval_ms * 1_000_000;
            self.next_ns = now_ns + interval_ns;
            if bucket.flusher_state() != FlusherState::Failed {
                self.waiting = bucket.begin_flush();
            }
        }
        let mut waiting = std::mem::take(&mut self.waiting);
        let mut flushed = bucket.go_on_with_flush(&mut waiting, &|| self.pause_unless_hurried());
        self.waiting = waiting;
        if bucket.flusher_state() == FlusherState::Failed {
            flushed = Flushed::Failed;
        }
        if self.waiting.is_empty() && self.is_drained(flushed) {
            bucket.set_flusher_state(FlusherState::Stopped);
            return Next::Done;
        }
        if let Flushed::Retry(pause) = flushed {
            self.pause = Some(pause);
        }
        Next::Again
    }
}
