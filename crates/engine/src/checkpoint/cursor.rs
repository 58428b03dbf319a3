//! A reader of the log, and what it gets.

use std::num::NonZeroU64;
use std::sync::Arc;

use model::{Document, Seqno, SnapshotRange};

use super::batch::Garbage;
use super::run::CheckpointKind;
use super::segment::Piece;
use collections::EventGroup;

/// Names a cursor of one vBucket; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CursorId(pub(super) NonZeroU64);

/// Where a reader stands.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) id: CursorId,
    pub(super) name: Box<str>,
    /// The next change it will get.
    pub(super) position: u64,
    /// Number and end of the snapshot that was announced to it last.
    pub(super) announced: (u64, Seqno),
    /// Checkpoint of the last change it got, zero for none.
    pub(super) checkpoint: u64,
    /// It got everything up to here, or it is not in memory.
    pub(super) last: Seqno,
}

/// What the changes in memory cost, and what could be done about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointPressure {
    /// Bytes that only the log holds: slots, segments, and documents that the table replaced or
    /// evicted since. What every reader has passed is not among them: it leaves at once.
    pub bytes: usize,
    /// Those of them that only a flush frees.
    pub undurable_bytes: usize,
    /// The cursor that is furthest behind persistence.
    pub slowest: Option<SlowestCursor>,
}

/// A cursor that keeps changes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowestCursor {
    /// The cursor.
    pub cursor: CursorId,
    /// Bytes from there to persistence: what dropping it frees unless others are there too.
    pub pinned_bytes: usize,
}

/// Answer of [`VBucket::register_cursor`](crate::VBucket::register_cursor).
#[derive(Debug)]
pub struct Registered {
    /// The cursor.
    pub cursor: CursorId,
    /// What the log no longer holds between the seqno asked for and the cursor, both ends
    /// included: to be read from the store first. `None`: memory has it all.
    pub gap: Option<SnapshotRange>,
    /// What a cursor of the same name held until now.
    pub garbage: Garbage,
}

/// Answer of [`VBucket::take_from`](crate::VBucket::take_from).
#[derive(Debug)]
pub enum CursorRead {
    /// The cursor has everything.
    Nothing,
    /// There is no such cursor any more: what it held was needed, or the vBucket was reset.
    /// A reader that goes on registers again after the last change it got.
    Dropped,
    /// Changes of one snapshot.
    Changes(CursorBatch),
}

/// Changes of one snapshot, in ascending seqno order.
///
/// Cost: holds segments of the log by reference. Walk and drop it without the vBucket's lock.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is told of by itself")]
pub struct CursorBatch {
    /// What to announce: `end` is the snapshot's, and the batch may stop before it. On a replica
    /// it is what that one's own active announced, and what is missing may not have come yet.
    pub snapshot: SnapshotRange,
    /// Whether `snapshot` was not announced to this cursor yet, in whole or in part.
    pub new_snapshot: bool,
    /// Whether this is the cursor's first batch of this checkpoint.
    pub new_checkpoint: bool,
    /// Kind of the checkpoint.
    pub checkpoint_kind: CheckpointKind,
    /// Whether no change of a collection with history is missing in the checkpoint.
    pub historical: bool,
    /// The newest change in or before the snapshot that clients may see.
    pub visible_end: Seqno,
    /// The newest prepare in or before the snapshot that was committed or aborted.
    pub high_completed: Option<Seqno>,
    /// The newest prepare in or before the snapshot.
    pub high_prepared: Option<Seqno>,
    /// Seqno of the last change, whether it was replaced or not: where the cursor stands now.
    pub last: Seqno,
    /// Whether there is more to take now.
    pub more: bool,
    pub(super) pieces: Vec<Piece>,
    #[expect(dead_code, reason = "freed with the batch, outside of the lock")]
    pub(super) garbage: Garbage,
}

/// Place of a change in a [`CursorBatch`], for a reader that stops in the middle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BatchPlace {
    piece: u32,
    slot: u32,
}

impl CursorBatch {
    /// The group that the change stands for to which [`CursorBatch::next`] moved `place`.
    pub(crate) fn group(&self, place: BatchPlace) -> Option<&Arc<EventGroup>> {
        self.pieces.get(place.piece as usize)?.group.as_ref()
    }

    /// The changes, a group of events as one. Those that were replaced before they were taken are not
    /// among them.
    pub fn documents(&self) -> impl Iterator<Item = &Document> {
        let slots = self.pieces.iter().flat_map(Piece::slots);
        slots.filter_map(|slot| slot.document.as_ref())
    }

    /// The change at `place` or the first one after it; moves `place` past it. `None` at the end.
    pub fn next(&self, place: &mut BatchPlace) -> Option<&Document> {
        while let Some(piece) = self.pieces.get(place.piece as usize) {
            let slots = piece.slots().get(place.slot as usize..).unwrap_or_default();
            for slot in slots {
                place.slot += 1;
                if slot.document.is_some() {
                    return slot.document.as_ref();
                }
            }
            *place = BatchPlace {
                piece: place.piece + 1,
                slot: 0,
            };
        }
        None
    }
}

/// Figures of a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorStats {
    /// The cursor.
    pub cursor: CursorId,
    /// Name under which it was registered.
    pub name: Box<str>,
    /// Checkpoint of the last change it got, zero for none.
    pub checkpoint: u64,
    /// It has everything up to here.
    pub seqno: Seqno,
    /// Changes it has still to get, at most.
    pub behind: u64,
    /// Bytes that it holds back and persistence does not.
    pub pinned_bytes: usize,
}
