//! Warmup: loads every key of the store, with all values if they fit; with full eviction, only the
//! number of keys. The refill loads values that stay in the store.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::available_parallelism;

use collections::{SharedCollections, SystemEvent};
use model::{Document, Meta, Seqno, VbId, VbState, VbUuid};
use parking_lot::Mutex;
use storage::{ErrorKind, KeyRange, KvStore, Next, Snapshot, StoreError, Worker};

use crate::Bucket;
use crate::memory::Eviction;
use crate::stats::{Counters, FlusherState, WarmupStage};
use crate::summary::StoredSummary;

/// Rows put into the table under one lock hold, and their approximate bytes.
const ROWS_PER_HOLD: usize = 256;
const BYTES_PER_HOLD: u64 = 64 << 10;

/// Rows that a worker loads in one step, plus the rest of a vBucket.
const KEYS_PER_STEP: u64 = 8192;

/// Maximum number of remembered groups of events.
const GROUPS_MAX: usize = 32;

/// Maximum number of warmup workers of a bucket: more would wait for memory and for each other.
const WORKERS_MAX: usize = 8;

/// Events and collections of the loaded vBuckets.
#[derive(Default)]
struct LearnedGroups {
    /// Groups of events.
    groups: Vec<Document>,
    shared: SharedCollections,
}

/// A warmup under way, shared by its workers.
struct WarmupQueue<U> {
    /// The next vBucket.
    next: AtomicU16,
    /// Workers that have not ended.
    workers: AtomicUsize,
    /// Whether any row could be read.
    any_read: AtomicBool,
    uuids: Mutex<U>,
    /// Whether the values of all documents fit into memory, approximately.
    all_fit: bool,
    /// Read by the first worker.
    summary: OnceLock<StoredSummary>,
    began_ns: u64,
}

impl<U: FnMut() -> VbUuid> WarmupQueue<U> {
    fn new(bucket: &Bucket<impl KvStore>, workers: usize, uuids: U) -> Self {
        let stored = bucket.store.disk_usage();
        let low_mark = bucket.memory.low_mark();
        let all_fit = stored.is_ok_and(|stored| stored.data_bytes <= low_mark);
        Self {
            next: AtomicU16::new(0),
            workers: AtomicUsize::new(workers),
            any_read: AtomicBool::new(false),
            uuids: Mutex::new(uuids),
            all_fit,
            summary: OnceLock::new(),
            began_ns: bucket.clock.mono_ns(),
        }
    }
}

impl<S: KvStore> Bucket<S> {
    /// Loads all vBuckets; data operations on each are allowed once it is loaded. `uuids` is as for
    /// [`Bucket::open`]. A vBucket with an unreadable row goes into quarantine, and is not served.
    ///
    /// Ends early when the workers are told to stop.
    pub fn warm_up(&self, uuids: &mut dyn FnMut() -> VbUuid) {
        let load = WarmupQueue::new(self, 1, uuids);
        let mut learned = LearnedGroups::default();
        while !self.continue_warmup(&load, &mut learned) {}
        self.end_warmup(&load);
    }

    /// Loads some rows, as whole vBuckets; `learned` holds this worker's groups of events. Returns
    /// whether nothing is left.
    fn continue_warmup<U: FnMut() -> VbUuid>(
        &self,
        load: &WarmupQueue<U>,
        learned: &mut LearnedGroups,
    ) -> bool {
        let warmup = self.warmup();
        let enough = Counters::read(&warmup.keys) + KEYS_PER_STEP;
        while Counters::read(&warmup.keys) < enough {
            let vb = load.next.fetch_add(1, Ordering::Relaxed);
            let stops = self.is_stopping() || warmup.stage() == WarmupStage::Failed;
            if stops || vb >= self.vbuckets() {
                // Bounds the counter, however often this is called again.
                load.next.store(self.vbuckets(), Ordering::Relaxed);
                return true;
            }
            self.warm_up_vbucket(VbId(vb), load, learned);
        }
        false
    }

    /// Ends the work of one worker. Returns whether it was the last one.
    fn end_warmup<U>(&self, load: &WarmupQueue<U>) -> bool {
        if load.workers.fetch_sub(1, Ordering::AcqRel) > 1 {
            return false;
        }
        let warmup = self.warmup();
        if warmup.stage() == WarmupStage::Failed {
            let slots = (0..self.vbuckets()).filter_map(|id| self.slot(VbId(id)));
            for slot in slots {
                slot.loaded.store(false, Ordering::Release);
            }
        } else if Counters::read(&warmup.vbuckets_done) == warmup.vbuckets {
            // Some vBuckets may have been loaded before the manifest had events of others.
            self.bring_all_to_manifest((0..self.vbuckets()).map(VbId));
            self.erase_soon();
            let took_us = self.clock.mono_ns().saturating_sub(load.began_ns) / 1000;
            Counters::add(&warmup.time_us, took_us);
            warmup.set_stage(WarmupStage::Done);
        }
        true
    }

