//! The flusher: takes what is dirty, commits it with one sync, tells the vBuckets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use engine::{FlushBatch, FlushBudget, FlushItem, Room};
use model::VbId;
use storage::{Change, Changes, KvStore, StoreError, VbBatch};

use crate::Bucket;
use crate::holds::Hold;
use crate::stats::{Counters, FlusherState};

/// One commit takes at most this much, so that a burst does not delay those behind it.
const COMMIT_BYTES_MAX: usize = 16 << 20;
/// In a flood, writes wait for the memory that a commit sets free: it comes in small parts.
const FLOOD_COMMIT_BYTES_MAX: usize = 2 << 20;
const COMMIT_ITEMS_MAX: usize = 1 << 20;
/// So many vBuckets are visited without a breath, in some 100 us.
const VISITS_PER_BREATH: usize = 64;
/// A commit of more changes than that is done without a breath: there is much to do.
const BREATHS_CHANGES_MAX: usize = 2048;
/// In a flood, a commit of more changes is done so.
const FLOOD_BREATHS_CHANGES_MAX: usize = 256;
/// How long to wait before a failed commit is tried again.
const RETRY: Duration = Duration::from_millis(200);
/// The part of the quota that must have become durable for the reliever to be woken from a rest.
const RELIEF_SHARE: u64 = 64;

/// What the flusher does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a failed commit is to be tried again"]
pub enum Flushed {
    /// Everything that was dirty at the start is durable (its vBuckets may be told by the finisher), or
    /// waits for the next step: a commit was full, or an earlier one is not finished.
    Clean,
    /// The commit failed; try again after a pause.
    Retry(Duration),
    /// The store takes no commit any more.
    Failed,
}

/// A batch of the engine in the shape that the store walks, and now, Unix seconds.
struct Rows<'a>(&'a FlushBatch, u32);

impl Changes for Rows<'_> {
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>)) {
        self.0.for_each(&mut |item| match item {
            FlushItem::Put {
                document,
                supersedes,
            } => f(Change::Put {
                document,
                supersedes,
            }),
            FlushItem::Remove(seqno) => f(Change::Remove(seqno)),
            FlushItem::Keep(document) => f(Change::Keep {
                document,
                at_s: self.1,
            }),
        });
    }

    fn len(&self) -> usize {
        self.0.len()
    }

    fn has_history(&self) -> bool {
        self.0.has_history()
    }
}

/// Says that a flush is under way, while there is this.
struct Flushing<'a>(&'a AtomicBool);

impl<'a> Flushing<'a> {
    fn begin(flushing: &'a AtomicBool) -> Self {
        flushing.store(true, Ordering::SeqCst);
        Self(flushing)
    }
}

impl Drop for Flushing<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

fn changes(batches: &[FlushBatch]) -> usize {
    batches.iter().map(FlushBatch::len).sum()
}

impl<S: KvStore> Bucket<S> {
    /// Makes what is dirty now durable: each vBucket that is marked gets its turn once, in as
    /// many commits as their limits ask for. Does nothing once the store has failed for good.
    pub fn flush_step(&self) -> Flushed {
        self.flush_step_with_breaths(&|| {})
    }

    /// [`Bucket::flush_step`] that calls `breathe` after each 100 us or so of a commit that is not
    /// large, for a moment to let others run. No vBucket is locked then.
    pub fn flush_step_with_breaths(&self, breathe: &dyn Fn()) -> Flushed {
        if self.flusher_state() == FlusherState::Failed {
            return Flushed::Failed;
        }
        let _flushing = Flushing::begin(&self.flushing);
        let mut waiting = self.dirty.take();
        waiting.reverse();
        while !waiting.is_empty() {
            if let Err(error) = self.flush_some(&mut waiting, breathe) {
                for vb in waiting {
                    self.dirty.mark(vb);
                }
                return self.commit_failed(&error);
            }
        }
        Flushed::Clean
    }

