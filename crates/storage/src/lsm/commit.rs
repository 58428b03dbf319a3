//! Commits: one group of the log, one sync.

use std::sync::atomic::Ordering;

use model::{Document, Seqno, VbId};

use super::current::LogNote;
use super::log::{EntryKind, LogRow};
use super::row::{self, ValuePlace, Written};
use super::state::{self, Lineage, State};
use super::writer::{Core, GroupWriter};
use crate::StoreError;
use crate::port::{Change, CommitInfo, VbBatch};

const DURING: &str = "committing";

/// Minimum size of large documents, of which no two should be read concurrently.
const LARGE_BYTES: usize = 1 << 20;

/// See `KvStore::commit`.
pub(crate) fn commit(core: &Core, batches: &[VbBatch<'_>]) -> Result<CommitInfo, StoreError> {
    if batches.is_empty() {
        return core
            .writer
            .lock()
            .check(DURING)
            .map(|()| CommitInfo::default());
    }
    let mut changes = core.begin(DURING)?;
    let mut info = CommitInfo {
        waited: changes.waited,
        ..CommitInfo::default()
    };
    let mut dead = 0;
    for batch in batches {
        let vb = batch.vb;
        let mut state = changes.state(vb).unwrap_or_else(|| State {
            lineage: Lineage::new(core.next_epoch.fetch_add(1, Ordering::Relaxed)),
            ..State::default()
        });
        batch.changes.for_each(&mut |change| match change {
            Change::Put {
                document,
                supersedes,
            } => {
                if supersedes != document.seqno() && supersedes != Seqno::ZERO {
                    state.points.row_gone(supersedes);
                    dead += 1;
                }
                info.rows += 1;
                info.bytes += put(&mut changes, vb, (document, supersedes), Written::Newest);
            }
            Change::Keep { document, at_s } => {
                core.has_history.store(true, Ordering::Relaxed);
                info.bytes += put(
                    &mut changes,
                    vb,
                    (document, Seqno::ZERO),
                    Written::Version(at_s),
                );
            }
            Change::Remove {
                key,
                prepared,
                seqno,
            } => {
                state.points.row_gone(seqno);
                dead += 2;
                let tag = if prepared {
                    row::PREPARED
                } else {
                    row::DOCUMENT
                };
                put_gone(&mut changes, vb, &row::name(tag, key), seqno);
            }
        });
        state.purge_seqno = state.purge_seqno.max(batch.record.purge_seqno);
        if batch.record.snapshot.end == batch.record.high_seqno {
            state.points.add(batch.record.high_seqno);
        }
        info.bytes += put_state(&mut changes, vb, batch.record, state);
    }
    changes.finish()?;
    core.dead_rows.fetch_add(dead, Ordering::Relaxed);
    Ok(info)
}

/// Adds a document, which replaces the row at a seqno. Returns its bytes.
fn put(
    changes: &mut GroupWriter<'_>,
    vb: VbId,
    (document, supersedes): (&Document, Seqno),
    written: Written,
) -> u64 {
    let value = document.value();
    let core = changes.core;
    if value.len() >= LARGE_BYTES && !core.has_large.load(Ordering::Relaxed) {
        core.has_large.store(true, Ordering::Relaxed);
    }
    let is_apart = value.len() >= core.options.apart_bytes_min.max(1) as usize;
    let file = ValuePlace::of_log(changes.writer.log.number);
    let seal_bytes = changes.writer.log.file.seal_bytes();
    let behind = if is_apart { value } else { &[] };
    let mut of = (0, row::DOCUMENT);
    let place = changes.put(EntryKind::Row, vb, behind, |out, at| {
        let from = out.len();
        let apart = is_apart.then(|| ValuePlace {
            file,
            offset: at + seal_bytes as u64,
            length: value.len() as u32,
            crc: crc32fast::hash(value),
        });
        row::encode(document, written, apart, out);
        if let Some(row) = row::Row::first_of(&out[from..]) {
            of = (row::hash(vb, row.name()), row::class(row.name()));
        }
    });
    let Some(place) = place else { return 0 };
    changes.row(LogRow::new((vb, document.seqno()), of, place, false).after(supersedes));
    (place.length() + behind.len()) as u64
}

/// Adds the removal of the row with a name and a seqno.
pub(crate) fn put_gone(changes: &mut GroupWriter<'_>, vb: VbId, name: &[u8], seqno: Seqno) {
    let place = changes.put(EntryKind::Row, vb, &[], |out, _| {
        row::encode_gone(name, seqno, out);
    });
    if let Some(place) = place {
        let of = (row::hash(vb, name), row::class(name));
        changes.row(LogRow::new((vb, seqno), of, place, true).after(seqno));
    }
}

/// Adds the state of a vBucket. Returns its bytes.
pub(crate) fn put_state(
    changes: &mut GroupWriter<'_>,
    vb: VbId,
    record: &model::VbRecord,
    state: State,
) -> u64 {
    let place = changes.put(EntryKind::Record, vb, &[], |out, _| {
        state::encode(record, &state, out);
    });
    let Some(place) = place else { return 0 };
    changes.note(LogNote::State(vb, place, state));
    place.length() as u64
}
