//! What a stream holds until it is sent: segments of the log, or rows of the store.

use model::{Document, Seqno};

use crate::checkpoint::{BatchPlace, CursorBatch};

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
}

/// Rows of the store, and where the next one is.
pub(super) struct Chunk {
    rows: Box<dyn Rows>,
    next: usize,
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
        }
    }

    /// Seqno of its last change.
    pub(super) fn last(&self) -> Seqno {
        self.batch.last
    }
}

impl Held {
    /// Rows of which none was given yet.
    pub(super) fn rows(rows: Box<dyn Rows>) -> Self {
        Self::Disk(Box::new(Chunk { rows, next: 0 }))
    }

    /// Moves to the next change.
    pub(super) fn step(&mut self) -> Option<&Document> {
        match self {
            Self::Memory(taken) => {
                taken.places.current = taken.places.next;
                taken.batch.next(&mut taken.places.next)
            }
            Self::Disk(chunk) => {
                let document = chunk.rows.documents().get(chunk.next)?;
                chunk.next += 1;
                Some(document)
            }
        }
    }

    /// Whether [`Held::step`] has no more to give.
    pub(super) fn is_over(&self) -> bool {
        match self {
            Self::Memory(taken) => {
                let mut place = taken.places.next;
                taken.batch.next(&mut place).is_none()
            }
            Self::Disk(chunk) => chunk.next >= chunk.rows.documents().len(),
        }
    }

    /// The change that [`Held::step`] gave last.
    pub(super) fn current(&self) -> Option<&Document> {
        match self {
            Self::Memory(taken) => {
                let mut place = taken.places.current;
                taken.batch.next(&mut place)
            }
            Self::Disk(chunk) => chunk.rows.documents().get(chunk.next.checked_sub(1)?),
        }
    }
}
