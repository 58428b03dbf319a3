//! What a stream holds until it is sent: segments of the log, or rows of the store.

use model::{Document, Seqno};

use crate::checkpoint::{BatchPlace, CursorBatch};
use crate::collections::GroupReader;

/// Rows of the store, ascending; whatever keeps account of them goes with them.
pub trait Rows: Send {
    /// The rows.
    fn documents(&self) -> &[Document];
}

/// What is held until it is sent.
pub(super) enum Held {
    Memory(Box<Taken>),
    Disk(Box<Chunk>),
}

/// What was taken from the log.
pub(super) struct Taken {
    batch: CursorBatch,
    places: Places,
    /// The group of events that the last change stands for.
    group: Option<GroupReader>,
}

/// Rows of the store, and where the next one is.
pub(super) struct Chunk {
    rows: Box<dyn Rows>,
    next: usize,
    /// The group of events that the last row is.
    group: Option<GroupReader>,
}

/// Where the last change was found, and where the next one is looked for.
#[derive(Clone, Copy, Default)]
struct Places {
    current: BatchPlace,
    next: BatchPlace,
}

impl Taken {
    /// None of it was given yet.
    pub(super) fn new(batch: CursorBatch) -> Self {
        Self {
            batch,
            places: Places::default(),
            group: None,
        }
    }

    /// Seqno of its last change.
    pub(super) fn last(&self) -> Seqno {
        self.batch.last
    }
}

impl Taken {
    fn step(&mut self) -> Option<&Document> {
        if self.group.as_ref().is_some_and(|group| !group.is_over()) {
            return self.group.as_mut()?.step();
        }
        self.places.current = self.places.next;
        let found = self.batch.next(&mut self.places.next)?;
        let group = self.batch.group(self.places.next);
        self.group = group.map(|group| GroupReader::of_log(found, group));
        match &mut self.group {
            Some(group) => group.step(),
            None => Some(found),
        }
    }

    fn current(&self) -> Option<&Document> {
        if let Some(group) = &self.group {
            return group.current();
        }
        let mut place = self.places.current;
        self.batch.next(&mut place)
    }
}

impl Chunk {
    fn step(&mut self) -> Option<&Document> {
        if self.group.as_ref().is_some_and(|group| !group.is_over()) {
            return self.group.as_mut()?.step();
        }
        let row = self.rows.documents().get(self.next)?;
        self.next += 1;
        self.group = GroupReader::of_row(row);
        match &mut self.group {
            Some(group) => group.step(),
            None => Some(row),
        }
    }

    fn current(&self) -> Option<&Document> {
        match &self.group {
            Some(group) => group.current(),
            None => self.rows.documents().get(self.next.checked_sub(1)?),
        }
    }
}

impl Held {
    /// Rows of which none was given yet.
    pub(super) fn rows(rows: Box<dyn Rows>) -> Self {
        Self::Disk(Box::new(Chunk {
            rows,
            next: 0,
            group: None,
        }))
    }

    /// Moves to the next change.
    pub(super) fn step(&mut self) -> Option<&Document> {
        match self {
            Self::Memory(taken) => taken.step(),
            Self::Disk(chunk) => chunk.step(),
        }
    }

    /// Whether [`Held::step`] has no more to give.
    pub(super) fn is_over(&self) -> bool {
        let left = |group: &Option<GroupReader>| group.as_ref().is_some_and(|one| !one.is_over());
        match self {
            Self::Memory(taken) => {
                let mut place = taken.places.next;
                !left(&taken.group) && taken.batch.next(&mut place).is_none()
            }
            Self::Disk(chunk) => !left(&chunk.group) && chunk.next >= chunk.rows.documents().len(),
        }
    }

    /// The change that [`Held::step`] gave last.
    pub(super) fn current(&self) -> Option<&Document> {
        match self {
            Self::Memory(taken) => taken.current(),
            Self::Disk(chunk) => chunk.current(),
        }
    }
}
