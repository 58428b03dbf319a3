//! A cursor of the log, and the changes that it reads.

use std::num::NonZeroU64;
use std::sync::Arc;

use model::{Document, Seqno, SnapshotRange};

use super::batch::Garbage;
use super::run::CheckpointKind;
use super::segment::SegmentPart;
use collections::EventGroup;

/// Identifies a cursor of one vBucket; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CursorId(pub(super) NonZeroU64);

/// A cursor: the position of one reader.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) id: CursorId,
    pub(super) name: Box<str>,
    /// Position of the next change to read.
    pub(super) position: u64,
    /// Number and end of the snapshot that was announced to the reader last.
    pub(super) announced: (u64, Seqno),
    /// Checkpoint of the last change read; zero for none.
    pub(super) checkpoint: u64,
    /// The reader has all changes up to this seqno, or they are not in memory.
    pub(super) last: Seqno,
}

/// Memory used by the log, and the ways to free some of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointPressure {
    /// Bytes that only the log holds: slots, segments, and documents that the table has replaced or
    /// evicted. Changes that every reader has passed are not included: they leave at once.
    pub bytes: usize,
    /// Part of `bytes` that only a flush frees.
    pub undurable_bytes: usize,
    /// The cursor that is furthest behind persistence.
    pub slowest: Option<SlowestCursor>,
}

/// A cursor that keeps changes in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlowestCursor {
    /// The cursor.
    pub cursor: CursorId,
    /// Bytes between the cursor and persistence: dropping the cursor frees them unless another
    /// cursor pins them too.
    pub pinned_bytes: usize,
}

/// Result of [`VBucket::register_cursor`](crate::VBucket::register_cursor).
#[derive(Debug)]
pub struct Registered {
    /// The cursor.
    pub cursor: CursorId,
    /// Seqnos between the requested one and the cursor that have left memory, both ends included:
    /// to be read from the store first. `None` if memory has everything.
    pub gap: Option<SnapshotRange>,
    /// Garbage of an older cursor with the same name.
    pub garbage: Garbage,
}

/// Result of [`VBucket::take_from`](crate::VBucket::take_from).
#[derive(Debug)]
pub enum CursorRead {
    /// The cursor is at the end of the log.
    Nothing,
    /// The cursor was dropped, to free memory or by a reset of the vBucket. To continue, a reader
    /// registers again after its last change.
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
    /// Range to announce. `end` is the end of the snapshot; the batch may stop before it. On a
    /// replica, the range is the one that the active node announced, and the rest may not have
    /// arrived yet.
    pub snapshot: SnapshotRange,
    /// Whether `snapshot` or a part of it was not announced to this cursor yet.
    pub new_snapshot: bool,
    /// Whether this is the cursor's first batch of this checkpoint.
    pub new_checkpoint: bool,
    /// Kind of the checkpoint.
    pub checkpoint_kind: CheckpointKind,
    /// Whether the checkpoint has every change of the collections with history.
    pub historical: bool,
    /// Last seqno in or before the snapshot that is visible to clients.
    pub visible_end: Seqno,
    /// Last committed or aborted prepare in or before the snapshot.
    pub high_completed: Option<Seqno>,
    /// Last prepare in or before the snapshot.
    pub high_prepared: Option<Seqno>,
    /// Seqno of the last change, replaced or not: the new position of the cursor.
    pub last: Seqno,
    /// Whether the log has more changes for this cursor.
    pub more: bool,
    pub(super) pieces: Vec<SegmentPart>,
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
    /// Returns the group of events whose marker is at the place to which [`CursorBatch::next`]
    /// moved `place`.
    pub(crate) fn group(&self, place: BatchPlace) -> Option<&Arc<EventGroup>> {
        self.pieces.get(place.piece as usize)?.group.as_ref()
    }

    /// Returns the changes; a group of events is one change. Changes that were replaced before the
    /// batch was taken are left out.
    pub fn documents(&self) -> impl Iterator<Item = &Document> {
        let slots = self.pieces.iter().flat_map(SegmentPart::slots);
        slots.filter_map(|slot| slot.document.as_ref())
    }

    /// Returns the change at `place` or the first one after it, and moves `place` past it. `None`
    /// at the end.
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

/// Statistics of a cursor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CursorStats {
    /// The cursor.
    pub cursor: CursorId,
    /// Name under which it was registered.
    pub name: Box<str>,
    /// Checkpoint of the last change read; zero for none.
    pub checkpoint: u64,
    /// The reader has all changes up to this seqno.
    pub seqno: Seqno,
    /// Maximum number of changes that are still to be read.
    pub behind: u64,
    /// Bytes that only this cursor, not persistence, keeps in memory.
    pub pinned_bytes: usize,
}
