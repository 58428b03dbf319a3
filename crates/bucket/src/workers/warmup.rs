//! Warmup: loads every key of the store, with its value as long as memory lasts; with full eviction, how many there are.

use std::ops::ControlFlow;
use std::sync::Arc;

use engine::collections::{SharedCollections, SystemEvent};
use model::{Document, Seqno, VbId, VbState, VbUuid};
use storage::{ErrorKind, KvStore, Next, StoreError, Worker};

use crate::Bucket;
use crate::memory::Eviction;
use crate::stats::{Counters, FlusherState, WarmupStage};

/// Rows put into the table under one lock hold.
const ROWS_PER_HOLD: usize = 256;

/// Rows loaded in one step, but for the rest of a vBucket.
const KEYS_PER_STEP: u64 = 8192;

/// Groups of events that are remembered.
const GROUPS_MAX: usize = 32;

/// What vBuckets that were loaded told of their collections.
#[derive(Default)]
struct LearnedGroups {
    /// Groups of events.
    groups: Vec<Document>,
    shared: SharedCollections,
}

/// A warmup under way.
#[derive(Default)]
struct Load {
    /// The vBucket that is next.
    vb: u16,
    /// Whether any row could be read.
    any_read: bool,
    told: LearnedGroups,
}

impl<S: KvStore> Bucket<S> {
    /// Loads all vBuckets, then lets data operations in. `uuids` is as for [`Bucket::open`]. A vBucket with a
    /// row that cannot be read goes into quarantine, and is not served.
    ///
    /// When the workers are told to stop, it ends early and lets nothing in.
    pub fn warm_up(&self, uuids: &mut dyn FnMut() -> VbUuid) {
        let mut load = Load::default();
        while !self.continue_warmup(&mut load, uuids) {}
    }

    /// Loads some rows, whole vBuckets. Returns whether warmup has ended.
    fn continue_warmup(&self, load: &mut Load, uuids: &mut dyn FnMut() -> VbUuid) -> bool {
        let warmup = self.warmup();
        let started = self.clock.mono_ns();
        if load.vb == 0 {
            Counters::add(&warmup.vbuckets, u64::from(self.vbuckets()));
        }
        let enough = Counters::read(&warmup.keys) + KEYS_PER_STEP;
        while load.vb < self.vbuckets() {
            if !self.warm_up_vbucket(VbId(load.vb), load, uuids) {
                return true;
            }
            load.vb += 1;
            if Counters::read(&warmup.keys) >= enough {
                let took_us = self.clock.mono_ns().saturating_sub(started) / 1000;
                Counters::add(&warmup.time_us, took_us);
                return false;
            }
        }
        // Some may have stopped before they noted what the manifest had already.
        self.bring_all_to_manifest((0..self.vbuckets()).map(VbId));
        self.erase_soon();
        let took_us = self.clock.mono_ns().saturating_sub(started) / 1000;
        Counters::add(&warmup.time_us, took_us);
        warmup.set_stage(WarmupStage::Done);
        true
    }

    /// `false` when it is the last one, because it failed or the workers are to stop.
    fn warm_up_vbucket(
        &self,
        vb: VbId,
        load: &mut Load,
        uuids: &mut dyn FnMut() -> VbUuid,
    ) -> bool {
        let mut after = Seqno::ZERO;
        match self.load_vbucket(vb, &mut after, &mut load.told) {
            Ok(()) => load.any_read |= after > Seqno::ZERO,
            // A disk that gives nothing at all is no damage of a vBucket.
            Err(error)
                if error.kind == ErrorKind::Corrupt
                    || load.any_read && error.kind == ErrorKind::Io =>
            {
                self.put_in_quarantine(vb, after, &error);
            }
            Err(error) => {
                tracing::error!(bucket = self.name(), %error, "warmup failed");
                self.set_flusher_state(FlusherState::Failed);
                self.warmup().set_stage(WarmupStage::Failed);
                return false;
            }
        }
        if self.is_stopping() {
            return false;
        }
        let uuid = uuids();
        self.with_vbucket(vb, |vbucket| {
            let active = vbucket.state() == VbState::Active;
            let begin_anew = active && self.begins_anew(vb);
            vbucket.finish_warmup(begin_anew.then_some(uuid));
        });
        self.share_collections(vb);
        Counters::add(&self.warmup().vbuckets_done, 1);
        true
    }

