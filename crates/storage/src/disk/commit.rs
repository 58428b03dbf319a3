//! Commits: small ones into the journal, large ones into the tables at once.

use model::{Seqno, VbId};

use super::DiskStore;
use super::drain::Direct;
use super::engine::Engine;
use super::memo::{Memo, Memos};
use crate::StoreError;
use crate::port::{Change, CommitInfo, VbBatch};
use crate::record::encode_row;

const DURING: &str = "committing";

/// See `KvStore::commit`.
pub(crate) fn commit(store: &DiskStore, batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError> {
    let mut writer = store.writer.lock();
    let engine = writer.ready(&store.engine, &store.options, DURING)?;
    if batches.is_empty() {
        return Ok(CommitInfo::default());
    }
    let number = writer.next_commit();
    let mut info = CommitInfo {
        waited: writer.waited(),
        ..CommitInfo::default()
    };
    let mut next = Memos::new();
    let mut partly = false;
    // Runs of batches that are journaled in one group, each large one by itself.
    let is_large = |batch: &VbBatch<'_>| batch.changes.len() >= store.options.direct_rows_min;
    for run in batches.chunk_by(|a, b| !is_large(a) && !is_large(b)) {
        let mut memos = |vb: VbId| {
            let known = next.get(&vb).or_else(|| writer.memos().get(&vb)).cloned();
            known.unwrap_or_else(|| Memo {
                epoch: writer.next_epoch(),
                ..Memo::default()
            })
        };
        let written = match run {
            [batch] if is_large(batch) => {
                let mut memo = memos(batch.vb);
                let written = write_large(&engine, batch, &mut memo, (number, &mut info));
                written.map(|()| Memos::from([(batch.vb, memo)]))
            }
            small => write_small(&engine, small, &mut memos, (number, &mut info)),
        };
        match written {
            Ok(written) => next.extend(written),
            Err(error) => return Err(writer.failed_write(error, partly, DURING)),
        }
        partly = true;
    }
    writer.acknowledge(&engine, next, DURING)?;
    Ok(info)
}

/// Why nothing of a step was written, or that nobody knows.
pub(crate) enum Unwritten {
    /// Nothing of it counts, and the journal can go on.
    Refused(fjall::Error),
    /// The tables have to be opened again before that is known.
    Unknown(fjall::Error),
}

/// Writes batches into the journal, as one group; gives the memos after them. `before` gives
/// those from before.
fn write_small(
    engine: &Engine,
    batches: &[VbBatch<'_>],
    before: &mut dyn FnMut(VbId) -> Memo,
    (number, info): (u64, &mut CommitInfo),
) -> Result<Memos, Unwritten> {
    let mut group = engine.changes();
    let mut memos = Memos::new();
    for batch in batches {
        let vb = batch.vb;
        let mut memo = memos.remove(&vb).unwrap_or_else(|| before(vb));
        let mut failed = None;
        memo.begin(number);
        batch.changes.for_each(&mut |change| {
            if failed.is_some() {
                return;
            }
            let mut write = || {
                if let Change::Put { document, .. } = change {
                    info.rows += 1;
                    let encode = |out: &mut Vec<u8>| encode_row(vb, document, out);
                    info.bytes += group.put(vb, document.seqno(), encode)? as u64;
                }
                memo.replaced(change, &mut |seqno| group.remove(vb, seqno))
            };
            failed = write().err();
        });
        memo.end(batch);
        let recorded = match failed {
            Some(error) => Err(error),
            None => group.put_record(vb, &memo.stored(batch)),
        };
        info.bytes += recorded.map_err(Unwritten::Refused)? as u64;
        memos.insert(vb, memo);
    }
    group.write().map_err(Unwritten::Refused)?;
    Ok(memos)
}

/// Writes one batch into the tables, with all that is in the journal.
fn write_large(
    engine: &Engine,
    batch: &VbBatch<'_>,
    memo: &mut Memo,
    (number, info): (u64, &mut CommitInfo),
) -> Result<(), Unwritten> {
    let mut gone: Vec<Seqno> = Vec::new();
    memo.begin(number);
    batch.changes.for_each(&mut |change| {
        let noted: Result<(), std::convert::Infallible> = memo.replaced(change, &mut |seqno| {
            gone.push(seqno);
            Ok(())
        });
        let Ok(()) = noted;
    });
    memo.end(batch);
    let direct = Direct {
        batch,
        memo,
        gone,
        info,
    };
    let drained = engine.room.drain_now(Some(direct));
    drained.map_err(Unwritten::Unknown)
}
