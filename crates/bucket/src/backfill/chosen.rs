//! Backfills of some collections of a vBucket. Their rows are adjacent by key, so only these are
//! read. A peer that accepts any order receives them by key. For other peers they are sorted by
//! seqno first, if they fit into memory.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use collections::SystemEvent;
use model::{CollectionId, Document, Seqno, VbId, split_key};
use storage::{KeyRange, KvStore, Snapshot, StoreError};

use super::account::{BackfillAccount, CHUNK_DOCUMENTS_MAX};
use crate::Bucket;

/// Maximum memory of rows that are sorted; with more, all rows of the vBucket are read.
const SORTED_BYTES_MAX: usize = 4 << 20;

/// Selection of rows for a backfill.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenRows {
    /// Rows of these collections, and their events.
    pub collections: Vec<CollectionId>,
    /// Whether rows come in the order of keys.
    pub by_key: bool,
    /// Maximum share of the documents, as one of so many: if the collections have more, all rows
    /// are read. Zero for no maximum.
    pub sparse: u64,
}

/// Result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChosenRead {
    /// Documents of so many bytes; there may be more.
    Some(usize),
    /// The last ones.
    Last(usize),
    /// Too many rows to sort: the caller must read all rows.
    TooMany,
}

/// The chosen rows of a backfill.
pub(super) struct Chosen {
    pub(super) by_key: bool,
    rows: ChosenRows,
    /// Rows up to this seqno are skipped.
    after: Seqno,
    /// Rows that come before the ranges; `None` before the first read.
    first: Option<VecDeque<Document>>,
    /// Ranges of keys to read, in reverse order.
    ranges: Vec<KeyRange>,
    booked: RowMemory,
}

/// Booked memory of rows, released on drop.
struct RowMemory {
    account: Arc<BackfillAccount>,
    bytes: usize,
}

impl Drop for RowMemory {
    fn drop(&mut self) {
        self.account.give_back(self.bytes);
    }
}

impl Chosen {
    /// Creates a selection of rows after `after`.
    pub(super) fn new(rows: ChosenRows, after: Seqno, account: Arc<BackfillAccount>) -> Self {
        let ids = rows.collections.iter();
        let mut ranges: Vec<_> = ids.map(|id| KeyRange::of_collection(*id)).collect();
        ranges.sort_unstable_by(|a, b| b.from.cmp(&a.from));
        Self {
            by_key: rows.by_key,
            rows,
            after,
            first: None,
            ranges,
            booked: RowMemory { account, bytes: 0 },
        }
    }

    /// Whether the collections exist, and are small enough.
    pub(super) fn is_worth_it<S: KvStore>(&self, bucket: &Bucket<S>, vb: VbId) -> bool {
        let ChosenRows {
            collections,
            sparse,
            ..
        } = &self.rows;
        let few = bucket.with_vbucket(vb, |vbucket| vbucket.are_sparse(collections, *sparse));
        few == Some(true)
    }

    /// Reads the next rows, up to `to` and about `bytes_max` bytes.
    pub(super) fn read(
        &mut self,
        snapshot: &dyn Snapshot,
        to: Seqno,
        bytes_max: usize,
        documents: &mut Vec<Document>,
    ) -> Result<ChosenRead, StoreError> {
        let mut first = match self.first.take() {
            Some(first) => first,
            None => match self.begin(snapshot)? {
                Some(first) => first.into(),
                None => return Ok(ChosenRead::TooMany),
            },
        };
        let mut bytes = 0;
        let is_full = |documents: &[Document], bytes: usize| {
            documents.len() >= CHUNK_DOCUMENTS_MAX || bytes >= bytes_max
        };
        while let Some(document) = first.pop_front() {
            let past_end = document.seqno() > to;
            if past_end {
                first.clear();
            }
            // After the end there may be a row with a group of events, some of which are wanted.
            if !past_end || SystemEvent::is_group(document.key()) {
                bytes += document.memory_bytes();
                documents.push(document);
            }
            if is_full(documents, bytes) {
                self.first = Some(first);
                return Ok(ChosenRead::Some(bytes));
            }
        }
        self.first = Some(first);
        while let Some(range) = self.ranges.last_mut() {
            let mut rest = None;
            snapshot.look(Seqno::ZERO, range, &mut |row| {
                if row.meta.seqno <= self.after || row.meta.seqno > to {
                    return Ok(ControlFlow::Continue(()));
                }
                let document = (row.document)()?;
                bytes += document.memory_bytes();
                documents.push(document);
                if is_full(documents, bytes) {
                    rest = Some([row.key, &[0]].concat());
                    return Ok(ControlFlow::Break(()));
                }
                Ok(ControlFlow::Continue(()))
            })?;
            if let Some(rest) = rest {
                range.from = rest.into();
                return Ok(ChosenRead::Some(bytes));
            }
            self.ranges.pop();
        }
        Ok(ChosenRead::Last(bytes))
    }

    /// Reads events and prepares of the collections; in the order of seqnos, all rows. `None` if these are too many.
    fn begin(&mut self, snapshot: &dyn Snapshot) -> Result<Option<Vec<Document>>, StoreError> {
        let concerns = |row: &Document| {
            let id = split_key(row.key()).map_or(CollectionId::DEFAULT, |(id, _)| id);
            let wanted = id == CollectionId::SYSTEM || self.rows.collections.contains(&id);
            wanted && row.seqno() > self.after
        };
        let mut rows = snapshot.beside_documents(Seqno::ZERO)?;
        rows.retain(concerns);
        if self.by_key {
            return Ok(Some(rows));
        }
        let bytes_max = SORTED_BYTES_MAX.min(self.booked.account.free());
        let mut bytes = 0;
        for range in self.ranges.drain(..) {
            snapshot.look(Seqno::ZERO, &range, &mut |row| {
                if bytes > bytes_max {
                    return Ok(ControlFlow::Break(()));
                }
                if row.meta.seqno > self.after {
                    let document = (row.document)()?;
                    bytes += document.memory_bytes();
                    rows.push(document);
                }
                Ok(ControlFlow::Continue(()))
            })?;
        }
        if bytes > bytes_max {
            return Ok(None);
        }
        self.booked.account.add(bytes);
        self.booked.bytes = bytes;
        rows.sort_unstable_by_key(Document::seqno);
        Ok(Some(rows))
    }
}
