//! Calls of the store for steps.

use super::read::Wrong;
use super::world::{Step, World};
use crate::history::HistoryLimits;
use crate::port::{KvStore, VbBatch};

/// Makes the call of a step, and compares its answer with `after`.
pub(super) fn call(store: &dyn KvStore, step: &Step, after: &World) -> Result<(), Wrong> {
    match step {
        Step::Commit(batches) => {
            let batches: Vec<VbBatch<'_>> = batches.iter().map(|batch| batch.as_batch()).collect();
            store.commit(&batches)?;
        }
        Step::Rollback(vb, to) => {
            let record = store.rollback(*vb, *to)?;
            let expected = &after.vbs[vb].record;
            if record != *expected {
                return Err(Wrong::Silent(format!(
                    "rolled back to {record:?}, not {expected:?}"
                )));
            }
        }
        Step::Remove(vbs) => store.remove(vbs)?,
        Step::Compact(vb, verdicts) => {
            let done = store.compact(*vb, &mut |meta, key| verdicts.of(meta, key))?;
            let expected = &after.vbs[vb];
            let right = done.purge_seqno == expected.record.purge_seqno
                && done.kept == expected.rows.len() as u64;
            if !right {
                return Err(Wrong::Silent(format!("compacted: {done:?}")));
            }
        }
        Step::Trim(vb, trim) => {
            let limits = HistoryLimits {
                bytes: u64::MAX,
                before_s: trim.before_s,
            };
            let kept = store.trim_history(*vb, limits, &mut |_, key| trim.is_dead(key))?;
            let expected = &after.vbs[vb].history;
            if kept.rows != expected.len() as u64 || kept.from != expected.keys().next().copied() {
                return Err(Wrong::Silent(format!("trimmed: {kept:?}")));
            }
        }
        Step::Manifest(text) => store.set_manifest(text)?,
    }
    Ok(())
}
