//! Warmup: loads every key of the store, with its value as long as memory lasts.

use std::ops::ControlFlow;

use engine::collections::{SharedCollections, SystemEvent};
use model::{Document, Seqno, VbId, VbState, VbUuid};
use storage::{ErrorKind, KvStore, StoreError};

use crate::Bucket;
use crate::memory::Eviction;
use crate::stats::{Counters, FlusherState, WarmupStage};

/// Rows put into the table under one lock hold.
const ROWS_PER_HOLD: usize = 256;

/// Groups of events that are remembered.
const GROUPS_MAX: usize = 32;

/// What vBuckets that were loaded told of their collections.
#[derive(Default)]
struct Told {
    /// Groups of events.
    groups: Vec<Document>,
    shared: SharedCollections,
}

impl<S: KvStore> Bucket<S> {
    /// Loads all vBuckets, then lets data operations in. `uuids` is as for [`Bucket::open`]. A vBucket with a
    /// row that cannot be read goes into quarantine, and is not served.
    ///
    /// When the workers are told to stop, it ends early and lets nothing in.
    pub fn warm_up(&self, uuids: &mut dyn FnMut() -> VbUuid) {
        let started = self.clock.mono_ns();
        let warmup = self.warmup();
        Counters::add(&warmup.vbuckets, u64::from(self.vbuckets()));
        let mut any_read = false;
        let mut told = Told::default();
        for index in 0..self.vbuckets() {
            let mut after = Seqno::ZERO;
            match self.load_vbucket(VbId(index), (&mut after, &mut told)) {
                Ok(()) => any_read |= after > Seqno::ZERO,
                // A disk that gives nothing at all is no damage of a vBucket.
                Err(error)
                    if error.kind == ErrorKind::Corrupt
                        || any_read && error.kind == ErrorKind::Io =>
                {
                    self.put_in_quarantine(VbId(index), after, &error);
                }
                Err(error) => {
                    tracing::error!(bucket = self.name(), %error, "warmup failed");
                    self.set_flusher_state(FlusherState::Failed);
                    warmup.set_stage(WarmupStage::Failed);
                    return;
                }
            }
            if self.is_stopping() {
                return;
            }
            let uuid = uuids();
            self.with_vbucket(VbId(index), |vbucket| {
                let active = vbucket.state() == VbState::Active;
                let begin_anew = active && self.begins_anew(VbId(index));
                vbucket.finish_warmup(begin_anew.then_some(uuid));
            });
            self.share_collections(VbId(index));
            Counters::add(&warmup.vbuckets_done, 1);
        }
        // Some may have stopped before they noted what the manifest had already.
        self.bring_all_to_manifest((0..self.vbuckets()).map(VbId));
        self.erase_soon();
        let took_us = self.clock.mono_ns().saturating_sub(started) / 1000;
        Counters::add(&warmup.time_us, took_us);
        warmup.set_stage(WarmupStage::Done);
    }

    /// Loads the rows of a vBucket; `after` is the seqno of the last one that could be read, `told` what
    /// vBuckets told of collections.
    fn load_vbucket(
        &self,
        vb: VbId,
        (after, told): (&mut Seqno, &mut Told),
    ) -> Result<(), StoreError> {
        let known = self.with_vbucket(vb, |vbucket| vbucket.high_seqno().0 != 0);
        if known != Some(true) {
            return Ok(());
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
        while let Some(Some(wanted)) = self.with_vbucket(vb, |vb| vb.fetch_before_decisions()) {
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
        if self.options.eviction.keeps_a_copy()
            && (!row.kind().is_tombstone() || !row.value().is_empty())
            && !row.kind().is_prepared()
            && !SystemEvent::is_key(row.key())
            && after > self.memory.low_mark()
        {
            return row.to_non_resident();
        }
        Counters::add(&warmup.values, 1);
        row
    }

    fn load_rows(&self, vb: VbId, rows: &mut Vec<Document>, told: &mut Told) {
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
        let whole = match self.options.eviction {
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
            let (bucket, vb, seqno) = (self.name(), vb.0, seqno.0);
            tracing::error!(
                bucket,
                vb,
                seqno,
                "the store has a row that it should not have"
            );
        }
        // Also when the vBucket was deleted meanwhile.
        rows.clear();
    }
}
