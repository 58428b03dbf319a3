//! Cursors of streams: they come and go, and each reads at its own pace.

use std::num::NonZeroU64;
use std::sync::Arc;

use model::{Seqno, SnapshotRange};

use super::cursor::{
    CheckpointPressure, Cursor, CursorBatch, CursorId, CursorRead, CursorStats, Registered,
    SlowestCursor,
};
use super::segment::{HINT_MAX, SLOTS_MIN, SegmentPart};
use super::{CheckpointLog, FlushBudget, Garbage};

/// Maximum number of changes that a reader gets as copies of slots. The tail stays open then: it
/// goes on taking and de-duplicating changes.
const COPIED_MAX: u64 = 32;

impl CheckpointLog {
    fn cursor_index(&self, id: CursorId) -> Option<usize> {
        self.cursors.iter().position(|cursor| cursor.id == id)
    }

    /// Registers a cursor after `after`, or at the oldest change in memory if that is later.
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
            // There are many streams of many vBuckets: do not double the capacity.
            self.cursors.reserve_exact(1 + self.cursors.len() / 8);
        }
        self.cursors.push(Cursor {
            id,
            name: name.into(),
            position,
            announced: (0, Seqno::ZERO),
            checkpoint: 0,
            last: gap.map_or(after, |gap| gap.end).min(self.open.last),
        });
        // Remove the old cursor last, so that nothing is freed that the new one needs.
        let garbage = replaced.map_or_else(Garbage::default, |index| self.remove_at(index));
        Registered {
            cursor: id,
            gap,
            garbage,
        }
    }

    /// Position of the first held change after `after`.
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

    /// Removes a cursor. Detaches the changes that only it pinned.
    pub(crate) fn remove(&mut self, id: CursorId) -> Garbage {
        self.cursor_index(id)
            .map_or_else(Garbage::default, |index| self.remove_at(index))
    }

    /// Drops the cursor of a stream that can continue from the store, to free memory.
    pub(crate) fn drop_cursor(&mut self, id: CursorId) -> Garbage {
        let before = self.cursors.len();
        let garbage = self.remove(id);
        self.cursors_dropped += (before - self.cursors.len()) as u64;
        garbage
    }

    /// Returns the memory that could be freed, and the ways to free it.
    ///
    /// Cost: O(cursors + segments held).
    pub(crate) fn pressure(&self) -> CheckpointPressure {
        let cursors = self.cursors.iter();
        let behind = cursors.filter(|cursor| cursor.position < self.persisted);
        let slowest = behind.min_by_key(|cursor| cursor.position);
        let slowest = slowest.map(|slowest| SlowestCursor {
            cursor: slowest.id,
            pinned_bytes: self.bytes_between(slowest.position, self.persisted),
        });
        CheckpointPressure {
            bytes: self.memory_bytes(),
            undurable_bytes: self.bytes_between(self.persisted, u64::MAX),
            slowest: slowest.filter(|slowest| slowest.pinned_bytes > 0),
        }
    }

    /// Detaches changes that no reader needs any more, after a cursor moved or was removed.
    ///
    /// Cost: O(cursors), and see [`CheckpointLog::release`].
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

    /// Statistics of every stream cursor.
    pub(crate) fn cursor_stats(&self) -> impl Iterator<Item = CursorStats> {
        self.cursors.iter().map(|cursor| CursorStats {
            cursor: cursor.id,
            name: cursor.name.clone(),
            checkpoint: cursor.checkpoint,
            seqno: cursor.last,
            behind: self.next_position() - cursor.position,
            pinned_bytes: self.bytes_between(cursor.position, self.persisted),
        })
    }

    /// Takes changes of one run, and moves the cursor past them.
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
        let first = pieces.first().and_then(SegmentPart::first_seqno);
        let start = if position <= run.first_position {
            run.range.start
        } else {
            first.unwrap_or(run.range.start)
        };
        let announced = run.announced_prepared.unwrap_or_default();
        let prepared = run.prepares.prepared.max(announced);
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
            high_completed: Some(run.prepares.completed).filter(|&seqno| seqno > Seqno::ZERO),
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

    /// Returns the end of the run at `position`. Ends the open run first, unless the wanted part is
    /// so short that it will be copied.
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

    /// Returns parts of segments from `position` on, up to `end` or the end of the budget.
    fn pieces(&mut self, position: u64, end: u64, budget: FlushBudget) -> (Vec<SegmentPart>, u64) {
        let mut pieces = Vec::new();
        let mut at = position;
        let (mut items, mut bytes) = (0, 0);
        let budget = FlushBudget {
            items: budget.items.max(1),
            bytes: budget.bytes.max(1),
        };
        // Most cursors are at the end.
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
                    pieces.push(SegmentPart::new(Arc::new(copy), 0, count));
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
            // A part of a segment ends the batch: the rest of the segment comes before the next
            // one.
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
