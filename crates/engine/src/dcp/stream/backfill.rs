//! Backfill of a stream: rows of the store instead of segments of the log.

use model::{CollectionId, Document, Seqno, SnapshotRange};

use super::state::{HistoryPart, OutOfOrder, Phase, SnapshotOrigin, Stream};
use crate::VBucket;
use crate::checkpoint::{CursorId, CursorRead, FlushBudget, Garbage};
use crate::dcp::filter::StreamFilter;
use crate::dcp::message::{Advances, Snapshot, StoreView, StreamEnd, Versions};
use crate::dcp::pending_changes::{PendingChanges, StoreRows};

/// Maximum number of collections in a filter for which rows are looked up by key.
const COLLECTIONS_MAX: usize = 16;
/// Maximum number of collections in a filter for which rows may come ordered by key.
const OUT_OF_ORDER_COLLECTIONS_MAX: usize = 1;

/// Whether a change waits until its snapshot marker is sent.
pub(super) fn awaits(part: Option<&HistoryPart>) -> bool {
    part.is_some_and(|part| part.awaiting.is_some())
}

/// A selection of the store's rows, for a stream that needs only few of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OnlyRows {
    /// Collections of these rows.
    pub collections: Vec<CollectionId>,
    /// Whether the rows may come ordered by key, as one out-of-order snapshot.
    pub by_key: bool,
}

impl Stream {
    /// Returns the selection of rows that the backfill needs; `None` for all rows.
    pub fn only_rows(&self) -> Option<OnlyRows> {
        let StreamFilter::Collections(ids) = &self.filter else {
            return None;
        };
        if self.options.change_streams {
            // The order by key has only newest versions.
            return None;
        }
        let nothing_announced = self.origin == SnapshotOrigin::Claimed;
        let from_nothing =
            self.read == Seqno::ZERO && self.open.start == Seqno::ZERO && nothing_announced;
        (ids.len() <= COLLECTIONS_MAX).then(|| OnlyRows {
            collections: ids.to_vec(),
            by_key: self.options.out_of_order.is_some()
                && from_nothing
                && !self.options.takeover
                && self.end == Seqno(u64::MAX)
                && ids.len() <= OUT_OF_ORDER_COLLECTIONS_MAX,
        })
    }

    /// Whether the stream wants replaced versions as well.
    pub fn wants_versions(&self) -> bool {
        self.options.change_streams
    }

    /// Starts the backfill with the store's view. Call under the vBucket's lock.
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
        self.find_living(vbucket);
        let (end, visible_end, garbage) = self.follow_view(view, vbucket, name);
        if view.by_key {
            // The snapshot after it starts where it ends, whatever the peer's position was.
            self.origin = SnapshotOrigin::Announced;
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

    /// Registers the cursor after the view. Returns the end of the view's snapshot for the peer, and its last visible
    /// seqno: the rest of the snapshot comes from memory, or with another backfill.
    fn follow_view(
        &mut self,
        view: &StoreView,
        vbucket: &mut VBucket,
        name: &str,
    ) -> (Seqno, Seqno, Garbage) {
        let mut end = self.end_for_peer(view.high, view.visible_end);
        if self.needs_visible_end(vbucket) {
            let last = vbucket.collection_high_seqno(CollectionId::DEFAULT);
            end = last.filter(|last| *last <= end).unwrap_or(end);
        }
        let ends_inside = view.snapshot.end > view.high;
        if self.options.disk_only && !ends_inside {
            return (end, view.visible_end, Garbage::default());
        }
        let registered = vbucket.register_cursor(name, view.high);
        self.cursor = Some(registered.cursor);
        self.store_again = registered.gap.is_some();
        let (visible, joined_end) = match (ends_inside, self.store_again) {
            (false, _) => (Seqno::ZERO, Seqno::ZERO),
            (true, false) => self.join(vbucket, registered.cursor),
            (true, true) => {
                let visible = view.visible_end;
                (visible, self.end_for_peer(view.snapshot.end, visible))
            }
        };
        let visible_end = view.visible_end.max(visible);
        (end.max(joined_end), visible_end, registered.garbage)
    }

    /// Returns the change whose marker was sent and that is next.
    pub(super) fn awaiting(&mut self) -> Option<Seqno> {
        let found = self.history.as_ref()?.awaiting?;
        self.history = None;
        Some(found)
    }

    /// Returns the marker to send before the change of `seqno`, if that is the first change with
    /// all versions.
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

    /// Joins changes from memory to the view if the view ends inside a snapshot: a document that
    /// was replaced in that snapshot may have its newest version only in memory. Returns the last
    /// visible seqno of these changes, and the snapshot's end.
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

    /// Takes rows of the store.
    pub fn backfill_rows(&mut self, rows: Box<dyn StoreRows>) {
        if self.phase == Phase::Store {
            let last = rows.documents().last().map(Document::seqno);
            let last = last.filter(|_| self.out_of_order == OutOfOrder::No);
            self.held_end = last.unwrap_or(self.read);
            self.held = Some(PendingChanges::from_store(rows));
        }
    }

    /// Ends the backfill. Call once all rows have come and [`Stream::next_event`] has returned
    /// them.
    pub fn backfill_done(&mut self) {
        if self.phase != Phase::Store {
            return;
        }
        self.living = None;
        // The initial backfill is over: deletions are sent from here on.
        self.options.skip_deletes = false;
        self.read = self.read.max(self.view_end);
        self.phase = if self.store_again {
            Phase::NeedsStore
        } else {
            Phase::Memory
        };
        self.checkpoint_next = true;
        if let Some(batch) = self.joined.take() {
            self.held_end = batch.last;
            self.held = Some(PendingChanges::from_memory(*batch));
            return;
        }
        if self.read >= self.end.max(self.announced()) {
            self.phase = Phase::Ending(StreamEnd::Finished);
        }
        self.finish_snapshot();
    }

    /// Ends an out-of-order snapshot once all its changes were sent.
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
