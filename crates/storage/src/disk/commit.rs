//! Commits: small ones into the journal, large ones into the tables at once.

use model::{Seqno, VbId};

use super::drain::Direct;
use super::engine::Engine;
use super::fault::Unwritten;
use super::memo::{Memo, NextMemos};
use super::merge::Stuck;
use super::{DiskStore, history};
use crate::StoreError;
use crate::history::place_of;
use crate::port::{Change, CommitInfo, VbBatch};
use crate::record::{encode_history, encode_row_head};

const DURING: &str = "committing";

/// See `KvStore::commit`.
pub(crate) fn commit(store: &DiskStore, batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError> {
    let mut writer = store.writer.lock();
    let engine = writer.ready(&store.engine, &store.options, DURING)?;
    if batches.is_empty() {
        return Ok(CommitInfo::default());
    }
    if batches.iter().any(|batch| batch.changes.has_history()) {
        history::note(&mut writer)?;
    }
    let number = writer.next_commit();
    let mut info = CommitInfo {
        waited: writer.waited(),
        ..CommitInfo::default()
    };
    let mut next = NextMemos::default();
    let mut partly = false;
    // Runs of batches that are journaled in one group, each large one by itself.
    let is_large = |batch: &VbBatch<'_>| batch.changes.len() >= store.options.direct_rows_min;
    for run in batches.chunk_by(|a, b| !is_large(a) && !is_large(b)) {
        let mut before = |vb: VbId| {
            writer.memos().get(vb).cloned().unwrap_or_else(|| Memo {
                epoch: writer.next_epoch(),
                ..Memo::default()
            })
        };
        let written = match run {
            [batch] if is_large(batch) => {
                let memo = next.take(batch.vb);
                let mut memo = memo.unwrap_or_else(|| before(batch.vb));
                let written = write_large(&engine, batch, &mut memo, (number, &mut info));
                next.push(batch.vb, memo);
                written
            }
            small => write_small(
                &engine,
                small,
                (&mut before, &mut next),
                (number, &mut info),
            ),
        };
        if let Err(error) = written {
            return Err(writer.failed_write(error, partly, DURING));
        }
        partly = true;
    }
    writer.acknowledge(&engine, next, DURING)?;
    Ok(info)
}

/// Writes batches into the journal, as one group; adds the memos after them to `next`. `before`
/// gives those from before the commit.
fn write_small(
    engine: &Engine,
    batches: &[VbBatch<'_>],
    (before, next): (&mut dyn FnMut(VbId) -> Memo, &mut NextMemos),
    (number, info): (u64, &mut CommitInfo),
) -> Result<(), Unwritten> {
    let mut group = engine.changes();
    for batch in batches {
        let vb = batch.vb;
        let mut memo = next.take(vb).unwrap_or_else(|| before(vb));
        let mut failed = None;
        memo.begin(number);
        batch.changes.for_each(&mut |change| {
            if failed.is_some() {
                return;
            }
            let mut write = || {
                memo.replaced(change, &mut |seqno| group.remove(vb, seqno))?;
                if let Change::Put { document, .. } = change {
                    info.rows += 1;
                    let put = group.put(vb, document.seqno(), |out| {
                        encode_row_head(vb, document, out)
                    });
                    info.bytes += put? as u64;
                }
                if let Change::Keep { document, at_s } = change {
                    let put = group.put(vb, place_of(document.seqno()), |out| {
                        encode_history(vb, document, at_s, out);
                        &[]
                    });
                    info.bytes += put? as u64;
                }
                Ok(())
            };
            failed = write().err();
        });
        memo.end(batch);
        let recorded = match failed {
            Some(error) => Err(error),
            None => group.put_record(vb, memo.value(batch)),
        };
        info.bytes += recorded.map_err(Unwritten::Refused)? as u64;
        next.push(vb, memo);
    }
    group.write().map_err(Unwritten::Refused)
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
    drained.map_err(|stuck| match stuck {
        Stuck::Later(error) => Unwritten::Later(error),
        Stuck::Final(error) => Unwritten::Unknown(error),
    })
}
