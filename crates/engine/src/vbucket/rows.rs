//! Which rows of the store belong to some collections, found out from memory.

use model::{CollectionId, Seqno, split_key};

use super::VBucket;

/// A row that belongs to one of the collections asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoundRow {
    /// Where it is.
    pub seqno: Seqno,
    /// Its key, with the collection in front; empty unless asked for, and of system events.
    pub key: Box<[u8]>,
}

/// What a walk looks for.
#[derive(Clone, Debug)]
pub struct WalkRequest {
    /// Rows of these collections.
    pub collections: Vec<CollectionId>,
    /// Rows after this seqno.
    pub after: Seqno,
    /// Whether their keys are wanted, to order them.
    pub keys: bool,
    /// The walk gives up where the collections have more than one of so many documents; zero for any share.
    pub sparse: u64,
    /// The walk gives up when what it found takes this much.
    pub bytes_max: usize,
}

/// A walk over the table that finds the rows of some collections: see [`VBucket::walk_rows`].
#[derive(Clone, Debug)]
pub struct RowWalk {
    request: WalkRequest,
    next_part: usize,
    begun: Option<Seqno>,
    rows: Vec<FoundRow>,
    bytes: usize,
}

/// How far a walk came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// Another step is needed.
    More,
    /// Everything was seen.
    Finished {
        /// What was found are the rows up to here, less those that were replaced since. Newer
        /// rows are not among them.
        up_to: Seqno,
        /// A view of the store that reaches here has, of each key, either a row that was found
        /// or one after `up_to`.
        needs: Seqno,
    },
    /// Memory does not know, or there are too many: read all rows.
    Unknown,
}

impl RowWalk {
    /// A walk that has not begun.
    pub fn new(request: WalkRequest) -> Self {
        Self {
            request,
            next_part: 0,
            begun: None,
            rows: Vec::new(),
            bytes: 0,
        }
    }

    fn found(&mut self, seqno: Seqno, key: &[u8]) {
        if seqno <= self.request.after {
            return;
        }
        let key: Box<[u8]> = if self.request.keys {
            key.into()
        } else {
            Box::default()
        };
        self.bytes += size_of::<FoundRow>() + key.len();
        self.rows.push(FoundRow { seqno, key });
    }

    /// What was found, in no order; a row may be there twice.
    pub fn into_rows(self) -> Vec<FoundRow> {
        self.rows
    }
}

impl VBucket {
    /// One step of a walk: a part of the table, some hundred slots. Nothing that is in memory
    /// throughout is missed, whatever is written between the steps: entries stay in their part
    /// of the table, or move to one that comes later.
    ///
    /// Cost: O(slots of a part); the first step O(collections).
    pub fn walk_rows(&self, walk: &mut RowWalk) -> Walked {
        if self.table.has_away() {
            return Walked::Unknown;
        }
        if walk.begun.is_none() && !self.begin_walk(walk) {
            return Walked::Unknown;
        }
        let begun = *walk.begun.get_or_insert(self.high_seqno);
        let Some(part) = self.table.part(walk.next_part) else {
            return Walked::Finished {
                up_to: begun,
                needs: self.high_seqno,
            };
        };
        for document in part {
            let wanted = split_key(document.key())
                .is_some_and(|(id, _)| walk.request.collections.contains(&id));
            if wanted && document.seqno() <= begun {
                walk.found(document.seqno(), document.key());
            }
        }
        walk.next_part += 1;
        if walk.bytes > walk.request.bytes_max {
            return Walked::Unknown;
        }
        Walked::More
    }

    /// Finds what became of the collections themselves; `false` when all rows are to be read.
    fn begin_walk(&self, walk: &mut RowWalk) -> bool {
        let mut items = 0;
        for id in walk.request.collections.clone() {
            let Some(rows) = self.collections.rows_of(id) else {
                return false;
            };
            for seqno in rows.into_iter().filter(|seqno| *seqno > Seqno::ZERO) {
                walk.found(seqno, &[]);
            }
            items += self.items_of(id);
        }
        let sparse = walk.request.sparse;
        sparse == 0 || items.saturating_mul(sparse) <= self.table.counts().items
    }
}
