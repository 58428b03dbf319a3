//! Living rows of a store: those of existing collections.

use model::{CollectionId, Document, Seqno, split_key};

use crate::SystemEvent;

/// A filter for living rows of a store, as of one seqno.
#[derive(Clone, Debug)]
pub struct Living {
    up_to: Seqno,
    open: Box<[(u32, Seqno)]>,
}

impl Living {
    /// Creates a filter from the ids and start seqnos of the existing collections, ordered by id.
    pub(crate) fn new(up_to: Seqno, open: Box<[(u32, Seqno)]>) -> Self {
        Self { up_to, open }
    }

    /// Last seqno for which the filter is valid.
    pub fn up_to(&self) -> Seqno {
        self.up_to
    }

    /// The existing collections.
    pub fn open(&self) -> impl Iterator<Item = CollectionId> {
        self.open.iter().map(|(id, _)| CollectionId(*id))
    }

    /// Whether a row belongs to a dropped collection. Rows after `up_to` count as living.
    pub fn is_dead(&self, key: &[u8], seqno: Seqno, tombstone: bool) -> bool {
        if seqno > self.up_to {
            return false;
        }
        if SystemEvent::is_key(key) {
            // Of a dropped collection only the end event is needed.
            return !tombstone
                && SystemEvent::modified_key(key).is_some_and(|id| self.lacks(id.0, seqno));
        }
        split_key(key).is_some_and(|(id, _)| self.lacks(id.0, seqno))
    }

    /// Whether this row belongs to a dropped collection; as [`Living::is_dead`].
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
