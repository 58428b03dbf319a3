//! Rollback, removal and compaction of one vBucket.

use std::sync::Arc;

use model::{Kind, Meta, Seqno, VbId, VbRecord};

use super::DiskStore;
use super::engine::Engine;
use super::memo::Memo;
use super::view::{DiskSnapshot, View, corrupt};
use super::writer::Step;
use crate::disk::fault::Unwritten;
use crate::port::{Compacted, Keep, Snapshot, rolled_back};
use crate::record::{StoredVb, row_meta};
use crate::{ErrorKind, StoreError};

/// See `KvStore::rollback`. The record goes back first: rows above it do not count from then on.
pub(crate) fn rollback(store: &DiskStore, vb: VbId, to: Seqno) -> Result<VbRecord, StoreError> {
    let during = "rolling back";
    let mut writer = store.writer.lock();
    let engine = writer.ready(&store.engine, &store.options, during)?;
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
    let mut memo = Memo::of(&stored, writer.next_epoch());
    if let Some(old) = writer.memos().get(vb) {
        memo.orphans = old.orphans.clone();
        memo.orphans.retain(|_, seqno| *seqno <= point);
    }
    let mut changes = engine.changes();
    let recorded = changes.put_record(vb, (&stored).into());
    recorded
        .and_then(|_| changes.write())
        .map_err(|error| writer.failed(error, Step::Write, during).of(vb))?;
    engine
        .remove_rows(&view, point.next())
        .map_err(|error| writer.interrupted(error, during).of(vb))?;
    writer.acknowledge(&engine, [(vb, memo)], during)?;
    Ok(stored.record)
}

/// See `KvStore::remove`. The records go first: rows without one do not count.
pub(crate) fn remove(store: &DiskStore, vbs: &[VbId]) -> Result<(), StoreError> {
    let during = "removing";
    let mut writer = store.writer.lock();
    let engine = writer.ready(&store.engine, &store.options, during)?;
    let mut there = vbs.to_vec();
    there.retain(|vb| writer.memos().get(*vb).is_some());
    if there.is_empty() {
        return Ok(());
    }
    writer.forget(&there, during)?;
    engine
        .remove_vbs(&there)
        .map_err(|(vb, stuck)| writer.interrupted(stuck, during).of(vb))?;
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
    let (epoch, snapshot) = {
        let mut writer = store.writer.lock();
        let engine = writer.ready(&store.engine, &store.options, during)?;
        let Some(memo) = writer.memos().get(vb) else {
            return Ok(Compacted::default());
        };
        (memo.epoch, DiskSnapshot::open(engine, vb)?)
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
    let mut writer = store.writer.lock();
    let engine = writer.ready(&store.engine, &store.options, during)?;
    let Some(mut memo) = writer
        .memos()
        .get(vb)
        .filter(|memo| memo.epoch == epoch)
        .cloned()
    else {
        return Ok(false);
    };
    let stored = View::open(Arc::clone(&engine), vb).stored_vb();
    let Some(mut stored) = stored.map_err(|error| error.into_store_error(during).of(vb))? else {
        return Ok(false);
    };
    memo.points.clear();
    memo.purge_seqno = memo.purge_seqno.max(drops.purge_seqno);
    memo.commit = writer.next_commit();
    stored.points.clear();
    stored.record.purge_seqno = memo.purge_seqno;
    stored.commit = memo.commit;
    let written = write_drops(&engine, vb, &drops.seqnos, &stored);
    written.map_err(|error| writer.failed_write(error, false, during).of(vb))?;
    done.purge_seqno = memo.purge_seqno;
    done.dropped += drops.seqnos.len() as u64;
    drops.seqnos.clear();
    writer.acknowledge(&engine, [(vb, memo)], during)?;
    Ok(true)
}

fn write_drops(
    engine: &Engine,
    vb: VbId,
    seqnos: &[Seqno],
    stored: &StoredVb,
) -> Result<(), Unwritten> {
    let mut changes = engine.changes();
    let mut write = || {
        for seqno in seqnos {
            changes.remove(vb, *seqno)?;
        }
        changes.put_record(vb, stored.into())
    };
    write()
        .and_then(|_| changes.write())
        .map_err(Unwritten::Refused)
}
