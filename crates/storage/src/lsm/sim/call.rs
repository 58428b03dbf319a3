//! Calls of the store for steps.

use super::read::Deviation;
use super::world::{StoreCall, World};
use crate::history::HistoryLimits;
use crate::port::{KvStore, VbBatch};

/// Makes the call of a step, and compares its answer with `after`.
pub(super) fn call(store: &dyn KvStore, step: &StoreCall, after: &World) -> Result<(), Deviation> {
    match step {
        StoreCall::Commit(batches) => {
            let batches: Vec<VbBatch<'_>> = batches.iter().map(|batch| batch.as_batch()).collect();
            store.commit(&batches)?;
        }
        StoreCall::Rollback(vb, to) => {
            let record = store.rollback(*vb, *to)?;
            let expected = &after.vbs[vb].record;
            if record != *expected {
                return Err(Deviation::Silent(format!(
                    "rolled back to {record:?}, not {expected:?}"
                )));
            }
        }
        StoreCall::Remove(vbs) => store.remove(vbs)?,
        StoreCall::Compact(vb, verdicts) => {
            let done = store.compact(*vb, &mut |meta, key| verdicts.of(meta, key))?;
            let expected = &after.vbs[vb];
            let right = done.purge_seqno == expected.record.purge_seqno
                && done.kept == expected.rows.len() as u64;
            if !right {
                return Err(Deviation::Silent(format!("compacted: {done:?}")));
            }
        }
        StoreCall::Trim(vb, trim) => {
            let limits = HistoryLimits {
                bytes: u64::MAX,
                before_s: trim.before_s,
            };
            let kept = store.trim_history(*vb, limits, &mut |_, key| trim.is_dead(key))?;
            let expected = &after.vbs[vb].history;
            if kept.rows != expected.len() as u64 || kept.from != expected.keys().next().copied() {
                return Err(Deviation::Silent(format!("trimmed: {kept:?}")));
            }
        }
        StoreCall::Manifest(text) => store.set_manifest(text)?,
    }
    Ok(())
}
