//! Backfills of few of a vBucket's documents: those of some collections, which lie together by key, so that only these are
//! read. To a peer that takes any order they come by key; otherwise they are sorted first, if they fit into memory together.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::Arc;

use collections::SystemEvent;
use model::{CollectionId, Document, Seqno, VbId, split_key};
use storage::{KeyRange, KvStore, Snapshot, StoreError};

use super::account::{BackfillAccount, CHUNK_DOCUMENTS_MAX};
use crate::Bucket;

/// Most memory of rows that are sorted; with more, all rows are read.
const SORTED_BYTES_MAX: usize = 4 << 20;

/// Which rows a backfill is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenRows {
    /// Rows of these collections, and those that say what became of them.
    pub collections: Vec<CollectionId>,
    /// Ordered by their keys.
    pub by_key: bool,
    /// Read all rows where the collections have more than one of so many documents; zero for
    /// any share.
    pub sparse: u64,
}

/// What came of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChosenRead {
    /// Documents of so many bytes; there may be more.
    Some(usize),
    /// The last ones.
    Last(usize),
    /// They are too many to be sorted: all rows are to be read.
    TooMany,
}

/// The chosen rows of a backfill.
pub(super) struct Chosen {
    pub(super) by_key: bool,
    rows: ChosenRows,
    /// Rows up to here are left out.
    after: Seqno,
    /// What comes next before the ranges; `None` before the first read.
    first: Option<VecDeque<Document>>,
    /// Keys that are to be read, the last ones first.
    ranges: Vec<KeyRange>,
    booked: Booked,
}

/// Memory of rows, as long as they are there.
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
    /// Rows after `after`.
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
            booked: Booked { account, bytes: 0 },
        }
    }

    /// Whether the collections are there, and few enough.
    pub(super) fn is_worth_it<S: KvStore>(&self, bucket: &Bucket<S>, vb: VbId) -> bool {
        let ChosenRows {
            collections,
            sparse,
            ..
        } = &self.rows;
        let few = bucket.with_vbucket(vb, |vbucket| vbucket.are_sparse(collections, *sparse));
        few == Some(true)
    }

    /// Reads the next rows, up to `to` and about so many bytes.
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
            // Behind the end may be the row of a group, with events that are wanted.
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
            snapshot.look(range, &mut |row| {
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

    /// What became of the collections, and what is undecided; where the order is that of seqnos, all rows. `None` when these
    /// are too many.
    fn begin(&mut self, snapshot: &dyn Snapshot) -> Result<Option<Vec<Document>>, StoreError> {
        let concerns = |row: &Document| {
            let id = split_key(row.key()).map_or(CollectionId::DEFAULT, |(id, _)| id);
            let wanted = id == CollectionId::SYSTEM || self.rows.collections.contains(&id);
            wanted && row.seqno() > self.after
        };
        let mut rows = snapshot.beside_documents()?;
        rows.retain(concerns);
        if self.by_key {
            return Ok(Some(rows));
        }
        let bytes_max = SORTED_BYTES_MAX.min(self.booked.account.free());
        let mut bytes = 0;
        for range in self.ranges.drain(..) {
            snapshot.look(&range, &mut |row| {
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
