//! Stream cursors: readers that come and go, each at its own pace.

use std::num::NonZeroU64;
use std::sync::Arc;

use model::{Document, Seqno, SnapshotRange};

use super::segment::{HINT_MAX, Piece, SLOTS_MIN};
use super::{CheckpointKind, CheckpointLog, FlushBudget, Garbage};
use crate::collections::EventGroup;

/// A reader that wants no more changes than this gets copies of the slots: the tail goes on
/// taking changes, and de-duplicating them.
const COPIED_MAX: u64 = 32;

/// Names a cursor of one vBucket; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CursorId(NonZeroU64);

/// Where a reader stands.
#[derive(Debug)]
pub(super) struct Cursor {
    pub(super) id: CursorId,
    pub(super) name: Box<str>,
    /// The next change it will get.
    pub(super) position: u64,
    /// Number and end of the snapshot that was announced to it last.
    announced: (u64, Seqno),
    /// Checkpoint of the last change it got, zero for none.
    pub(super) checkpoint: u64,
    /// It got everything up to here, or it is not in memory.
    pub(super) last: Seqno,
    droppable: bool,
}

/// What the changes in memory cost, and what could be done about it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CheckpointPressure {
    /// Bytes that only the log holds: slots, segments, and documents that the table replaced or
    /// evicted since. What every reader has passed is not among them: it leaves at once.
    pub bytes: usize,
    /// Those of them that only a flush frees.
    pub undurable_bytes: usize,
    /// Of the cursors that may be dropped, the one that stands furthest behind persistence, and
    /// the bytes from there to persistence: what dropping it frees unless others stand there too.
    pub slowest: Option<(CursorId, usize)>,
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
    /// Whoever wants to go on registers again after the last change it got.
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
    pieces: Vec<Piece>,
    #[expect(dead_code, reason = "freed with the batch, outside of the lock")]
    garbage: Garbage,
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

impl CheckpointLog {
    fn cursor_index(&self, id: CursorId) -> Option<usize> {
        self.cursors.iter().position(|cursor| cursor.id == id)
    }

    /// Seats a reader after `after`, or at the oldest change in memory if that is later.
    pub(crate) fn register(&mut self, name: &str, after: Seqno) -> Registered {
        let id = CursorId(NonZeroU64::MIN.saturating_add(self.cursors_made));
        self.cursors_made += 1;
        let position = self.position_after(after).max(self.lowest);
        let gap = (after.next() < self.held_from).then(|| SnapshotRange {
            start: after.next(),
            end: Seqno(self.held_from.0 - 1),
        });
        let replaced = self.cursors.iter().position(|cursor| &*cursor.name == name);
        if self.cursors.len() == self.cursors.capacity() {
            // Many streams of many vBuckets: not twice as much as is needed.
            self.cursors.reserve_exact(1 + self.cursors.len() / 8);
        }
        self.cursors.push(Cursor {
            id,
            name: name.into(),
            position,
            announced: (0, Seqno::ZERO),
            checkpoint: 0,
            last: gap.map_or(after, |gap| gap.end).min(self.open.last),
            droppable: true,
        });
        // Only now: nothing that the new one needs may go with the old one.
        let garbage = replaced.map_or_else(Garbage::default, |index| self.remove_at(index));
        Registered {
            cursor: id,
            gap,
            garbage,
        }
    }

    /// Position of the first change after `after` that is held.
    fn position_after(&self, after: Seqno) -> u64 {
        if self.tail.first().is_some_and(|first| first.seqno <= after) {
            let index = self.tail.partition_point(|slot| slot.seqno <= after);
            return self.tail_facts.first_position + index as u64;
        }
        let begun = self
            .sealed
            .partition_point(|sealed| sealed.first_seqno <= after);
        let Some(sealed) = begun.checked_sub(1).map(|index| &self.sealed[index]) else {
            let first = self.sealed.front().map(|sealed| sealed.facts);
            return first.unwrap_or(self.tail_facts).first_position;
        };
        let index = sealed.slots.partition_point(|slot| slot.seqno <= after);
        sealed.facts.first_position + index as u64
    }

    fn remove_at(&mut self, index: usize) -> Garbage {
        self.cursors.swap_remove(index);
        if self.cursors.is_empty() {
            self.cursors = Vec::new();
        }
        self.settle()
    }

    /// Ends a cursor. What only it held is detached.
    pub(crate) fn remove(&mut self, id: CursorId) -> Garbage {
        self.cursor_index(id)
            .map_or_else(Garbage::default, |index| self.remove_at(index))
    }

    /// Ends the cursor of a stream that can go on from the store.
    pub(crate) fn drop_cursor(&mut self, id: CursorId) -> Garbage {
        let index = self.cursor_index(id);
        let Some(index) = index.filter(|&index| self.cursors[index].droppable) else {
            return Garbage::default();
        };
        self.cursors_dropped += 1;
        self.remove_at(index)
    }

    pub(crate) fn set_droppable(&mut self, id: CursorId, droppable: bool) {
        if let Some(index) = self.cursor_index(id) {
            self.cursors[index].droppable = droppable;
        }
    }

    /// What could be freed, and how.
    ///
    /// Cost: O(cursors + segments held).
    pub(crate) fn pressure(&self) -> CheckpointPressure {
        let behind = self
            .cursors
            .iter()
            .filter(|cursor| cursor.droppable && cursor.position < self.persisted);
        let slowest = behind.min_by_key(|cursor| cursor.position).map(|cursor| {
            let pinned = self.bytes_between(cursor.position, self.persisted);
            (cursor.id, pinned)
        });
        CheckpointPressure {
            bytes: self.memory_bytes(),
            undurable_bytes: self.bytes_between(self.persisted, u64::MAX),
            slowest: slowest.filter(|&(_, pinned)| pinned > 0),
        }
    }

