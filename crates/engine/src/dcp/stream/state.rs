//! What a stream consists of.

use model::{Seqno, VbState};

use crate::checkpoint::{CursorBatch, CursorId, Garbage};
use crate::dcp::filter::StreamFilter;
use crate::dcp::held::Held;
use crate::dcp::message::{Snapshot, StreamAsk, StreamEnd, StreamOptions, StreamTotals};
use crate::dcp::rollback::Position;
use collections::Living;

/// How far a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The store is to be asked.
    NeedsStore,
    /// Rows of the store come.
    Store,
    /// The log is followed.
    Memory,
    /// The peer is to be asked for a state.
    Asking(VbState),
    /// The peer is to answer to a state.
    Asked(VbState),
    /// The peer is pending; the vBucket is to become dead here.
    HandOver,
    /// This is to be told.
    Ending(StreamEnd),
    /// All was told.
    Over,
}

/// A snapshot of rows in any order: how far it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OutOfOrder {
    No,
    /// Its begin is to be told.
    Begins,
    Open,
    /// Its end is to be told.
    Ends,
}

/// The part of a view that has every version, where one that has not comes before it: both have
/// the same range, and a marker each.
pub(super) struct HistoryPart {
    /// Where it begins.
    pub(super) from: Seqno,
    /// What announces it.
    pub(super) marker: Snapshot,
    /// It was announced before this change, which was found and is yet to be given.
    pub(super) awaiting: Option<Seqno>,
}

/// A stream that was opened.
pub struct Opened {
    /// Has its cursor, unless it begins in the store.
    pub stream: Stream,
    /// What a cursor of the same name held before.
    pub garbage: Garbage,
}

/// A stream of changes. Pulled: [`Stream::next_event`] while there is something, then
/// [`Stream::fill`] under the vBucket's lock.
///
/// Cost: 192 bytes, since there are many that have nothing to do; what it holds are references to segments of the log, or one chunk
/// of rows.
pub struct Stream {
    pub(super) options: StreamOptions,
    pub(super) filter: StreamFilter,
    /// How the stream ends once the change that was given is sent: its filter came to an end.
    pub(super) ends: Option<StreamEnd>,
    /// Which of the store's rows mean something, if some may not.
    pub(super) living: Option<Box<Living>>,
    pub(super) end: Seqno,
    /// Where the snapshot began in which the peer stood: so does the first one announced.
    /// Then [`ANNOUNCED`].
    pub(super) asked_start: Seqno,
    /// Everything up to here was sent, or needed not to be.
    pub(super) read: Seqno,
    /// The last change that was sent.
    pub(super) sent: Seqno,
    /// End of the snapshot announced last.
    pub(super) announced: Seqno,
    /// End of the store's view that is being read.
    pub(super) view_end: Seqno,
    /// The purge seqno of which the peer knows: what was purged up to there it does not miss.
    pub(super) known_purge: Seqno,
    /// The last seqno of what is held.
    pub(super) held_end: Seqno,
    pub(super) cursor: Option<CursorId>,
    pub(super) phase: Phase,
    /// The cursor was lost: another visit to the store must follow this one.
    pub(super) store_again: bool,
    /// The next snapshot begins a checkpoint.
    pub(super) checkpoint_next: bool,
    /// The takeover goes through its second half.
    pub(super) handed_over: bool,
    pub(super) unacknowledged_snapshots: u32,
    pub(super) snapshot: Option<Box<Snapshot>>,
    /// The peer is to be told that everything up to here was sent; zero for nothing.
    pub(super) advanced: Seqno,
    pub(super) held: Option<Box<Held>>,
    /// Changes that follow the store's rows within the same snapshot.
    pub(super) joined: Option<Box<CursorBatch>>,
    /// Whether the store's rows come as a snapshot in any order.
    pub(super) out_of_order: OutOfOrder,
    /// What of the store's rows is yet to be announced as history.
    pub(super) history: Option<Box<HistoryPart>>,
    pub(super) totals: StreamTotals,
}

impl std::fmt::Debug for Stream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stream")
            .field("phase", &self.phase)
            .field("read", &self.read)
            .field("announced", &self.announced)
            .finish_non_exhaustive()
    }
}

/// No snapshot begins so late: where one begins does not depend on the peer any more.
pub(super) const ANNOUNCED: Seqno = Seqno(u64::MAX);

impl Stream {
    /// A stream that stands where the peer does, without a cursor.
    pub(super) fn new(ask: &StreamAsk) -> Self {
        let Position {
            seqno, snapshot, ..
        } = ask.position;
        let asked_start = if seqno == snapshot.end {
            seqno
        } else {
            snapshot.start
        };
        let skip_deletes = ask.options.skip_deletes && seqno == Seqno::ZERO;
        Self {
            options: StreamOptions {
                skip_deletes,
                ..ask.options
            },
            filter: if ask.options.told_of_advances {
                StreamFilter::All
            } else {
                StreamFilter::DefaultOnly
            },
            ends: None,
            living: None,
            end: ask.end,
            asked_start,
            read: seqno,
            sent: seqno,
            announced: Seqno::ZERO,
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