    fn warm_up_vbucket<U: FnMut() -> VbUuid>(
        &self,
        vb: VbId,
        load: &WarmupQueue<U>,
        learned: &mut LearnedGroups,
    ) {
        match self.load_vbucket(vb, load, learned) {
            Ok(read) => {
                load.any_read.fetch_or(read, Ordering::Relaxed);
            }
            // A disk that cannot be read at all is no damage of a vBucket.
            Err(error)
                if error.kind == ErrorKind::Corrupt
                    || load.any_read.load(Ordering::Relaxed) && error.kind == ErrorKind::Io =>
            {
                self.put_in_quarantine(vb, &error);
            }
            Err(error) => {
                tracing::error!(bucket = self.name(), %error, "warmup failed");
                self.set_flusher_state(FlusherState::Failed);
                self.warmup().set_stage(WarmupStage::Failed);
                return;
            }
        }
        let uuid = (load.uuids.lock())();
        if self.is_stopping() {
            return;
        }
        self.with_vbucket(vb, |vbucket| {
            let active = vbucket.state() == VbState::Active;
            let begin_anew = active && self.begins_anew(vb);
            vbucket.finish_warmup(begin_anew.then_some(uuid));
        });
        self.share_collections(vb);
        self.bring_to_manifest(vb);
        if let Some(slot) = self.slot(vb) {
            slot.loaded.store(true, Ordering::Release);
        }
        Counters::add(&self.warmup().vbuckets_done, 1);
    }

    /// Loads the rows of a vBucket; `learned` holds this worker's groups of events. Returns whether there were any.
    fn load_vbucket<U>(
        &self,
        vb: VbId,
        load: &WarmupQueue<U>,
        learned: &mut LearnedGroups,
    ) -> Result<bool, StoreError> {
        let known = self.with_vbucket(vb, |vbucket| vbucket.high_seqno().0 != 0);
        if known != Some(true) {
            return Ok(false);
        }
        let snapshot = self.store.snapshot(vb)?;
        let stored = load.summary.get_or_init(|| self.stored_summary());
        let summary = self.summary_of(vb, &*snapshot, stored)?;
        let summarized = summary.map_or(Seqno::ZERO, |summary| summary.at.seqno);
        let mut rows = snapshot.beside_documents(summarized)?;
        if let Some(summary) = summary {
            self.with_vbucket(vb, |vbucket| vbucket.load_summary(summary));
            Counters::add(&self.warmup().summarized, 1);
        } else if rows.iter().any(|row| SystemEvent::is_key(row.key())) {
            self.summarize_later();
        }
        self.load_rows(vb, &mut rows, learned);
        let stays = self.eviction() == Eviction::Documents && self.leave_in_store(vb, &*snapshot);
        if !stays {
            self.load_documents(vb, &*snapshot, load, learned)?;
        }
        self.fetch_before_decisions(vb)?;
        Ok(true)
    }

    /// Loads the keys of a vBucket, with their values if those of the bucket fit into memory.
    /// Otherwise the refill loads values after it is known how much memory the keys leave. Values
    /// that are stored apart are not read here then.
    fn load_documents<U>(
        &self,
        vb: VbId,
        snapshot: &dyn Snapshot,
        load: &WarmupQueue<U>,
        learned: &mut LearnedGroups,
    ) -> Result<(), StoreError> {
        let mut rows: Vec<Document> = Vec::with_capacity(ROWS_PER_HOLD);
        let mut bytes = 0;
        let workers = load.workers.load(Ordering::Relaxed) as u64;
        snapshot.look(Seqno::ZERO, &KeyRange::default(), &mut |row| {
            if self.is_stopping() {
                return Ok(ControlFlow::Break(()));
            }
            let row_bytes = Document::memory_bytes_of(row.key.len(), row.value_bytes) as u64;
            Counters::add(&self.warmup().keys, 1);
            // Other workers have as much memory that is not booked yet.
            let after = self.memory.used() + bytes * workers + row_bytes;
            let fits = load.all_fit && after <= self.memory.low_mark();
            let row = if fits || !self.value_may_leave(row.meta, row.value_bytes) {
                Counters::add(&self.warmup().values, 1);
                (row.document)()?
            } else {
                Document::non_resident(row.key, row.meta)
            };
            bytes += row.memory_bytes() as u64;
            rows.push(row);
            if rows.len() == ROWS_PER_HOLD || bytes >= BYTES_PER_HOLD {
                self.load_rows(vb, &mut rows, learned);
                bytes = 0;
            }
            Ok(ControlFlow::Continue(()))
        })?;
        self.load_rows(vb, &mut rows, learned);
        Ok(())
    }