    /// A cursor moved or left: detaches what nobody needs any more.
    ///
    /// Cost: O(cursors); and see [`CheckpointLog::release`].
    pub(super) fn settle(&mut self) -> Garbage {
        let positions = self.cursors.iter().map(|cursor| cursor.position);
        let lowest = positions.fold(self.persisted, u64::min);
        if lowest == self.lowest {
            return Garbage::default();
        }
        self.lowest = lowest;
        let (garbage, released) = self.release();
        self.removed += released;
        garbage
    }

    /// Changes that the cursor has still to get, at most.
    pub(crate) fn behind(&self, id: CursorId) -> Option<u64> {
        let cursor = &self.cursors[self.cursor_index(id)?];
        Some(self.next_position() - cursor.position)
    }

    /// Moves a cursor over changes of one run, and hands them out.
    ///
    /// Cost: O(segments taken + cursors).
    pub(crate) fn take(&mut self, id: CursorId, budget: FlushBudget) -> CursorRead {
        let Some(index) = self.cursor_index(id) else {
            return CursorRead::Dropped;
        };
        let position = self.cursors[index].position;
        if position >= self.next_position() {
            return CursorRead::Nothing;
        }
        let end = self.run_end(position);
        let (pieces, end_position) = self.pieces(position, end, budget);
        let run = *self.run(self.run_at(position));
        let last = pieces.last().and_then(|piece| piece.slots().last());
        let last = last.map_or(run.last, |slot| slot.seqno);
        let first = pieces.first().and_then(Piece::first_seqno);
        let start = if position <= run.first_position {
            run.range.start
        } else {
            first.unwrap_or(run.range.start)
        };
        let prepared = run
            .high_prepared
            .max(run.announced_prepared.unwrap_or_default());
        let more = end_position < self.next_position();
        let cursor = &mut self.cursors[index];
        let batch = CursorBatch {
            snapshot: SnapshotRange {
                start,
                end: run.range.end,
            },
            new_snapshot: cursor.announced != (run.snapshot, run.range.end),
            new_checkpoint: cursor.checkpoint != run.checkpoint,
            checkpoint_kind: run.kind,
            historical: run.historical,
            visible_end: run.visible_end,
            high_completed: Some(run.high_completed).filter(|&seqno| seqno > Seqno::ZERO),
            high_prepared: Some(prepared).filter(|&seqno| seqno > Seqno::ZERO),
            last,
            more,
            pieces,
            garbage: Garbage::default(),
        };
        cursor.position = end_position;
        cursor.announced = (run.snapshot, run.range.end);
        cursor.checkpoint = run.checkpoint;
        cursor.last = last;
        let garbage = self.settle();
        CursorRead::Changes(CursorBatch { garbage, ..batch })
    }

    /// Where the run ends that has `position`. The open one is ended first, unless what is wanted
    /// of it is so short that it will be copied.
    fn run_end(&mut self, position: u64) -> u64 {
        let next = self.next_position();
        let in_tail = position >= self.tail_facts.first_position;
        if position >= self.open.first_position && !(in_tail && next - position <= COPIED_MAX) {
            self.cut();
        }
        let index = self.run_at(position);
        if index == self.closed.len() {
            return next;
        }
        self.run(index + 1).first_position
    }

    /// Parts of segments from `position` on, up to `end` or the end of the budget.
    fn pieces(&mut self, position: u64, end: u64, budget: FlushBudget) -> (Vec<Piece>, u64) {
        let mut pieces = Vec::new();
        let mut at = position;
        let (mut items, mut bytes) = (0, 0);
        let budget = FlushBudget {
            items: budget.items.max(1),
            bytes: budget.bytes.max(1),
        };
        // Most readers stand at the end.
        let in_tail = position >= self.tail_facts.first_position;
        let mut next = if in_tail {
            self.sealed.len()
        } else {
            self.sealed
                .partition_point(|sealed| sealed.end_position <= position)
        };
        while at < end && items < budget.items && bytes < budget.bytes {
            if next == self.sealed.len() {
                let begin = self.tail_facts.first_position;
                at = at.max(begin);
                if at >= end {
                    break;
                }
                if end - at <= COPIED_MAX {
                    let range = usize::try_from(at - begin).unwrap_or(0)
                        ..usize::try_from(end - begin).unwrap_or(0);
                    let copy = self.tail[range].to_vec();
                    let count = copy.len();
                    pieces.push(Piece::new(Arc::new(copy), 0, count));
                    return (pieces, end);
                }
                self.cut();
                self.tail_hint = self.tail.len().clamp(SLOTS_MIN, HINT_MAX);
                self.seal_tail();
            }
            let sealed = &self.sealed[next];
            let begin = sealed.facts.first_position;
            at = at.max(begin);
            if at >= end {
                break;
            }
            let from = usize::try_from(at - begin).unwrap_or(0);
            let to = usize::try_from(end.min(sealed.end_position) - begin).unwrap_or(0);
            let left = FlushBudget {
                items: budget.items - items,
                bytes: budget.bytes - bytes,
            };
            let slots = &sealed.slots[from..to];
            let count = left.fitting(slots, &sealed.facts);
            let shared = sealed.end_position > self.open.first_position;
            items = items.saturating_add(count);
            let bytes_each = sealed.facts.live_bytes / sealed.facts.live.max(1);
            bytes = bytes.saturating_add(bytes_each.saturating_mul(count));
            pieces.push(sealed.piece(from, from + count));
            at = begin + (from + count) as u64;
            next += 1;
            // A part ends the batch: what is left of the segment comes before the next one.
            let part = count < slots.len();
            if shared {
                self.cut();
            }
            if part {
                break;
            }
        }
        (pieces, at)
    }
}
