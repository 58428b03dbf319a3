//! Changes that a stream holds until they are sent: segments of the log, or rows of the store.

use model::Document;

use crate::checkpoint::{BatchPlace, CursorBatch};
use collections::GroupReader;

/// Rows of the store, in ascending order. The value may also carry the accounting of their memory.
pub trait StoreRows: Send {
    /// Returns the rows.
    fn documents(&self) -> &[Document];
}

/// Changes held until they are sent.
pub(super) struct PendingChanges {
    source: ChangeSource,
    /// The group of events at the current place, if there is one.
    group: Option<GroupReader>,
}

/// Source of the changes, with the current position.
enum ChangeSource {
    Memory {
        batch: CursorBatch,
        /// Place of the last change, and place at which the search for the next one begins.
        current: BatchPlace,
        next: BatchPlace,
    },
    Store {
        rows: Box<dyn StoreRows>,
        next: usize,
    },
}

impl PendingChanges {
    /// Holds a batch of the log; the position is before its first change.
    pub(super) fn from_memory(batch: CursorBatch) -> Box<Self> {
        let source = ChangeSource::Memory {
            batch,
            current: BatchPlace::default(),
            next: BatchPlace::default(),
        };
        Box::new(Self {
            source,
            group: None,
        })
    }

    /// Holds rows of the store; the position is before the first row.
    pub(super) fn from_store(rows: Box<dyn StoreRows>) -> Box<Self> {
        Box::new(Self {
            source: ChangeSource::Store { rows, next: 0 },
            group: None,
        })
    }

    /// Whether the changes are rows of the store.
    pub(super) fn is_from_store(&self) -> bool {
        matches!(self.source, ChangeSource::Store { .. })
    }

    /// Moves to the next change, and returns it.
    pub(super) fn step(&mut self) -> Option<&Document> {
        if self.is_in_group() {
            return self.group.as_mut()?.step();
        }
        let (found, group) = match &mut self.source {
            ChangeSource::Memory {
                batch,
                current,
                next,
            } => {
                *current = *next;
                let found = batch.next(next)?;
                let group = batch.group(*next);
                (found, group.map(|group| GroupReader::of_log(found, group)))
            }
            ChangeSource::Store { rows, next } => {
                let row = rows.documents().get(*next)?;
                *next += 1;
                (row, GroupReader::of_row(row))
            }
        };
        self.group = group;
        match &mut self.group {
            Some(group) => group.step(),
            None => Some(found),
        }
    }

    fn is_in_group(&self) -> bool {
        self.group.as_ref().is_some_and(|group| !group.is_over())
    }

    /// Whether [`PendingChanges::step`] has no more changes.
    pub(super) fn is_over(&self) -> bool {
        let over = match &self.source {
            ChangeSource::Memory { batch, next, .. } => {
                let mut place = *next;
                batch.next(&mut place).is_none()
            }
            ChangeSource::Store { rows, next } => *next >= rows.documents().len(),
        };
        over && !self.is_in_group()
    }

    /// Returns the change that [`PendingChanges::step`] returned last.
    pub(super) fn current(&self) -> Option<&Document> {
        if let Some(group) = &self.group {
            return group.current();
        }
        match &self.source {
            ChangeSource::Memory { batch, current, .. } => {
                let mut place = *current;
                batch.next(&mut place)
            }
            ChangeSource::Store { rows, next } => rows.documents().get(next.checked_sub(1)?),
        }
    }
}
