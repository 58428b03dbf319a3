//! What a stream holds until it is sent: segments of the log, or rows of the store.

use model::Document;

use crate::checkpoint::{BatchPlace, CursorBatch};

/// Rows of the store, ascending; whatever keeps account of them goes with them.
pub trait Rows: Send {
    /// The rows.
    fn documents(&self) -> &[Document];
}

/// What is held until it is sent.
pub(super) enum Held {
    Memory(Box<CursorBatch>, Places),
    Disk(Box<dyn Rows>, usize),
}

/// Where the last change was found, and where the next one is looked for.
#[derive(Clone, Copy, Default)]
pub(super) struct Places {
    current: BatchPlace,
    next: BatchPlace,
}

impl Held {
    /// Moves to the next change.
    pub(super) fn step(&mut self) -> Option<&Document> {
        match self {
            Self::Memory(batch, places) => {
                places.current = places.next;
                batch.next(&mut places.next)
            }
            Self::Disk(rows, next) => {
                let document = rows.documents().get(*next)?;
                *next += 1;
                Some(document)
            }
        }
    }

    /// The change that [`Held::step`] gave last.
    pub(super) fn current(&self) -> Option<&Document> {
        match self {
            Self::Memory(batch, places) => {
                let mut place = places.current;
                batch.next(&mut place)
            }
            Self::Disk(rows, next) => rows.documents().get(next.checked_sub(1)?),
        }
    }
}
