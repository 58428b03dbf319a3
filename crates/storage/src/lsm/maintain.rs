//! Rollback, removal, compaction and trimming of vBuckets.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use model::{Kind, Meta, Seqno, VbId, VbRecord};

use super::commit::{put_gone, put_state};
use super::current::LogNote;
use super::fault::read_error_of;
use super::log::EntryKind;
use super::row::{DOCUMENT, HISTORY, PREPARED, Row};
use super::state::{State, StoredState};
use super::view::{DiskSnapshot, NameRange, RowView};
use super::writer::Core;
use crate::history::{HistoryKept, HistoryLimits, Trim};
use crate::key_range::KeyRange;
use crate::port::{Compacted, Keep, Snapshot as _, rolled_back};
use crate::{ErrorKind, StoreError};

/// See `KvStore::rollback`: a new epoch begins, and rows above the point become invalid.
pub(crate) fn rollback(core: &Core, vb: VbId, to: Seqno) -> Result<VbRecord, StoreError> {
    let during = "rolling back";
    let mut changes = core.begin(during)?;
    let stored = core.current.read().stored(vb);
    let stored = stored.map_err(read_error_of(vb, during))?;
    let Some(StoredState {
        mut record,
        mut state,
    }) = stored
    else {
        return Err(StoreError::new(ErrorKind::Corrupt, during)
            .of(vb)
            .because("it has no record"));
    };
    if to >= record.high_seqno {
        return Ok(record);
    }
    let point = go_back(&mut state, to);
    rolled_back(&mut record, point);
    state.purge_seqno = record.purge_seqno;
    let epoch = core.next_epoch.fetch_add(1, Ordering::Relaxed);
    core.current.read().forget_epochs(vb, &mut state.lineage);
    state.lineage.roll_back(point, epoch);
    put_state(&mut changes, vb, &record, state);
    changes.finish()?;
    Ok(record)
}

/// See `KvStore::rollback_point`.
pub(crate) fn rollback_point(core: &Core, vb: VbId, to: Seqno) -> Result<Seqno, StoreError> {
    let stored = core.current.read().stored(vb);
    let stored = stored.map_err(read_error_of(vb, "looking for the way back"))?;
    Ok(stored.map_or(Seqno::ZERO, |mut stored| {
        let high = stored.record.high_seqno;
        if to < high {
            go_back(&mut stored.state, to)
        } else {
            high
        }
    }))
}

/// Goes back to the latest restorable point at or below `to`. Returns it.
fn go_back(state: &mut State, to: Seqno) -> Seqno {
    let to = if state.lineage.is_full() {
        Seqno::ZERO
    } else {
        to
    };
    state.points.go_back(to)
}

/// See `KvStore::remove`: without a state no rows are valid, and a later state has another epoch.
pub(crate) fn remove(core: &Core, vbs: &[VbId]) -> Result<(), StoreError> {
    let mut changes = core.begin("removing")?;
    let version = Arc::clone(&core.current.read().version);
    let mut dead = 0;
    for vb in vbs {
        if let Some(state) = changes.state(*vb)
            && changes
                .put(EntryKind::Forget, *vb, &[], |_, _| {})
                .is_some()
        {
            changes.note(LogNote::Forget(*vb));
            let sections = version.runs.iter().filter_map(|run| run.section(*vb));
            let valid = sections.filter(|section| state.lineage.limit(section.epoch).is_some());
            dead += valid.map(|section| u64::from(section.rows)).sum::<u64>();
        }
    }
    changes.finish()?;
    core.dead_rows.fetch_add(dead, Ordering::Relaxed);
    core.removed.fetch_or(dead > 0, Ordering::Relaxed);
    Ok(())
}

/// Rows that are dropped with one sync.
const DROPS_PER_COMMIT: usize = 5_000;

/// Rows of a vBucket to be dropped, several at a time.
struct RowDrops<'c> {
    core: &'c Core,
    vb: VbId,
    /// Epoch of the view in which the rows were found.
    epoch: u64,
    rows: Vec<(Vec<u8>, Seqno)>,
    purge_seqno: Option<Seqno>,
    /// Number of dropped rows.
    dropped: u64,
    /// Whether the vBucket was replaced or removed meanwhile.
    over: bool,
    during: &'static str,
}

