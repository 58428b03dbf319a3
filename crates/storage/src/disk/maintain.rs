//! Rollback, removal and compaction of one vBucket.

use std::sync::Arc;

use model::{Kind, Meta, Seqno, VbId, VbRecord};

use super::acknowledged::AcknowledgedVb;
use super::store::DiskStore;
use super::view::{View, corrupt};
use super::writer::FailedStep;
use crate::port::{Compacted, Keep, Snapshot, rolled_back};
use crate::record::row_meta;
use crate::{ErrorKind, StoreError};

/// See `KvStore::rollback`. The record goes back first: rows above it do not count from then on.
pub(crate) fn rollback(store: &DiskStore, vb: VbId, to: Seqno) -> Result<VbRecord, StoreError> {
    let during = "rolling back";
    let (mut writer, engine) = store.write_access(during)?;
    let view = View::open(Arc::clone(&engine), vb);
    let stored = view
        .stored_vb()
        .map_err(|error| error.into_store_error(during).of(vb))?;
    let Some(mut stored) = stored else {
        return Err(StoreError::new(ErrorKind::Corrupt, during)
            .of(vb)
            .because("it has no record"));
    };
    if to >= stored.record.high_seqno {
        return Ok(stored.record);
    }
    let point = stored.points.go_back(to);
    rolled_back(&mut stored.record, point);
    stored.commit = writer.next_commit();
    let mut state = AcknowledgedVb::of(&stored, writer.next_epoch());
    if let Some(old) = writer.states().get(vb) {
        state.orphans = old.orphans.clone();
        state.orphans.retain(|_, seqno| *seqno <= point);
    }
    let mut changes = engine.changes();
    let recorded = changes.put_record(vb, (&stored).into());
    recorded
        .and_then(|_| changes.write())
        .map_err(|error| writer.failed(error, FailedStep::Write, during).of(vb))?;
    engine
        .remove_rows(&view, point.next())
        .map_err(|error| writer.interrupted(error, during).of(vb))?;
    writer.acknowledge(&engine, [(vb, state)], during)?;
    Ok(stored.record)
}

/// See `KvStore::remove`. The records go first: rows without one do not count.
pub(crate) fn remove(store: &DiskStore, vbs: &[VbId]) -> Result<(), StoreError> {
    let during = "removing";
    let (mut writer, engine) = store.write_access(during)?;
    let mut there = vbs.to_vec();
    there.retain(|vb| writer.states().get(*vb).is_some());
    if there.is_empty() {
        return Ok(());
    }
    writer.forget(&there, during)?;
    engine
        .remove_vbs(&there)
        .map_err(|(vb, error)| writer.interrupted(error, during).of(vb))?;
    writer.acknowledge(&engine, [], during)
}

/// Rows that a compaction drops with one sync.
const DROPS_PER_COMMIT: usize = 5_000;

/// Rows to drop, found and not yet dropped.
#[derive(Default)]
struct Drops {
    seqnos: Vec<Seqno>,
    purge_seqno: Seqno,
}

/// See `KvStore::compact`. `keep` is called without any lock; the drops are made in batches.
pub(crate) fn compact(
    store: &DiskStore,
    vb: VbId,
    keep: &mut dyn FnMut(&Meta, &[u8]) -> Keep,
) -> Result<Compacted, StoreError> {
    let during = "compacting";
    let Some((epoch, snapshot)) = store.thinning(vb, during)? else {
        return Ok(Compacted::default());
    };
    let mut done = Compacted {
        purge_seqno: snapshot.purge_seqno(),
        ..Compacted::default()
    };
    let mut drops = Drops {
        purge_seqno: snapshot.purge_seqno(),
        ..Drops::default()
    };
    for row in snapshot.raw_rows(Seqno::ZERO, during) {
        let (seqno, value) = row?;
        let (meta, key) =
            row_meta(vb, seqno, &value).map_err(|error| corrupt(vb, seqno, error, during))?;
        let verdict = if seqno == snapshot.high_seqno() {
            Keep::Keep
        } else {
            keep(&meta, key)
        };
        if verdict == Keep::Keep {
            done.kept += 1;
            continue;
        }
        drops.seqnos.push(seqno);
        let gone = meta.kind.is_tombstone() || meta.kind == Kind::Abort;
        if verdict == Keep::Drop && gone {
            drops.purge_seqno = seqno;
        }
        if drops.seqnos.len() >= DROPS_PER_COMMIT
            && !apply(store, vb, epoch, &mut drops, &mut done)?
        {
            return Ok(done);
        }
    }
    drop(snapshot);
    apply(store, vb, epoch, &mut drops, &mut done)?;
    Ok(done)
}

/// Drops the rows that were found, durably; `false` when the vBucket is not the same any more.
fn apply(
    store: &DiskStore,
    vb: VbId,
    epoch: u64,
    drops: &mut Drops,
    done: &mut Compacted,
) -> Result<bool, StoreError> {
    let during = "compacting";
    if drops.seqnos.is_empty() {
        return Ok(true);
    }
    let (mut writer, engine) = store.write_access(during)?;
    let Some(mut state) = writer
        .states()
        .get(vb)
        .filter(|state| state.epoch == epoch)
        .cloned()
    else {
        return Ok(false);
    };
    let stored = View::open(Arc::clone(&engine), vb).stored_vb();
    let Some(mut stored) = stored.map_err(|error| error.into_store_error(during).of(vb))? else {
        return Ok(false);
    };
    state.points.clear();
    state.purge_seqno = state.purge_seqno.max(drops.purge_seqno);
    state.commit = writer.next_commit();
    stored.points.clear();
    stored.record.purge_seqno = state.purge_seqno;
    stored.commit = state.commit;
    engine
        .drop_rows(vb, &drops.seqnos, Some(&stored))
        .map_err(|error| writer.failed_write(error, false, during).of(vb))?;
    done.purge_seqno = state.purge_seqno;
    done.dropped += drops.seqnos.len() as u64;
    drops.seqnos.clear();
    writer.acknowledge(&engine, [(vb, state)], during)?;
    Ok(true)
}
