//! Commits: small ones into the journal, large ones into the tables at once.

use std::convert::Infallible;

use model::{Seqno, VbId};

use super::acknowledged::AcknowledgedVb;
use super::engine::Engine;
use super::fault::Unwritten;
use super::flush::DirectBatch;
use super::history;
use super::merge::TablesError;
use super::store::DiskStore;
use super::writer::Writer;
use crate::StoreError;
use crate::history::place_of;
use crate::port::{Change, CommitInfo, VbBatch};
use crate::record::{encode_history, encode_row_head};

const DURING: &str = "committing";

/// See `KvStore::commit`.
pub(crate) fn commit(store: &DiskStore, batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError> {
    let (mut writer, engine) = store.write_access(DURING)?;
    if batches.is_empty() {
        return Ok(CommitInfo::default());
    }
    if batches.iter().any(|batch| batch.changes.has_history()) {
        history::note(&mut writer)?;
    }
    let mut commit = Commit {
        number: writer.next_commit(),
        info: CommitInfo {
            waited: writer.waited(),
            ..CommitInfo::default()
        },
        next: Vec::new(),
        writer: &mut writer,
    };
    let mut partly = false;
    // Runs of batches that are journaled in one group, each large one by itself.
    let is_large = |batch: &VbBatch<'_>| batch.changes.len() >= store.options.direct_rows_min;
    for run in batches.chunk_by(|a, b| !is_large(a) && !is_large(b)) {
        let written = match run {
            [batch] if is_large(batch) => commit.write_large(&engine, batch),
            small => commit.write_small(&engine, small),
        };
        if let Err(error) = written {
            return Err(writer.failed_write(error, partly, DURING));
        }
        partly = true;
    }
    let Commit { info, next, .. } = commit;
    writer.acknowledge(&engine, next, DURING)?;
    Ok(info)
}

/// A commit on its way.
struct Commit<'w> {
    writer: &'w mut Writer,
    number: u64,
    info: CommitInfo,
    /// The states after it, in the order of the batches.
    next: Vec<(VbId, AcknowledgedVb)>,
}

impl Commit<'_> {
    /// The state of a vBucket as of now, at the begin of a batch.
    fn begin(&mut self, vb: VbId) -> AcknowledgedVb {
        let mut state = self.take_pending(vb).unwrap_or_else(|| {
            let acknowledged = self.writer.states().get(vb).cloned();
            acknowledged.unwrap_or_else(|| AcknowledgedVb {
                epoch: self.writer.next_epoch(),
                ..AcknowledgedVb::default()
            })
        });
        state.commit = self.number;
        state
    }

    /// Takes the state of a vBucket of which an earlier batch had changes already.
    ///
    /// Cost: nothing, as long as batches come in the order of their vBuckets.
    fn take_pending(&mut self, vb: VbId) -> Option<AcknowledgedVb> {
        if self.next.last().is_none_or(|(last, _)| *last < vb) {
            return None;
        }
        let at = self.next.iter().position(|(known, _)| *known == vb)?;
        Some(self.next.remove(at).1)
    }

    /// Writes batches into the journal, as one group.
    fn write_small(&mut self, engine: &Engine, batches: &[VbBatch<'_>]) -> Result<(), Unwritten> {
        let mut group = engine.changes();
        for batch in batches {
            let vb = batch.vb;
            let mut state = self.begin(vb);
            let info = &mut self.info;
            let mut failed = None;
            batch.changes.for_each(&mut |change| {
                if failed.is_some() {
                    return;
                }
                let mut write = || {
                    state.replaced(change, &mut |seqno| group.remove(vb, seqno))?;
                    info.rows += usize::from(matches!(change, Change::Put { .. }));
                    info.bytes += match change {
                        Change::Put { document, .. } => group.put(vb, document.seqno(), |out| {
                            encode_row_head(vb, document, out)
                        })?,
                        Change::Keep { document, at_s } => {
                            group.put(vb, place_of(document.seqno()), |out| {
                                encode_history(vb, document, at_s, out);
                                &[]
                            })?
                        }
                        Change::Remove(_) => 0,
                    } as u64;
                    Ok(())
                };
                failed = write().err();
            });
            state.end(batch);
            let recorded = match failed {
                Some(error) => Err(error),
                None => group.put_record(vb, state.value(batch)),
            };
            info.bytes += recorded.map_err(Unwritten::Refused)? as u64;
            self.next.push((vb, state));
        }
        group.write().map_err(Unwritten::Refused)
    }

    /// Writes one batch into the tables, with all that is in the journal.
    fn write_large(&mut self, engine: &Engine, batch: &VbBatch<'_>) -> Result<(), Unwritten> {
        let mut state = self.begin(batch.vb);
        let mut gone: Vec<Seqno> = Vec::new();
        batch.changes.for_each(&mut |change| {
            let Ok(()) = state.replaced::<Infallible>(change, &mut |seqno| {
                gone.push(seqno);
                Ok(())
            });
        });
        state.end(batch);
        let direct = DirectBatch {
            batch,
            state: &state,
            gone,
            info: &mut self.info,
        };
        let flushed = engine.rotation.flush_now(Some(direct));
        self.next.push((batch.vb, state));
        flushed.map_err(|error| match error {
            TablesError::Later(error) => Unwritten::Later(error),
            TablesError::Final(error) => Unwritten::Unknown(error),
        })
    }
}