    /// One commit. What could not be written is marked again, but for what is still in `waiting`.
    fn flush_some(&self, waiting: &mut Vec<VbId>, breathe: &dyn Fn()) -> Result<(), StoreError> {
        let mut owed = self.writing.lock();
        if let Err(error) = self.settle(&mut owed) {
            for (vb, _) in owed.iter() {
                self.dirty.mark(*vb);
            }
            return Err(error);
        }
        let batches = self.collect(waiting, breathe);
        if batches.is_empty() {
            return Ok(());
        }
        let began_ns = self.clock.mono_ns().max(1);
        self.commit_began_ns.store(began_ns, Ordering::Relaxed);
        let result = self.commit(&batches);
        self.commit_began_ns.store(0, Ordering::Relaxed);
        if result.is_err() {
            self.finish(batches, false, breathe);
            return result;
        }
        self.commit_succeeded();
        if changes(&batches) <= self.breaths_changes_max() {
            self.finish(batches, true, breathe);
        } else if let Err(batches) = self.finishing.hand_over(batches) {
            self.finish(batches, true, breathe);
        }
        Ok(())
    }

    /// Tells the vBuckets what became of their batches, frees what was replaced since, and in a
    /// flood lets what is durable now leave memory. Marks again what has more.
    pub(crate) fn finish(&self, batches: Vec<FlushBatch>, ok: bool, breathe: &dyn Fn()) {
        let breathes = changes(&batches) <= self.breaths_changes_max();
        for (visit, batch) in batches.into_iter().enumerate() {
            if breathes && visit % VISITS_PER_BREATH == VISITS_PER_BREATH - 1 {
                breathe();
            }
            let vb = batch.vb;
            // The lock is not held while memory is freed.
            let garbage = self.with_vbucket_for(Hold::Flush, vb, |vbucket| {
                let garbage = vbucket.finish_flush(batch.done(ok));
                (garbage, vbucket.is_dirty())
            });
            let Some((garbage, dirty)) = garbage else {
                continue;
            };
            if dirty {
                self.dirty.mark(vb);
            }
            self.evict_flushed(vb, &garbage);
        }
        // The reliever may rest because nothing could go; now there is something.
        let persisted = &self.persisted_bytes;
        if persisted.load(Ordering::Relaxed) > self.memory.quota() / RELIEF_SHARE {
            persisted.store(0, Ordering::Relaxed);
            if self.relieving.load(Ordering::SeqCst) {
                self.reliever_bell.ring();
            }
        }
    }

    fn breaths_changes_max(&self) -> usize {
        if self.flooded.load(Ordering::Relaxed) {
            FLOOD_BREATHS_CHANGES_MAX
        } else {
            BREATHS_CHANGES_MAX
        }
    }

    /// Takes batches off `waiting` until one commit is full.
    fn collect(&self, waiting: &mut Vec<VbId>, breathe: &dyn Fn()) -> Vec<FlushBatch> {
        let mut room = Room::default();
        let mut batches = Vec::new();
        let (mut visits, mut bytes, mut items) = (0, 0, 0);
        let flooded = self.flooded.load(Ordering::Relaxed);
        let bytes_max = if flooded {
            FLOOD_COMMIT_BYTES_MAX
        } else {
            COMMIT_BYTES_MAX
        };
        let breaths_changes_max = self.breaths_changes_max();
        while bytes < bytes_max && items < COMMIT_ITEMS_MAX {
            let Some(vb) = waiting.pop() else { break };
            visits += 1;
            if visits % VISITS_PER_BREATH == 0 && items <= breaths_changes_max {
                breathe();
            }
            let budget = FlushBudget {
                items: COMMIT_ITEMS_MAX - items,
                bytes: bytes_max - bytes,
            };
            room.furnish();
            let batch = self
                .with_vbucket_for(Hold::Flush, vb, |vbucket| {
                    vbucket.begin_flush_in(budget, &mut room)
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
        let rows: Vec<Rows<'_>> = batches.iter().map(|batch| Rows(batch, at_s)).collect();
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
        let counters = self.counters();
        Counters::add(&counters.commits, 1);
        Counters::add(&counters.commits_waited, u64::from(info.waited));
        Counters::add(&counters.rows_persisted, info.rows as u64);
        Counters::add(&counters.bytes_persisted, info.bytes);
        Counters::add(&counters.commit_us, took_us);
        counters.commit_last_us.store(took_us, Ordering::Relaxed);
        counters.commit_times.record(took_us);
        self.persisted_bytes
            .fetch_add(info.bytes, Ordering::Relaxed);
        Ok(())
    }

    fn commit_succeeded(&self) {
        if self.failure.lock().take().is_some() {
            tracing::info!(bucket = self.name(), "commits succeed again");
            self.set_flusher_state(FlusherState::Running);
        }
    }

    fn commit_failed(&self, error: &StoreError) -> Flushed {
        Counters::add(&self.counters().commits_failed, 1);
        let last = self.failure.lock().replace(error.kind);
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
