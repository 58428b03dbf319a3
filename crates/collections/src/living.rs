//! Rows of a store that still mean something.

use model::{CollectionId, Document, Seqno, split_key};

use crate::SystemEvent;

/// Which rows of a store still mean something, as of one moment.
#[derive(Clone, Debug)]
pub struct Living {
    up_to: Seqno,
    open: Box<[(u32, Seqno)]>,
}

impl Living {
    /// With the numbers and the beginnings of what is open, by number.
    pub(crate) fn new(up_to: Seqno, open: Box<[(u32, Seqno)]>) -> Self {
        Self { up_to, open }
    }

    /// The last seqno for which it tells.
    pub fn up_to(&self) -> Seqno {
        self.up_to
    }

    /// The collections that are there.
    pub fn open(&self) -> impl Iterator<Item = CollectionId> {
        self.open.iter().map(|(id, _)| CollectionId(*id))
    }

    /// Whether a row belongs to a collection that was dropped. What is newer than this view
    /// counts as living.
    pub fn is_dead(&self, key: &[u8], seqno: Seqno, tombstone: bool) -> bool {
        if seqno > self.up_to {
            return false;
        }
        if SystemEvent::is_key(key) {
            // Of a collection that is gone only its end means anything.
            return !tombstone
                && SystemEvent::modified_key(key).is_some_and(|id| self.lacks(id.0, seqno));
        }
        split_key(key).is_some_and(|(id, _)| self.lacks(id.0, seqno))
    }

    /// The same of a row that was read.
    pub fn is_dead_row(&self, row: &Document) -> bool {
        self.is_dead(row.key(), row.seqno(), row.kind().is_tombstone())
    }

    fn lacks(&self, id: u32, seqno: Seqno) -> bool {
        match self.open.binary_search_by_key(&id, |open| open.0) {
            Ok(at) => seqno < self.open[at].1,
            Err(_) => true,
        }
    }
}