    /// Loads the rows of a vBucket; `after` is the seqno of the last one that could be read, `told` what
    /// vBuckets told of collections.
    fn load_vbucket(
        &self,
        vb: VbId,
        after: &mut Seqno,
        told: &mut LearnedGroups,
    ) -> Result<(), StoreError> {
        let known = self.with_vbucket(vb, |vbucket| vbucket.high_seqno().0 != 0);
        if known != Some(true) {
            return Ok(());
        }
        if self.eviction() == Eviction::Documents && self.leave_in_store(vb, told)? {
            return self.fetch_before_decisions(vb);
        }
        let mut rows: Vec<Document> = Vec::with_capacity(ROWS_PER_HOLD);
        let mut bytes = 0;
        self.store.scan(vb, Seqno(1), &mut |document| {
            *after = document.seqno();
            if rows.is_empty() {
                bytes = 0;
            }
            let row = self.with_value_if_it_fits(document, bytes);
            bytes += row.memory_bytes() as u64;
            rows.push(row);
            if rows.len() == ROWS_PER_HOLD {
                self.load_rows(vb, &mut rows, told);
            }
            if self.is_stopping() {
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        })?;
        self.load_rows(vb, &mut rows, told);
        self.fetch_before_decisions(vb)
    }

    /// Loads what the store has beside documents, and takes their number from the record; `false` when that does not have
    /// it.
    fn leave_in_store(&self, vb: VbId, told: &mut LearnedGroups) -> Result<bool, StoreError> {
        let snapshot = self.store.snapshot(vb)?;
        let counts = snapshot
            .record()
            .and_then(|record| record.counts.as_deref());
        let Some(counts) = counts else {
            return Ok(false);
        };
        let mut rows = snapshot.beside_documents()?;
        self.load_rows(vb, &mut rows, told);
        self.with_vbucket(vb, |vbucket| vbucket.leave_in_store(counts));
        Ok(true)
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

    /// Values stay out once the account and the `bytes` not yet in it reach the low mark.
    fn with_value_if_it_fits(&self, row: Document, bytes: u64) -> Document {
        let warmup = self.warmup();
        Counters::add(&warmup.keys, 1);
        let after = self.memory.used() + bytes + row.memory_bytes() as u64;
        if after > self.memory.low_mark() && !row.kind().is_prepared() && self.value_may_leave(&row)
        {
            return row.to_non_resident();
        }
        Counters::add(&warmup.values, 1);
        row
    }

    /// Whether the value of a row can be left in the store.
    pub(crate) fn value_may_leave(&self, row: &Document) -> bool {
        self.eviction().keeps_a_copy()
            && (!row.kind().is_tombstone() || !row.value().is_empty())
            && !SystemEvent::is_key(row.key())
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

    fn load_rows(&self, vb: VbId, rows: &mut Vec<Document>, told: &mut LearnedGroups) {
        for event in rows.iter().filter(|row| SystemEvent::is_key(row.key())) {
            // Most vBuckets have the same groups.
            if SystemEvent::is_group(event.key()) {
                if told.groups.iter().any(|it| it.value() == event.value()) {
                    continue;
                }
                if told.groups.len() == GROUPS_MAX {
                    told.groups.clear();
                }
                told.groups.push(event.clone());
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
                let odd = vbucket.load_shared(row, &mut told.shared);
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
        // Also when the vBucket was deleted meanwhile.
        rows.clear();
    }
}

/// Warms a bucket up, then has its other workers begin.
pub(super) struct Warmup<S, U, F> {
    bucket: Arc<Bucket<S>>,
    load: Load,
    uuids: U,
    /// Called at the end.
    warmed_up: Option<F>,
}

impl<S, U, F> Warmup<S, U, F> {
    pub(super) fn new(bucket: Arc<Bucket<S>>, uuids: U, warmed_up: F) -> Self {
        Self {
            bucket,
            load: Load::default(),
            uuids,
            warmed_up: Some(warmed_up),
        }
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
        if !bucket.is_stopping() && !bucket.continue_warmup(&mut self.load, &mut self.uuids) {
            return Next::Again;
        }
        if let Some(warmed_up) = self.warmed_up.take() {
            warmed_up();
        }
        bucket.flushes.dirty.signal.ring();
        bucket.compactions.signal.ring();
        Next::Done
    }
}
