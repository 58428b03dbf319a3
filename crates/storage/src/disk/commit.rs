//! Commits: rows in batches, the record last, one sync for all vBuckets.

use fjall::OwnedWriteBatch;
use model::Seqno;

use super::DiskStore;
use super::engine::{Engine, ROWS_PER_BATCH};
use super::ingest::ingest_vb;
use super::memo::{Memo, Memos};
use super::writer::Step;
use crate::StoreError;
use crate::port::{Change, CommitInfo, VbBatch};
use crate::record::{encode_row, encode_vb, row_key, vb_key};

const DURING: &str = "committing";

/// See `KvStore::commit`.
pub(crate) fn commit(store: &DiskStore, batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError> {
    let mut writer = store.writer.lock();
    let engine = writer.ready(&store.engine, &store.options, DURING)?;
    if batches.is_empty() {
        return Ok(CommitInfo::default());
    }
    let number = writer.next_commit();
    let mut scratch = std::mem::take(&mut writer.scratch);
    let mut journal = Journal {
        engine: &engine,
        pending: engine.batch(),
        failed: None,
    };
    let mut info = CommitInfo::default();
    let mut next = Memos::new();
    for batch in batches {
        let memo = next
            .get(&batch.vb)
            .or_else(|| writer.memos().get(&batch.vb));
        let (memo, gone) = match memo {
            Some(memo) => memo.after(batch, number),
            None => Memo {
                epoch: writer.next_epoch(),
                ..Memo::default()
            }
            .after(batch, number),
        };
        let outputs = (&mut scratch, &mut info);
        if batch.changes.len() >= store.options.ingest_rows_min {
            journal.ingest_vb(batch, &memo, &gone, outputs);
        } else {
            journal.write_vb(batch, &memo, &gone, outputs);
        }
        next.insert(batch.vb, memo);
    }
    journal
        .finish()
        .map_err(|error| writer.failed(error, Step::Write, DURING))?;
    writer.scratch = scratch;
    writer.acknowledge(&engine, next, DURING)?;
    Ok(info)
}

/// What is on its way into the journal of the database.
struct Journal<'a> {
    engine: &'a Engine,
    pending: OwnedWriteBatch,
    failed: Option<fjall::Error>,
}

impl Journal<'_> {
    /// Writes one vBucket's changes. Its rows may be spread over several batches, and small
    /// vBuckets may share one; its removals and its record are in a single one, after its rows.
    fn write_vb(
        &mut self,
        batch: &VbBatch<'_>,
        memo: &Memo,
        gone: &[Seqno],
        (scratch, info): (&mut Vec<u8>, &mut CommitInfo),
    ) {
        batch.changes.for_each(&mut |change| {
            if let Change::Put { document, .. } = change
                && self.failed.is_none()
            {
                encode_row(batch.vb, document, scratch);
                info.rows += 1;
                info.bytes += scratch.len() as u64;
                let key = row_key(batch.vb, document.seqno());
                self.engine.put(&mut self.pending, key, scratch);
                self.hand_over_when_full();
            }
        });
        for seqno in gone {
            self.pending
                .remove(&self.engine.rows, row_key(batch.vb, *seqno));
        }
        encode_vb(batch.vb, &memo.stored(batch), scratch);
        info.bytes += scratch.len() as u64;
        self.engine
            .put(&mut self.pending, vb_key(batch.vb), scratch);
        self.hand_over_when_full();
    }

    /// Writes one vBucket's changes past the journal, after what is on its way into it: that may
    /// be an earlier batch of the same vBucket.
    fn ingest_vb(
        &mut self,
        batch: &VbBatch<'_>,
        memo: &Memo,
        gone: &[Seqno],
        outputs: (&mut Vec<u8>, &mut CommitInfo),
    ) {
        self.hand_over();
        if self.failed.is_none() {
            self.failed = ingest_vb(self.engine, batch, memo, gone, outputs).err();
        }
    }

    fn hand_over_when_full(&mut self) {
        if self.pending.len() >= ROWS_PER_BATCH {
            self.hand_over();
        }
    }

    fn hand_over(&mut self) {
        if self.failed.is_none() {
            let full = std::mem::replace(&mut self.pending, self.engine.batch());
            let done = full.commit().and_then(|()| self.engine.bound_memory());
            self.failed = done.err();
        }
    }

    fn finish(self) -> Result<(), fjall::Error> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.pending.commit()?;
        self.engine.bound_memory()
    }
}