impl RowDrops<'_> {
    fn add(&mut self, row: Row<'_>) -> Result<(), StoreError> {
        self.rows.push((row.name().to_vec(), row.seqno()));
        if self.rows.len() >= DROPS_PER_COMMIT {
            self.apply()?;
        }
        Ok(())
    }

    /// Drops the collected rows, durably.
    fn apply(&mut self) -> Result<(), StoreError> {
        if self.rows.is_empty() || self.over {
            self.rows.clear();
            return Ok(());
        }
        let (vb, during) = (self.vb, self.during);
        let mut changes = self.core.begin(during)?;
        let stored = self.core.current.read().stored(vb);
        let stored = stored.map_err(read_error_of(vb, during))?;
        let is_same = |stored: &StoredState| stored.state.lineage.epoch == self.epoch;
        let Some(StoredState { record, mut state }) = stored.filter(is_same) else {
            self.over = true;
            return Ok(());
        };
        if let Some(purge_seqno) = self.purge_seqno {
            state.points.clear();
            state.purge_seqno = state.purge_seqno.max(purge_seqno);
        }
        let count = self.rows.len() as u64;
        for (name, seqno) in self.rows.drain(..) {
            put_gone(&mut changes, vb, &name, seqno);
        }
        put_state(&mut changes, vb, &record, state);
        changes.finish()?;
        self.core.dead_rows.fetch_add(2 * count, Ordering::Relaxed);
        self.dropped += count;
        Ok(())
    }
}

/// Returns a view of a vBucket for dropping rows.
fn thinned<'c>(
    core: &'c Core,
    vb: VbId,
    during: &'static str,
) -> Result<(DiskSnapshot, RowDrops<'c>), StoreError> {
    core.writer.lock().check(during)?;
    let snapshot = DiskSnapshot::open(&core.current.read(), vb);
    let snapshot = snapshot.map_err(read_error_of(vb, during))?;
    let drops = RowDrops {
        core,
        vb,
        epoch: snapshot.rows.lineage.epoch,
        rows: Vec::new(),
        purge_seqno: None,
        dropped: 0,
        over: false,
        during,
    };
    Ok((snapshot, drops))
}

/// See `KvStore::compact` and `KvStore::erase`: visits rows with keys in the ranges, which ascend.
/// `keep` is called without any lock.
pub(crate) fn compact(
    core: &Core,
    (vb, ranges): (VbId, &[KeyRange]),
    keep: &mut dyn FnMut(&Meta, &[u8]) -> Keep,
) -> Result<Compacted, StoreError> {
    let during = "compacting";
    let (snapshot, mut drops) = thinned(core, vb, during)?;
    let mut done = Compacted {
        purge_seqno: snapshot.purge_seqno(),
        ..Compacted::default()
    };
    let high_seqno = snapshot.high_seqno();
    let io = read_error_of(vb, during);
    for tag in [DOCUMENT, PREPARED] {
        let names: Vec<_> = ranges
            .iter()
            .map(|keys| NameRange::of_keys(tag, keys))
            .collect();
        each(&snapshot.rows, &names, during, &mut |row| {
            let meta = row.meta().map_err(&io)?;
            let verdict = if meta.seqno == high_seqno {
                Keep::Keep
            } else {
                keep(&meta, row.key())
            };
            if verdict == Keep::Keep {
                done.kept += 1;
                return Ok(());
            }
            let gone = meta.kind.is_tombstone() || meta.kind == Kind::Abort;
            let purged = if verdict == Keep::Drop && gone {
                meta.seqno
            } else {
                Seqno::ZERO
            };
            let purge_seqno = drops.purge_seqno.get_or_insert(done.purge_seqno);
            *purge_seqno = purged.max(*purge_seqno);
            drops.add(row)
        })?;
    }
    drops.apply()?;
    done.dropped = drops.dropped;
    done.purge_seqno = drops.purge_seqno.unwrap_or(done.purge_seqno);
    Ok(done)
}

/// Passes all rows with names in the ranges to `f`.
fn each(
    rows: &RowView,
    names: &[NameRange],
    during: &'static str,
    f: &mut dyn FnMut(Row<'_>) -> Result<(), StoreError>,
) -> Result<(), StoreError> {
    rows.by_name(
        Seqno::ZERO,
        names,
        &mut |row| {
            f(row)?;
            Ok(ControlFlow::Continue(()))
        },
        during,
    )
}

/// See `KvStore::trim_history`. `dead` is called without any lock.
pub(crate) fn trim_history(
    core: &Core,
    vb: VbId,
    limits: HistoryLimits,
    dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
) -> Result<HistoryKept, StoreError> {
    let during = "trimming the history";
    let (snapshot, mut drops) = thinned(core, vb, during)?;
    let rows = &snapshot.rows;
    let bytes_of =
        |row: Row<'_>| row.bytes.len() as u64 + row.place().map_or(0, |at| u64::from(at.length));
    let mut bytes = 0;
    let names = [NameRange::of_tag(HISTORY)];
    if limits.bytes != u64::MAX {
        each(rows, &names, during, &mut |row| {
            bytes += bytes_of(row);
            Ok(())
        })?;
    }
    let mut trim = Trim::new(limits, bytes);
    let io = read_error_of(vb, during);
    each(rows, &names, during, &mut |row| {
        let meta = row.meta().map_err(&io)?;
        let dead = dead(&meta, row.key());
        if trim.goes(row.seqno(), bytes_of(row), row.written_at_s(), dead) {
            drops.add(row)?;
        }
        Ok(())
    })?;
    drops.apply()?;
    Ok(trim.end())
}
