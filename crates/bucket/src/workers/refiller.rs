//! The refiller: after a start it loads documents that are only in the store into memory, the last written ones first.
//!
//! It makes one pass over the vBuckets. Each gets an equal part of the memory that is left up to
//! [`Memory::refill_mark`], and loads its newest documents. The time of a document's last read is
//! not known after a start, but its last write is.

use std::ops::ControlFlow;
use std::sync::Arc;

use model::{Document, Seqno, VbId};
use storage::{KeyRange, KvStore, Next, ScannedRow, Snapshot, StoreError, Worker};

use crate::Bucket;
use crate::holds::Hold;
use crate::scheduling::PAUSE;
use crate::signals::Bell;
use crate::stats::{Counters, RefillState, WarmupStage};

/// Rows read between two pauses, in some 100 us.
const ROWS_PER_PAUSE: u64 = 64;

/// Rows of the first vBucket that are sampled for their sizes.
const SAMPLE: u64 = 64;

/// Memory of the rows seen, to estimate how many fit.
#[derive(Debug, Default)]
struct RowSizes {
    rows: u64,
    bytes: u64,
}

impl RowSizes {
    /// Adds a row. Returns its bytes in memory.
    fn note(&mut self, row: &ScannedRow<'_>) -> u64 {
        let bytes = Document::memory_bytes_of(row.key.len(), row.value_bytes) as u64;
        self.rows += 1;
        self.bytes += bytes;
        bytes
    }

    /// Returns the seqno from which on rows fit into `bytes`.
    ///
    /// # Errors
    /// Those of reading some rows.
    fn newest_in(&mut self, bytes: u64, snapshot: &dyn Snapshot) -> Result<Seqno, StoreError> {
        if self.rows == 0 {
            snapshot.look(Seqno::ZERO, &KeyRange::default(), &mut |row| {
                self.note(&row);
                Ok(if self.rows < SAMPLE {
                    ControlFlow::Continue(())
                } else {
                    ControlFlow::Break(())
                })
            })?;
        }
        let average = self.bytes / self.rows.max(1);
        Ok(snapshot.newest(bytes / average.max(1)))
    }
}

/// A pass under way.
#[derive(Default)]
struct RefillPass {
    /// The next vBucket.
    vb: u16,
    sizes: RowSizes,
}

impl<S: KvStore> Bucket<S> {
    /// Runs the whole pass: loads documents that are only in the store, up to a mark below the one
    /// at which eviction stops.
    pub fn refill(&self) {
        let mut pass = RefillPass::default();
        while self.continue_refill(&mut pass, &|| ()) {}
    }

    /// Loads documents of one vBucket. Returns whether there is more to do.
    fn continue_refill(&self, pass: &mut RefillPass, pause: &dyn Fn()) -> bool {
        let warmup = self.warmup();
        let free = self
            .memory
            .refill_mark()
            .saturating_sub(self.memory.pressing());
        let ends = pass.vb >= self.vbuckets() || free == 0 || self.is_stopping();
        if ends || !self.eviction().keeps_a_copy() {
            warmup.set_refill(RefillState::Done);
            return false;
        }
        warmup.set_refill(RefillState::Running);
        let part = free / u64::from(self.vbuckets() - pass.vb);
        let vb = VbId(pass.vb);
        pass.vb += 1;
        if let Err(error) = self.refill_vbucket(vb, part, &mut pass.sizes, pause) {
            self.log_read_failure(vb, Seqno::ZERO, &error);
        }
        true
    }

    /// Loads documents until they have `part` bytes, or memory is full.
    fn refill_vbucket(
        &self,
        vb: VbId,
        part: u64,
        sizes: &mut RowSizes,
        pause: &dyn Fn(),
    ) -> Result<(), StoreError> {
        let any_away = self.with_vbucket(vb, |vbucket| {
            let away = vbucket.stats().non_resident > 0;
            away.then(|| self.epoch(vb))
        });
        let Some(epoch) = any_away.flatten() else {
            return Ok(());
        };
        let snapshot = self.store.snapshot_by_key(vb)?;
        let as_of = snapshot.high_seqno();
        let lowest = sizes.newest_in(part, &*snapshot)?;
        let now_s = self.clock.now().unix_s();
        let (mut rows, mut taken) = (0_u64, 0);
        snapshot.look(lowest, &KeyRange::default(), &mut |row| {
            let is_full = taken >= part || self.memory.pressing() >= self.memory.refill_mark();
            if is_full || self.is_stopping() {
                return Ok(ControlFlow::Break(()));
            }
            rows += 1;
            if rows.is_multiple_of(ROWS_PER_PAUSE) {
                pause();
            }
            let (meta, key) = (row.meta, row.key);
            let expired = meta.expiry != 0 && meta.expiry <= now_s;
            if meta.kind.is_tombstone() || expired {
                return Ok(ControlFlow::Continue(()));
            }
            let bytes = sizes.note(&row);
            let lacks = self.with_vbucket(vb, |vbucket| vbucket.lacks(key, meta.seqno, as_of));
            if lacks != Some(true) {
                return Ok(ControlFlow::Continue(()));
            }
            let document = (row.document)()?;
            let is_back = self.with_vbucket_for(Hold::Restore, vb, |vbucket| {
                // A vBucket that was replaced has other documents.
                self.epoch(vb) == epoch && vbucket.bring_back(document, as_of)
            });
            if is_back == Some(true) {
                taken += bytes;
                Counters::add(&self.warmup().values, 1);
            }
            Ok(ControlFlow::Continue(()))
        })
    }
}

/// The worker that runs the pass after warmup.
pub(super) struct Refiller<S> {
    bucket: Arc<Bucket<S>>,
    pass: RefillPass,
    /// A bell for pauses; never rung.
    pausing: Bell,
}

impl<S: KvStore> Refiller<S> {
    pub(super) fn new(bucket: Arc<Bucket<S>>) -> Self {
        Self {
            bucket,
            pass: RefillPass::default(),
            pausing: Bell::default(),
        }
    }
}

impl<S: KvStore> Worker for Refiller<S> {
    fn step(&mut self, _: u64) -> Next {
        let bucket = &self.bucket;
        match bucket.warmup().stage() {
            WarmupStage::Loading if !bucket.is_stopping() => return Next::OnSignal,
            WarmupStage::Loading | WarmupStage::Failed => return Next::Done,
            WarmupStage::Done => {}
        }
        let pause = || {
            self.pausing.wait(Some(PAUSE));
        };
        if bucket.continue_refill(&mut self.pass, &pause) {
            Next::Again
        } else {
            Next::Done
        }
    }
}
