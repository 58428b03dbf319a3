//! Backfills of few of a vBucket's documents: the table says which rows they have, so that only
//! those are read.
//!
//! What the walk over the table found is what the collections had when it began, less what was
//! replaced since. Whatever was replaced until the walk ended has a newer row by `needs`; so a
//! view that reaches there is complete: rows that were found, then all rows after the walk's
//! begin.

use std::sync::Arc;

use engine::collections::SystemEvent;
use engine::{FoundRow, RowWalk, WalkRequest, Walked};
use model::{CollectionId, Document, Seqno, VbId};
use storage::{KvStore, Snapshot, StoreError};

use super::account::{BackfillAccount, CHUNK_DOCUMENTS_MAX};
use crate::Bucket;

/// Most memory of one backfill's list of rows; with more, all rows are read.
const LIST_BYTES_MAX: usize = 4 << 20;
/// Parts of a table that are walked before others get their turn.
const PARTS_PER_STEP: usize = 64;
/// Looks at a vBucket that is not flushed far enough, after which all rows are read.
const WAITS_MAX: u32 = 400;
/// Rows that are rather passed over than sought past.
const PASSED_OVER_MAX: u64 = 16;

/// Which rows a backfill is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenRows {
    /// Rows of these collections, and those that say what became of them.
    pub collections: Vec<CollectionId>,
    /// Ordered by their keys, what changed meanwhile after them.
    pub by_key: bool,
    /// Read all rows where the collections have more than one of so many documents; zero for
    /// any share.
    pub sparse: u64,
}

/// How far the choice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// There is more to find out.
    More,
    /// The store must be flushed further.
    Waiting,
    /// The rows are known.
    Made,
    /// They are not: all are to be read.
    None,
}

enum Stage {
    Walking(RowWalk),
    Waiting { needs: Seqno, waits: u32 },
    Reading,
}

/// The choice of a backfill's rows.
pub(super) struct Chosen {
    pub(super) by_key: bool,
    stage: Stage,
    rows: Vec<FoundRow>,
    next: usize,
    up_to: Seqno,
    /// Rows past the end were met.
    past_end: bool,
    booked: Booked,
}

/// Memory of a list, as long as it is there.
struct Booked {
    account: Arc<BackfillAccount>,
    bytes: usize,
}

impl Drop for Booked {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

impl Chosen {
    /// A choice that is yet to be made, of rows after `after`.
    pub(super) fn new(rows: ChosenRows, after: Seqno, account: Arc<BackfillAccount>) -> Self {
        let walk = RowWalk::new(WalkRequest {
            collections: rows.collections,
            after,
            keys: rows.by_key,
            sparse: rows.sparse,
            bytes_max: LIST_BYTES_MAX,
        });
        Self {
            by_key: rows.by_key,
            stage: Stage::Walking(walk),
            rows: Vec::new(),
            next: 0,
            up_to: after,
            past_end: false,
            booked: Booked { account, bytes: 0 },
        }
    }

    /// Some steps towards the choice.
    pub(super) fn make<S: KvStore>(&mut self, bucket: &Bucket<S>, vb: VbId) -> Choice {
        match &mut self.stage {
            Stage::Reading => Choice::Made,
            Stage::Walking(walk) => {
                for _ in 0..PARTS_PER_STEP {
                    match bucket.with_vbucket(vb, |vbucket| vbucket.walk_rows(walk)) {
                        Some(Walked::More) => {}
                        Some(Walked::Finished { up_to, needs }) => {
                            if !self.walked(up_to, needs) {
                                return Choice::None;
                            }
                            return self.make(bucket, vb);
                        }
                        Some(Walked::Unknown) | None => return Choice::None,
                    }
                }
                Choice::More
            }
            Stage::Waiting { needs, waits } => {
                let persisted = bucket.with_vbucket(vb, |vbucket| vbucket.persisted_seqno());
                if persisted.is_some_and(|persisted| persisted >= *needs) {
                    self.stage = Stage::Reading;
                    return Choice::Made;
                }
                *waits += 1;
                if *waits > WAITS_MAX {
                    return Choice::None;
                }
                Choice::Waiting
            }
        }
    }

    /// The walk is over; `false` when there is no memory for what it found.
    fn walked(&mut self, up_to: Seqno, needs: Seqno) -> bool {
        let waiting = Stage::Waiting { needs, waits: 0 };
        if let Stage::Walking(walk) = std::mem::replace(&mut self.stage, waiting) {
            self.rows = walk.into_rows();
        }
        self.up_to = self.up_to.max(up_to);
        self.rows.sort_unstable_by_key(|row| row.seqno);
        self.rows.dedup_by_key(|row| row.seqno);
        if self.by_key {
            self.rows.sort_by(|a, b| a.key.cmp(&b.key));
        }
        let keys: usize = self.rows.iter().map(|row| row.key.len()).sum();
        let bytes = self.rows.capacity() * size_of::<FoundRow>() + keys;
        if bytes > self.booked.account.free() {
            return false;
        }
        self.booked.account.add(bytes);
        self.booked.bytes = bytes;
        true
    }

    /// Where reading goes on once the list was read: `None` while it was not.
    pub(super) fn rest(&self) -> Option<Seqno> {
        (self.next == self.rows.len()).then(|| self.up_to.next())
    }

    /// Reads the next rows of the list, up to `to` and about so many bytes. Returns their bytes.
    pub(super) fn read(
        &mut self,
        snapshot: &dyn Snapshot,
        to: Seqno,
        bytes_max: usize,
        documents: &mut Vec<Document>,
    ) -> Result<usize, StoreError> {
        let mut rows = snapshot.by_seqno(Seqno::ZERO);
        let (mut at, mut bytes) = (None::<Seqno>, 0);
        while let Some(wanted) = self.rows.get(self.next).map(|row| row.seqno) {
            if documents.len() >= CHUNK_DOCUMENTS_MAX || bytes >= bytes_max {
                break;
            }
            self.next += 1;
            if wanted > to {
                if !std::mem::replace(&mut self.past_end, true) && !self.by_key {
                    // It may be the row of a group, with events that are wanted.
                    let row = snapshot.by_seqno(wanted).next().transpose()?;
                    documents.extend(row.filter(|row| SystemEvent::is_group(row.key())));
                }
                continue;
            }
            let near = at.is_some_and(|at| at < wanted && wanted.0 - at.0 <= PASSED_OVER_MAX);
            if !near {
                rows = snapshot.by_seqno(wanted);
            }
            at = None;
            for row in rows.by_ref() {
                let row = row?;
                let seqno = row.seqno();
                at = Some(seqno);
                if seqno == wanted {
                    bytes += row.memory_bytes();
                    documents.push(row);
                }
                if seqno >= wanted {
                    break;
                }
            }
        }
        Ok(bytes)
    }
}
