//! Requests to a stream, and the events that it produces.

use model::{Document, Seqno, SnapshotRange, VbState};

use super::rollback::{ClaimedPosition, RollbackRules};
use crate::checkpoint::CursorId;

/// A consumer's stream request.
#[derive(Clone, Copy, Debug)]
pub struct StreamAsk {
    /// Position of the consumer.
    pub position: ClaimedPosition,
    /// Last seqno wanted.
    pub end: Seqno,
    /// Options of the stream.
    pub options: StreamOptions,
}

/// Options of a stream: flags of the request and features agreed for the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag or an agreement of the protocol"
)]
pub struct StreamOptions {
    /// The vBucket is handed over to the peer at the end.
    pub takeover: bool,
    /// Only changes that are in the store.
    pub disk_only: bool,
    /// Ends at the highest seqno at the time of the request.
    pub to_latest: bool,
    /// Starts at the highest seqno at the time of the request.
    pub from_latest: bool,
    /// Only if the vBucket is active.
    pub active_only: bool,
    /// No deletions in the initial backfill of a peer that starts at seqno 0.
    pub skip_deletes: bool,
    /// Rules for the rollback decision.
    pub rules: RollbackRules,
    /// The peer gets prepares and aborts.
    pub sync_writes: bool,
    /// The peer gets `SeqnoAdvanced` if the filter leaves out the last seqno of a snapshot.
    pub wants_advances: bool,
    /// The peer accepts rows of the store out of seqno order.
    pub out_of_order: Option<Advances>,
    /// The peer wants all versions in collections with history, and markers that announce them.
    pub change_streams: bool,
}

/// Whether the peer gets the last seqno of an out-of-order snapshot as an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advances {
    /// The seqno is sent before the end of the snapshot, unless the last change has it.
    Told,
    /// The seqno is not sent; the peer uses the highest seqno that it received.
    Untold,
}

/// Reason for which a stream was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRefusal {
    /// The peer must roll back to this seqno first.
    Rollback(Seqno),
    /// The vBucket's state does not allow the stream.
    NotMyVbucket,
    /// The requested seqnos are inconsistent.
    OutOfRange,
}

/// Reason for which a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// All requested changes were sent.
    Finished,
    /// The peer closed the stream.
    Closed,
    /// The vBucket changed its state or was deleted.
    StateChanged,
    /// The backfill from the store failed.
    BackfillFailed,
    /// The peer must request the stream again, and will have to roll back.
    Rollback,
    /// The collections of the filter were dropped.
    FilterEmpty,
    /// The peer lost the privilege to read what the stream sends.
    LostPrivileges,
}

/// A snapshot marker, sent before the changes of the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Seqno range; its start may be lower than the first change.
    pub range: SnapshotRange,
    /// Whether the changes come from a store.
    pub disk: bool,
    /// Whether the peer should begin a checkpoint.
    pub checkpoint: bool,
    /// Whether the peer should acknowledge the snapshot.
    pub acknowledge: bool,
    /// Last seqno in the snapshot that is visible to clients.
    pub visible_end: Seqno,
    /// Last completed prepare; disk snapshots only.
    pub high_completed: Option<Seqno>,
    /// Last prepare; disk snapshots only.
    pub high_prepared: Option<Seqno>,
    /// Purge seqno: tombstones up to it may be missing.
    pub purge_seqno: Seqno,
    /// Versions of documents in the snapshot, as far as the peer asked for them.
    pub versions: Versions,
}

/// Versions of documents in a snapshot, in collections with history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// Only the newest version of each key.
    #[default]
    Newest,
    /// All versions; each key occurs at most once.
    Single,
    /// All versions; keys may occur several times.
    Repeated,
}

/// The next event to be sent.
#[derive(Debug)]
pub enum Event<'a> {
    /// A snapshot begins.
    Snapshot(Snapshot),
    /// A change.
    Change(&'a Document),
    /// All changes up to this seqno were sent; the filter left out the last one.
    Advanced(Seqno),
    /// Start or end of an out-of-order snapshot.
    OutOfOrder {
        /// True at its start, false at its end.
        begins: bool,
    },
    /// The peer should put its vBucket into this state, and answer.
    State(VbState),
    /// The stream ends.
    End(StreamEnd),
}

/// Result of [`Stream::fill`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FillResult {
    /// Call [`Stream::next_event`], or `fill` again.
    Ready,
    /// As `Ready`, and the log is read to its end: `fill` finds no more until the vBucket changes.
    Latest,
    /// Nothing to do until the vBucket changes or the peer answers.
    Idle,
    /// Read this range from the store, then call [`Stream::backfill_opened`] and the following
    /// functions.
    Backfill(SnapshotRange),
    /// The peer took over: make the vBucket dead here, then call `fill` again.
    HandOver,
}

impl FillResult {
    /// Returns the result for a batch from the log; `left` is whether the log has more.
    pub(super) fn taken(left: bool) -> Self {
        if left { Self::Ready } else { Self::Latest }
    }
}

/// A snapshot view of the store, from which the stream continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreView {
    /// Last seqno of the view.
    pub high: Seqno,
    /// Last seqno that is neither a prepare nor an abort.
    pub visible_end: Seqno,
    /// Purge seqno: tombstones up to it may be missing.
    pub purge_seqno: Seqno,
    /// Snapshot that contains `high`. If it ends after `high`, the view alone is not consistent.
    pub snapshot: SnapshotRange,
    /// All prepares up to this seqno were committed or aborted.
    pub high_completed: Seqno,
    /// Last prepare that the node acknowledged.
    pub high_prepared: Seqno,
    /// Whether its rows are ordered by key; recent changes follow them, ordered by seqno.
    pub by_key: bool,
    /// First seqno from which replaced versions are included. `None` if there are none, or none
    /// were requested.
    pub history_from: Option<Seqno>,
}

/// Counters of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTotals {
    /// Changes sent from the store.
    pub from_store: u64,
    /// Changes sent from memory.
    pub from_memory: u64,
}

/// State of a stream, for statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFigures {
    /// Name of its phase.
    pub state: &'static str,
    /// All changes up to this seqno were sent or filtered out.
    pub read: Seqno,
    /// Seqno of the last change sent.
    pub sent: Seqno,
    /// End of the last announced snapshot.
    pub snapshot_end: Seqno,
    /// Last seqno wanted.
    pub end: Seqno,
    /// The stream's cursor.
    pub cursor: Option<CursorId>,
    /// Counters of sent changes.
    pub totals: StreamTotals,
}
