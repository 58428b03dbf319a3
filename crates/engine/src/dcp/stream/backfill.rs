//! The store's part of a stream: rows instead of segments of the log.

use model::{CollectionId, Document, Seqno, SnapshotRange};

use super::state::{ANNOUNCED, HistoryPart, OutOfOrder, Phase, Stream};
use crate::VBucket;
use crate::checkpoint::{CursorId, CursorRead, FlushBudget, Garbage};
use crate::dcp::filter::StreamFilter;
use crate::dcp::held::{Held, Rows};
use crate::dcp::message::{Advances, Snapshot, StoreView, StreamEnd, Versions};

/// Most collections of a filter whose rows are looked for by their keys.
const COLLECTIONS_MAX: usize = 16;
/// Most collections of a filter whose rows may come ordered by key.
const OUT_OF_ORDER_COLLECTIONS_MAX: usize = 1;

/// Whether a change was found that waits for its marker to be sent.
pub(super) fn awaits(part: Option<&HistoryPart>) -> bool {
    part.is_some_and(|part| part.awaiting.is_some())
}

/// The store's rows that a stream is about, where these may be few of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnlyRows {
    /// Rows of these collections.
    pub collections: Vec<CollectionId>,
    /// They may come ordered by key, as one snapshot without seqnos.
    pub by_key: bool,
}

impl Stream {
    /// Which of the rows that [`Stream::fill`] asked for are of use; `None` for all.
    pub fn only_rows(&self) -> Option<OnlyRows> {
        let StreamFilter::Collections(ids) = &self.filter else {
            return None;
        };
        if self.options.change_streams {
            // The order by key has newest versions only.
            return None;
        }
        let from_nothing = self.read == Seqno::ZERO && self.asked_start == Seqno::ZERO;
        (ids.len() <= COLLECTIONS_MAX).then(|| OnlyRows {
            collections: ids.to_vec(),
            by_key: self.options.out_of_order.is_some()
                && from_nothing
                && !self.options.takeover
                && self.end == Seqno(u64::MAX)
                && ids.len() <= OUT_OF_ORDER_COLLECTIONS_MAX,
        })
    }

    /// Whether replaced versions are wanted as well, where they are kept.
    pub fn wants_versions(&self) -> bool {
        self.options.change_streams
    }

    /// The store opened its view. Call under the vBucket's lock.
    pub fn backfill_opened(
        &mut self,
        view: &StoreView,
        vbucket: &mut VBucket,
        name: &str,
    ) -> Garbage {
        if self.phase != Phase::Store {
            return Garbage::default();
        }
        let misses_tombstones = self.read != Seqno::ZERO
            && self.read < view.purge_seqno
            && self.known_purge != view.purge_seqno;
        if misses_tombstones && !self.options.rules.ignore_purged {
            self.finish(StreamEnd::Rollback);
            return Garbage::default();
        }
        self.view_end = view.high;
        // A replica gets everything, and finds out by itself what means nothing any more.
        let replica = self.options.sync_writes && self.filter == StreamFilter::All;
        self.living = vbucket.living_rows().filter(|_| !replica).map(Box::new);
        let mut end = self.end_for_peer(view.high, view.visible_end);
        if !self.options.told_of_advances && vbucket.has_collections() {
            let last = vbucket.collection_high_seqno(CollectionId::DEFAULT);
            end = last.filter(|last| *last <= end).unwrap_or(end);
        }
        let mut visible_end = view.visible_end;
        let mut garbage = Garbage::default();
        if !self.options.disk_only {
            let registered = vbucket.register_cursor(name, view.high);
            self.cursor = Some(registered.cursor);
            self.store_again = registered.gap.is_some();
            garbage = registered.garbage;
            if view.snapshot.end > view.high && !self.store_again {
                let (visible, joined_end) = self.join(vbucket, registered.cursor);
                end = end.max(joined_end);
                visible_end = visible_end.max(visible);
            }
        }
        let end = end.min(self.end);
        if view.by_key {
            // What follows begins after it, wherever the peer stood.
            self.asked_start = ANNOUNCED;
            self.out_of_order = OutOfOrder::Begins;
        } else if end > self.read {
            let history = view.history_from.filter(|_| self.options.change_streams);
            let from_begin = history.is_some_and(|from| from <= self.read.next());
            let marker = Snapshot {
                range: SnapshotRange {
                    start: self.read.next(),
                    end,
                },
                disk: true,
                checkpoint: true,
                acknowledge: self.options.takeover,
                visible_end: visible_end.min(end),
                high_completed: Some(view.high_completed),
                high_prepared: Some(view.high_prepared).filter(|&seqno| seqno > Seqno::ZERO),
                purge_seqno: view.purge_seqno,
                versions: if from_begin {
                    Versions::Repeated
                } else {
                    Versions::Newest
                },
            };
            self.announce(marker);
            let marker = self.snapshot.as_deref().copied();
            self.history = history
                .filter(|from| !from_begin && *from <= end)
                .zip(marker)
                .map(|(from, marker)| {
                    Box::new(HistoryPart {
                        from,
                        marker,
                        awaiting: None,
                    })
                });
        }
        garbage
    }

