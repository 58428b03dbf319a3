//! State of a stream.

use model::{Seqno, SnapshotRange, VbState};

use crate::checkpoint::{CursorBatch, CursorId, Garbage};
use crate::dcp::filter::StreamFilter;
use crate::dcp::message::{Snapshot, StreamAsk, StreamEnd, StreamOptions, StreamTotals};
use crate::dcp::pending_changes::PendingChanges;
use crate::dcp::rollback::ClaimedPosition;
use collections::Living;

/// Phase of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// A backfill from the store must be requested.
    NeedsStore,
    /// The backfill runs.
    Store,
    /// The stream follows the log.
    Memory,
    /// The peer must be asked to set this state.
    Asking(VbState),
    /// The peer was asked to set this state; its answer is outstanding.
    Asked(VbState),
    /// The peer is pending; the vBucket must become dead here.
    HandOver,
    /// The end must be sent.
    Ending(StreamEnd),
    /// The end was sent.
    Over,
}

/// Origin of the snapshot in which the peer stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnapshotOrigin {
    /// The peer's request.
    Claimed,
    /// A marker of this stream.
    Announced,
}

/// Progress of an out-of-order snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutOfOrder {
    No,
    /// Its start must be sent.
    Begins,
    Open,
    /// Its end must be sent.
    Ends,
}

/// The part of a view that has all versions, after a part that has only newest versions. Both parts
/// have the same seqno range and one marker each.
pub(super) struct HistoryPart {
    /// First seqno of this part.
    pub(super) from: Seqno,
    /// Its snapshot marker.
    pub(super) marker: Snapshot,
    /// Seqno of the change for which the marker was sent and that is next.
    pub(super) awaiting: Option<Seqno>,
}

/// Result of [`Stream::open`].
pub struct OpenedStream {
    /// The stream. It has a cursor, unless it begins with a backfill.
    pub stream: Stream,
    /// Garbage of an older cursor with the same name.
    pub garbage: Garbage,
}

/// A change stream of a vBucket. The caller pulls: [`Stream::next_event`] while there are events,
/// then [`Stream::fill`] under the vBucket's lock.
///
/// Cost: 192 bytes, since there are many idle streams. Held changes are references to segments of
/// the log, or one chunk of rows.
pub struct Stream {
    pub(super) options: StreamOptions,
    pub(super) filter: StreamFilter,
    /// End of the stream once the current change is sent, because the filter matches nothing more.
    pub(super) ends: Option<StreamEnd>,
    /// Living collections, if held changes may belong to dropped ones.
    pub(super) living: Option<Box<Living>>,
    pub(super) end: Seqno,
    /// The snapshot in which the peer stands: at first its own, then the one announced last. A snapshot that broke off
    /// goes on in the next one, which starts where it did and does not end before it.
    pub(super) open: SnapshotRange,
    pub(super) origin: SnapshotOrigin,
    /// All changes up to this seqno were sent or filtered out.
    pub(super) read: Seqno,
    /// Seqno of the last change sent.
    pub(super) sent: Seqno,
    /// End of the store's view that is being read.
    pub(super) view_end: Seqno,
    /// Purge seqno that the peer knows: it does not miss tombstones that were purged up to it.
    pub(super) known_purge: Seqno,
    /// Last seqno of the held changes.
    pub(super) held_end: Seqno,
    pub(super) cursor: Option<CursorId>,
    pub(super) phase: Phase,
    /// Whether another backfill must follow this one, because the cursor was dropped.
    pub(super) store_again: bool,
    /// Whether the next snapshot begins a checkpoint.
    pub(super) checkpoint_next: bool,
    /// Whether the takeover is in its second half.
    pub(super) handed_over: bool,
    pub(super) unacknowledged_snapshots: u32,
    pub(super) snapshot: Option<Box<Snapshot>>,
    /// Seqno for the next `SeqnoAdvanced` event; zero for none.
    pub(super) advanced: Seqno,
    pub(super) held: Option<Box<PendingChanges>>,
    /// Changes from memory that follow the store's rows in the same snapshot.
    pub(super) joined: Option<Box<CursorBatch>>,
    /// Progress of an out-of-order snapshot.
    pub(super) out_of_order: OutOfOrder,
    /// Part of the view that must still be announced as history.
    pub(super) history: Option<Box<HistoryPart>>,
    pub(super) totals: StreamTotals,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("phase", &self.phase)
            .field("read", &self.read)
            .field("announced", &self.announced())
            .finish_non_exhaustive()
    }
}

impl Stream {
    /// Returns the end of the last announced snapshot; zero for none.
    pub(super) fn announced(&self) -> Seqno {
        match self.origin {
            SnapshotOrigin::Claimed => Seqno::ZERO,
            SnapshotOrigin::Announced => self.open.end,
        }
    }

    /// Creates a stream at the peer's position, without a cursor.
    pub(super) fn new(ask: &StreamAsk) -> Self {
        let ClaimedPosition {
            seqno, snapshot, ..
        } = ask.position;
        let stands_inside = snapshot.start < seqno && seqno < snapshot.end;
        let between = SnapshotRange {
            start: seqno,
            end: seqno,
        };
        let skip_deletes = ask.options.skip_deletes && seqno == Seqno::ZERO;
        Self {
            options: StreamOptions {
                skip_deletes,
                ..ask.options
            },
            filter: if ask.options.wants_advances {
                StreamFilter::All
            } else {
                StreamFilter::DefaultOnly
            },
            ends: None,
            living: None,
            end: ask.end,
            open: if stands_inside { snapshot } else { between },
            origin: SnapshotOrigin::Claimed,
            read: seqno,
            sent: seqno,
            view_end: Seqno::ZERO,
            known_purge: ask.position.purge_seqno,
            held_end: Seqno::ZERO,
            cursor: None,
            phase: Phase::Memory,
            store_again: false,
            checkpoint_next: true,
            handed_over: false,
            unacknowledged_snapshots: 0,
            snapshot: None,
            advanced: Seqno::ZERO,
            held: None,
            joined: None,
            out_of_order: OutOfOrder::No,
            history: None,
            totals: StreamTotals::default(),
        }
    }
}
