//! Removing rows that count for none: at an opening, and of vBuckets that go.

use std::sync::Arc;

use model::{Seqno, VbId};

use super::engine::{Engine, not_written};
use super::fault::{EngineError, Unwritten};
use super::log_index::RECORD;
use super::merge::TablesError;
use super::survey::{ROWS_END, vbs};
use super::view::View;
use crate::history::{HISTORY_END, place_of};
use crate::record::StoredVb;

/// Rows that one group removes at most when many go: some 100 kB.
const ROWS_PER_GROUP: usize = 5_000;

impl Engine {
    /// Every vBucket with a record. Rows that count for none are removed: they lie above the high
    /// seqno of their record, or have none, because whatever removed them was cut short.
    ///
    /// Cost: four seeks per vBucket.
    pub(crate) fn recover(self: &Arc<Self>) -> Result<Vec<(VbId, StoredVb)>, EngineError> {
        let mut found = Vec::new();
        let mut removed = 0;
        let indexes = self.index.read();
        let journaled = indexes
            .indexes()
            .flat_map(|index| index.vbs.keys())
            .collect();
        drop(indexes);
        for vb in vbs(&self.rows, journaled)? {
            let view = View::open(Arc::clone(self), vb);
            let stored = view.stored_vb()?;
            let end = stored
                .as_ref()
                .map_or(Seqno::ZERO, |one| one.record.high_seqno.next());
            let cleared = self.remove_rows(&view, end);
            removed += cleared.map_err(TablesError::into_error)?;
            found.extend(stored.map(|one| (vb, one)));
        }
        if removed > 0 {
            tracing::info!(rows = removed, "removed rows of what was cut short");
            self.sync()?;
        }
        Ok(found)
    }

    /// Removes the rows from seqno `from` on that `view` sees, those of the history as well, in
    /// several groups, not durably; tells how many.
    ///
    /// # Errors
    /// `Later`: what was begun is finished by opening again.
    pub(crate) fn remove_rows(&self, view: &View, from: Seqno) -> Result<usize, TablesError> {
        let mut removed = 0;
        let history = view.seqnos(place_of(from), HISTORY_END);
        let mut rows = view.seqnos(from, ROWS_END).chain(history).peekable();
        while rows.peek().is_some() {
            self.ensure_journal_space()?;
            let mut changes = self.changes();
            for row in rows.by_ref().take(ROWS_PER_GROUP) {
                let seqno = row.map_err(TablesError::Later)?;
                changes.remove(view.vb, seqno).map_err(not_written)?;
                removed += 1;
            }
            changes.write().map_err(not_written)?;
        }
        Ok(removed)
    }

    /// Removes rows of a vBucket in one group, not durably, and replaces its record if one is given.
    pub(crate) fn drop_rows(
        &self,
        vb: VbId,
        seqnos: &[Seqno],
        record: Option<&StoredVb>,
    ) -> Result<(), Unwritten> {
        let mut changes = self.changes();
        let mut write = || {
            for seqno in seqnos {
                changes.remove(vb, *seqno)?;
            }
            let recorded = record.map(|stored| changes.put_record(vb, stored.into()));
            recorded.transpose()
        };
        let written = write().and_then(|_| changes.write());
        written.map_err(Unwritten::Refused)
    }

    /// Removes records and rows of vBuckets, not durably, in as few groups as their rows fill: each
    /// new group syncs the one before.
    ///
    /// # Errors
    /// As [`Engine::remove_rows`], with the vBucket.
    pub(crate) fn remove_vbs(self: &Arc<Self>, vbs: &[VbId]) -> Result<(), (VbId, TablesError)> {
        let mut changes = self.changes();
        let mut in_group = 0;
        for &vb in vbs {
            let view = View::open(Arc::clone(self), vb);
            let history = view.seqnos(place_of(Seqno::ZERO), HISTORY_END);
            let rows = view.seqnos(Seqno::ZERO, ROWS_END).chain(history);
            // The record goes first: rows without one do not count.
            for seqno in std::iter::once(Ok(RECORD)).chain(rows) {
                let seqno = seqno.map_err(|error| (vb, TablesError::Later(error)))?;
                if in_group == ROWS_PER_GROUP {
                    changes.write().map_err(|error| (vb, not_written(error)))?;
                    self.ensure_journal_space().map_err(|error| (vb, error))?;
                    changes = self.changes();
                    in_group = 0;
                }
                let removed = changes.remove(vb, seqno);
                removed.map_err(|error| (vb, not_written(error)))?;
                in_group += 1;
            }
        }
        let last = vbs.last().copied().unwrap_or_default();
        changes.write().map_err(|error| (last, not_written(error)))
    }
}
