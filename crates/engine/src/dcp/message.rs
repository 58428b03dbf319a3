//! What is asked of a stream, and what it has to say.

use model::{Document, Seqno, SnapshotRange, VbState};

use super::rollback::{Position, RollbackRules};
use crate::checkpoint::CursorId;

/// What a consumer asks for.
#[derive(Clone, Copy, Debug)]
pub struct StreamAsk {
    /// Where it stands.
    pub position: Position,
    /// The last seqno that it wants.
    pub end: Seqno,
    /// How it wants it.
    pub options: StreamOptions,
}

/// How a stream behaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag or an agreement of the protocol"
)]
pub struct StreamOptions {
    /// The vBucket is handed over at the end.
    pub takeover: bool,
    /// Only what is in the store.
    pub disk_only: bool,
    /// Until the seqno that is the highest one now.
    pub to_latest: bool,
    /// From the seqno that is the highest one now.
    pub from_latest: bool,
    /// Only of an active vBucket.
    pub active_only: bool,
    /// A peer that has nothing is not told of deletions while its first rows come from the store.
    pub skip_deletes: bool,
    /// How rollback is decided.
    pub rules: RollbackRules,
    /// The peer is told of prepares and aborts.
    pub sync_writes: bool,
    /// The peer is told when the last seqno of a snapshot has nothing for it.
    pub told_of_advances: bool,
    /// The peer takes rows of the store in any order.
    pub out_of_order: Option<Advances>,
    /// The peer wants every version where they are kept, and is told where that is so.
    pub change_streams: bool,
}

/// Whether a peer is told up to where an unordered snapshot reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advances {
    /// Before its end, where no change says so.
    Told,
    /// It takes the highest seqno that it got.
    Untold,
}

/// Why there is no stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRefusal {
    /// The peer must go back first.
    Rollback(Seqno),
    /// The vBucket is in no state for it.
    NotMyVbucket,
    /// The seqnos make no sense.
    OutOfRange,
}

/// Why a stream ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// Everything that was asked for was sent.
    Finished,
    /// The peer closed it.
    Closed,
    /// The vBucket has another state, or is gone.
    StateChanged,
    /// The store could not be read.
    BackfillFailed,
    /// The peer must ask again, and will have to roll back.
    Rollback,
    /// The collections that the stream is about were dropped.
    FilterEmpty,
    /// The peer may not see what the stream is about any more.
    LostPrivileges,
}

/// What to announce before the changes of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// Seqnos of the snapshot; the start may be lower than its first change.
    pub range: SnapshotRange,
    /// Whether it comes from a store.
    pub disk: bool,
    /// Whether the peer should begin a checkpoint.
    pub checkpoint: bool,
    /// Whether the peer should answer.
    pub acknowledge: bool,
    /// The newest change in it that clients may see.
    pub visible_end: Seqno,
    /// The newest prepare that was completed; disk snapshots only.
    pub high_completed: Option<Seqno>,
    /// The newest prepare; disk snapshots only.
    pub high_prepared: Option<Seqno>,
    /// Tombstones up to here may be gone.
    pub purge_seqno: Seqno,
    /// Which versions of documents are in it, as far as the peer wants to know.
    pub versions: Versions,
}

/// Which versions of documents a snapshot has, where their collections keep history.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Versions {
    /// The newest ones.
    #[default]
    Newest,
    /// All of them; each key once at most all the same.
    Single,
    /// All of them, so that keys come again.
    Repeated,
}

/// The next thing to be sent.
#[derive(Debug)]
pub enum Event<'a> {
    /// A snapshot begins.
    Snapshot(Snapshot),
    /// A change.
    Change(&'a Document),
    /// Everything up to here was sent, though the last seqno had nothing for the peer.
    Advanced(Seqno),
    /// Changes come in any order until the snapshot ends.
    OutOfOrder {
        /// It begins; else it ends.
        begins: bool,
    },
    /// The peer should put its vBucket into this state, and answer.
    State(VbState),
    /// The stream is over.
    End(StreamEnd),
}

/// What came of looking for more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filled {
    /// [`Stream::next_event`] has something, or looking again may find something.
    Ready,
    /// The same, and that is all: looking again finds nothing until the vBucket changes.
    Latest,
    /// Nothing until the vBucket changes, or the peer answers.
    Idle,
    /// These are to be read from the store; [`Stream::backfill_opened`] and so on follow.
    Backfill(SnapshotRange),
    /// The peer took over: the vBucket is to become dead here, then look again.
    HandOver,
}

impl Filled {
    /// What was taken from the log, whether or not something was left there.
    pub(super) fn taken(left: bool) -> Self {
        if left { Self::Ready } else { Self::Latest }
    }
}

/// A view of the store from which the stream goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreView {
    /// Its last seqno.
    pub high: Seqno,
    /// The last one that is neither a prepare nor an abort.
    pub visible_end: Seqno,
    /// Tombstones up to here may be missing.
    pub purge_seqno: Seqno,
    /// The snapshot to which `high` belongs: where it reaches further, the view is not
    /// consistent by itself.
    pub snapshot: SnapshotRange,
    /// Every prepare up to here was committed or given up.
    pub high_completed: Seqno,
    /// The newest prepare up to which the node counted itself.
    pub high_prepared: Seqno,
    /// Its rows come ordered by key; what changed lately comes after them, by seqno.
    pub by_key: bool,
    /// From here on rows of replaced versions are among the others. `None` where there are none, or
    /// none were asked for.
    pub history_from: Option<Seqno>,
}

/// Totals of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StreamTotals {
    /// Changes sent that came from the store.
    pub from_store: u64,
    /// Changes sent that came from memory.
    pub from_memory: u64,
}

/// How a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StreamFigures {
    /// The name of its phase.
    pub state: &'static str,
    /// Everything up to here was sent, or needed not to be.
    pub read: Seqno,
    /// The last change that was sent.
    pub sent: Seqno,
    /// End of the snapshot announced last.
    pub snapshot_end: Seqno,
    /// The last seqno that is wanted.
    pub end: Seqno,
    /// Its cursor.
    pub cursor: Option<CursorId>,
    /// What was sent.
    pub totals: StreamTotals,
}
