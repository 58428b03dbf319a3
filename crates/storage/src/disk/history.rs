//! The history on disk: it is noted before it begins, and its oldest rows go.

use model::{Meta, Seqno, VbId};

use super::manifest;
use super::store::DiskStore;
use super::view::corrupt;
use super::writer::Writer;
use crate::history::{HistoryKept, HistoryLimits, Trim, seqno_at};
use crate::record::{history_time, row_meta};
use crate::{ErrorKind, StoreError};

const DURING: &str = "trimming the history";

/// Rows that are dropped with one sync.
const DROPS_PER_COMMIT: usize = 5_000;

/// Notes, before its first row is written, that the store has a history: an earlier release
/// would leave its rows behind where it removes others.
pub(crate) fn note(writer: &mut Writer) -> Result<(), StoreError> {
    let Some(directory) = writer.directory_mut() else {
        return Err(StoreError::new(ErrorKind::Closed, "committing"));
    };
    directory.note_history().map_err(manifest::not_written)
}

/// See `KvStore::trim_history`. `dead` is called without any lock; the drops are made in batches,
/// oldest first.
pub(crate) fn trim(
    store: &DiskStore,
    vb: VbId,
    limits: HistoryLimits,
    dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
) -> Result<HistoryKept, StoreError> {
    let Some((epoch, snapshot)) = store.thinning(vb, DURING)? else {
        return Ok(HistoryKept::default());
    };
    let mut bytes = 0;
    if limits.bytes != u64::MAX {
        for row in snapshot.raw_history(Seqno::ZERO, DURING) {
            bytes += row?.1.len() as u64;
        }
    }
    let mut trim = Trim::new(limits, bytes);
    let mut drops = Vec::new();
    for row in snapshot.raw_history(Seqno::ZERO, DURING) {
        let (place, value) = row?;
        let broken = |error| corrupt(vb, place, error, DURING);
        let (meta, key) = row_meta(vb, place, &value).map_err(broken)?;
        let at_s = history_time(&value).map_err(broken)?;
        if trim.goes(seqno_at(place), value.len() as u64, at_s, dead(&meta, key)) {
            drops.push(place);
        }
        if drops.len() >= DROPS_PER_COMMIT && !apply(store, vb, epoch, &mut drops)? {
            return Ok(trim.end());
        }
    }
    drop(snapshot);
    apply(store, vb, epoch, &mut drops)?;
    Ok(trim.end())
}

/// Drops rows durably; `false` when the vBucket is not the same any more.
fn apply(
    store: &DiskStore,
    vb: VbId,
    epoch: u64,
    drops: &mut Vec<Seqno>,
) -> Result<bool, StoreError> {
    if drops.is_empty() {
        return Ok(true);
    }
    let (mut writer, engine) = store.write_access(DURING)?;
    if writer
        .states()
        .get(vb)
        .is_none_or(|state| state.epoch != epoch)
    {
        return Ok(false);
    }
    engine
        .drop_rows(vb, drops, None)
        .map_err(|error| writer.failed_write(error, false, DURING).of(vb))?;
    drops.clear();
    writer.acknowledge(&engine, [], DURING)?;
    Ok(true)
}