    /// The change that waits for its marker to be sent.
    pub(super) fn awaiting(&mut self) -> Option<Seqno> {
        let found = self.history.as_ref()?.awaiting?;
        self.history = None;
        Some(found)
    }

    /// What to announce before the change of `seqno`, the first one with all its versions.
    pub(super) fn history_begins(&mut self, seqno: Seqno) -> Option<Snapshot> {
        let part = self.history.as_mut()?;
        if seqno < part.from {
            return None;
        }
        part.awaiting = Some(seqno);
        Some(Snapshot {
            versions: Versions::Repeated,
            acknowledge: false,
            ..part.marker
        })
    }

    /// The view ends inside of a snapshot: a document that was replaced before its end may have
    /// its newest version only in memory. That part is taken now, and belongs to the same
    /// snapshot. Returns the newest change in it that clients may see, and where it ends.
    fn join(&mut self, vbucket: &mut VBucket, cursor: CursorId) -> (Seqno, Seqno) {
        match vbucket.take_from(cursor, FlushBudget::ALL) {
            CursorRead::Changes(mut batch) => {
                self.look_for_end(&mut batch, vbucket);
                let visible = batch.visible_end;
                let end = self.end_for_peer(batch.snapshot.end, visible);
                self.joined = Some(Box::new(batch));
                (visible, end)
            }
            CursorRead::Nothing | CursorRead::Dropped => (Seqno::ZERO, Seqno::ZERO),
        }
    }

    /// Rows of the store came.
    pub fn backfill_rows(&mut self, rows: Box<dyn Rows>) {
        if self.phase == Phase::Store {
            let last = rows.documents().last().map(Document::seqno);
            let last = last.filter(|_| self.out_of_order == OutOfOrder::No);
            self.held_end = last.unwrap_or(self.read);
            self.held = Some(Held::from_store(rows));
        }
    }

    /// All rows of the view came, and [`Stream::next_event`] has given them all.
    pub fn backfill_done(&mut self) {
        if self.phase != Phase::Store {
            return;
        }
        self.living = None;
        // What is deleted from now on was told of.
        self.options.skip_deletes = false;
        self.read = self.read.max(self.view_end.min(self.end));
        self.phase = if self.store_again {
            Phase::NeedsStore
        } else {
            Phase::Memory
        };
        self.checkpoint_next = true;
        if let Some(batch) = self.joined.take() {
            self.held_end = batch.last;
            self.held = Some(Held::from_memory(*batch));
            return;
        }
        if self.read >= self.end || self.options.disk_only {
            self.phase = Phase::Ending(StreamEnd::Finished);
        }
        self.finish_snapshot();
    }

    /// Everything of an unordered snapshot was given: its end is next.
    pub(super) fn end_out_of_order(&mut self) {
        let over = self.out_of_order == OutOfOrder::Open
            && self.phase != Phase::Store
            && self.joined.is_none();
        if !over {
            return;
        }
        self.out_of_order = OutOfOrder::Ends;
        if self.options.out_of_order == Some(Advances::Told) && self.sent < self.read {
            self.advanced = self.read;
        }
        self.sent = self.read;
    }
}