    /// Takes the number of documents from the record; `false` if the record does not have it.
    fn leave_in_store(&self, vb: VbId, snapshot: &dyn Snapshot) -> bool {
        let record = snapshot.record();
        let counts = record.and_then(|record| record.counts.as_deref());
        if let Some(counts) = counts {
            self.with_vbucket(vb, |vbucket| vbucket.leave_in_store(counts));
        }
        counts.is_some()
    }

    fn fetch_before_decisions(&self, vb: VbId) -> Result<(), StoreError> {
        let wanted = self.with_vbucket(vb, engine::VBucket::fetch_before_decisions);
        for wanted in wanted.into_iter().flatten() {
            if !self.fetch_now(vb, &wanted) {
                let error = StoreError::new(ErrorKind::Corrupt, "warming up").of(vb);
                return Err(error.because("what a durable write replaces cannot be read"));
            }
        }
        Ok(())
    }

    /// Whether the value of a row that is no event can stay in the store.
    pub(crate) fn value_may_leave(&self, meta: &Meta, value_bytes: usize) -> bool {
        let alive = !meta.kind.is_tombstone();
        self.eviction().keeps_a_copy() && !meta.kind.is_prepared() && (alive || value_bytes > 0)
    }

    /// Reports a row that [`VBucket::load`](engine::VBucket::load) found to be wrong.
    pub(crate) fn report_odd_row(&self, vb: VbId, seqno: Seqno) {
        let (bucket, vb, seqno) = (self.name(), vb.0, seqno.0);
        tracing::error!(
            bucket,
            vb,
            seqno,
            "the store has a row that it should not have"
        );
    }

    fn load_rows(&self, vb: VbId, rows: &mut Vec<Document>, learned: &mut LearnedGroups) {
        for event in rows.iter().filter(|row| SystemEvent::is_key(row.key())) {
            // Most vBuckets have the same groups.
            if SystemEvent::is_group(event.key()) {
                if learned.groups.iter().any(|it| it.value() == event.value()) {
                    continue;
                }
                if learned.groups.len() == GROUPS_MAX {
                    learned.groups.clear();
                }
                learned.groups.push(event.clone());
            }
            self.learn_event(event);
        }
        let now = self.clock.now();
        let whole = match self.eviction() {
            Eviction::Documents => true,
            // Even keys alone may be too much.
            Eviction::Values => self.memory.used() > self.memory.high_mark(),
            Eviction::Delete | Eviction::None => false,
        };
        let odd = self.with_vbucket(vb, |vbucket| {
            vbucket.set_evicts_keys(whole);
            let odd = rows.drain(..).filter_map(|row| {
                let loaded = row.clone();
                let odd = vbucket.load_shared(row, &mut learned.shared);
                if whole && !loaded.is_resident() {
                    vbucket.evict(loaded.key(), now);
                }
                odd
            });
            odd.max()
        });
        if let Some(seqno) = odd.flatten() {
            self.report_odd_row(vb, seqno);
        }
        // Rows may be left if the vBucket was deleted meanwhile.
        rows.clear();
    }
}

/// One of the workers that warm a bucket up; the last one wakes the bucket's other workers.
pub(super) struct Warmup<S, U, F> {
    bucket: Arc<Bucket<S>>,
    load: Arc<WarmupQueue<U>>,
    learned: LearnedGroups,
    /// Called at the end.
    warmed_up: Arc<Mutex<Option<F>>>,
}

impl<S, U, F> Warmup<S, U, F>
where
    S: KvStore,
    U: FnMut() -> VbUuid,
{
    /// Creates as many workers as there are processors, within the maximum.
    pub(super) fn workers(bucket: &Arc<Bucket<S>>, uuids: U, warmed_up: F) -> Vec<Self> {
        let count = available_parallelism().map_or(1, usize::from);
        let count = count.min(WORKERS_MAX);
        let load = Arc::new(WarmupQueue::new(bucket, count, uuids));
        let warmed_up = Arc::new(Mutex::new(Some(warmed_up)));
        let worker = |_| Self {
            bucket: Arc::clone(bucket),
            load: Arc::clone(&load),
            learned: LearnedGroups::default(),
            warmed_up: Arc::clone(&warmed_up),
        };
        (0..count).map(worker).collect()
    }
}

impl<S, U, F> Worker for Warmup<S, U, F>
where
    S: KvStore,
    U: FnMut() -> VbUuid + Send,
    F: FnOnce() + Send,
{
    fn step(&mut self, _: u64) -> Next {
        let bucket = &self.bucket;
        if !bucket.continue_warmup(&self.load, &mut self.learned) {
            return Next::Again;
        }
        if bucket.end_warmup(&self.load) {
            let warmed_up = self.warmed_up.lock().take();
            if let Some(warmed_up) = warmed_up {
                warmed_up();
            }
            bucket.flushes.dirty.signal.ring();
            bucket.compactions.signal.ring();
            bucket.warmed_up.ring();
        }
        Next::Done
    }
}
