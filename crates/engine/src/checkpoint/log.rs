//! The checkpoint log: changes in segments and runs.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use hashbrown::HashTable;
use model::{Document, Seqno};

use super::batch::{Garbage, Released};
use super::cursor::Cursor;
use super::run::{CheckpointKind, LogStart, Run};
use super::segment::{
    SEGMENT_BYTES_MIN, SLOTS_MAX, SLOTS_MIN, Sealed, SegmentCounts, Slot, Slots, home_of, index_of,
    slots_bytes,
};

/// The log of one vBucket. Allocates nothing while it is empty.
#[derive(Debug)]
pub(crate) struct CheckpointLog {
    pub(super) sealed: VecDeque<Sealed>,
    pub(super) tail: Slots,
    pub(super) tail_facts: SegmentCounts,
    /// Size of the tail's documents at which it is sealed, in bytes.
    pub(super) tail_bytes_max: usize,
    /// Slots of a new tail after a read: as many as the last read took.
    pub(super) tail_hint: usize,
    pub(super) closed: VecDeque<Run>,
    pub(super) open: Run,
    /// Bytes of the open checkpoint, without changes that were replaced in place.
    pub(super) open_bytes: usize,
    pub(super) bytes_max: usize,
    /// Hashes of the keys of prepares and aborts in the open checkpoint.
    pub(super) prepared_keys: Option<Box<HashTable<u64>>>,
    /// First seqno of the log: each change from here on is held, or was replaced by one that is.
    pub(super) held_from: Seqno,
    /// The persistence cursor: all changes before this position are durable.
    pub(super) persisted: u64,
    pub(super) cursors: Vec<Cursor>,
    pub(super) cursors_made: u64,
    pub(super) cursors_dropped: u64,
    /// The lowest position of all cursors.
    pub(super) lowest: u64,
    /// Position after the last commit of a prepare.
    pub(super) committed_to: u64,
    /// First seqno that is kept as history: history was switched off before it.
    pub(super) kept_from: Seqno,
    pub(super) failed_to: Seqno,
    pub(super) dirty_items: usize,
    pub(super) dirty_bytes: usize,
    pub(super) items: usize,
    pub(super) live_bytes: usize,
    pub(super) slot_bytes: usize,
    pub(super) stale_bytes: usize,
    pub(super) deduplicated: u64,
    pub(super) removed: Released,
    pub(super) expelled: Released,
}

/// Maximum number of slots at which a sealed segment shrinks to its length; moving more takes too
/// long.
const SHRUNK_MAX: usize = 256;

/// Segment that holds a slot.
#[derive(Clone, Copy, Debug)]
enum SlotSegment {
    Sealed(usize),
    Tail,
}

impl CheckpointLog {
    /// Creates a log whose first change will follow `origin.high`.
    pub(crate) fn new(origin: &LogStart, bytes_max: usize) -> Self {
        Self {
            sealed: VecDeque::new(),
            tail: Vec::new(),
            tail_facts: SegmentCounts::default(),
            tail_bytes_max: 0,
            tail_hint: SLOTS_MIN,
            closed: VecDeque::new(),
            open: Run::first(origin),
            open_bytes: 0,
            bytes_max,
            held_from: origin.high.next(),
            persisted: 0,
            cursors: Vec::new(),
            cursors_made: origin.cursors_made,
            cursors_dropped: 0,
            prepared_keys: None,
            lowest: 0,
            committed_to: 0,
            kept_from: Seqno::ZERO,
            failed_to: Seqno::ZERO,
            dirty_items: 0,
            dirty_bytes: 0,
            items: 0,
            live_bytes: 0,
            slot_bytes: 0,
            stale_bytes: 0,
            deduplicated: 0,
            removed: Released::default(),
            expelled: Released::default(),
        }
    }

    pub(super) fn make_room(&mut self) {
        if self.tail.len() < self.tail.capacity()
            && self.tail_facts.live_bytes < self.tail_bytes_max
        {
            return;
        }
        if !self.tail.is_empty() && self.tail_facts.live == 0 {
            // All its changes were replaced: no reader needs the segment.
            self.tail_facts.first_position = self.next_position();
            self.tail.clear();
            return;
        }
        // Segments grow with the held changes: so they are few and have little unused capacity.
        // After a read they begin small again, as another read may come soon.
        let grown = match self.tail.len() {
            0 => self.tail_hint,
            full => (self.items / 2).min(full * 2),
        };
        self.seal_tail();
        self.tail_bytes_max = SEGMENT_BYTES_MIN.max(self.live_bytes / 2);
        let fitting = self.tail_bytes_max * self.items.max(1) / self.live_bytes.max(1);
        let slots = grown.min(fitting);
        self.tail = Vec::with_capacity(slots.clamp(SLOTS_MIN, SLOTS_MAX));
        self.slot_bytes += slots_bytes(&self.tail);
    }

    pub(crate) fn next_position(&self) -> u64 {
        self.tail_facts.first_position + self.tail.len() as u64
    }

    pub(super) fn seal_tail(&mut self) {
        let next_position = self.next_position();
        let facts = mem::replace(
            &mut self.tail_facts,
            SegmentCounts {
                first_position: next_position,
                ..SegmentCounts::default()
            },
        );
        let mut slots = mem::take(&mut self.tail);
        let tail_bytes = slots_bytes(&slots);
        // Without another reader the flush frees the segment, so shrinking would be wasted.
        let stays = !self.cursors.is_empty();
        if stays && slots.len() <= SHRUNK_MAX && slots.len() < slots.capacity() / 2 {
            slots.shrink_to_fit();
        }
        if let Some(sealed) = Sealed::new(slots, facts) {
            self.slot_bytes = self.slot_bytes - tail_bytes + sealed.slot_bytes;
            self.sealed.push_back(sealed);
        }
    }

    /// Ends the open run, unless it is empty. Changes in it are not replaced in place any more.
    pub(super) fn cut(&mut self) {
        let position = self.next_position();
        if self.open.first_position < position {
            let next = self.open.next(position);
            let ended = mem::replace(&mut self.open, next);
            // A run that every reader has passed is not kept.
            if self.lowest < position {
                self.closed.push_back(ended);
            }
        }
    }

    /// Closes the open checkpoint and opens the next one, unless the open one never had a change.
    pub(crate) fn close_checkpoint(&mut self) {
        if self.open.checkpoint_start > self.open.last {
            return;
        }
        self.cut();
        self.open.checkpoint += 1;
        self.open.checkpoint_start = self.open.last.next();
        self.open_bytes = 0;
        self.prepared_keys = None;
    }

    /// The open run, which takes changes.
    #[inline]
    pub(crate) fn open(&self) -> &Run {
        &self.open
    }

    /// Sets whether changes of collections with history are kept. A checkpoint is historical as a
    /// whole, so a switch closes it.
    pub(crate) fn set_historical(&mut self, historical: bool) {
        if self.open.historical != historical {
            self.close_checkpoint();
            self.switch_history(historical);
        }
    }

    pub(super) fn switch_history(&mut self, historical: bool) {
        if self.open.historical && !historical {
            self.kept_from = self.open.last.next();
        }
        self.open.historical = historical;
    }

    fn find(&self, seqno: Seqno) -> Option<(SlotSegment, usize)> {
        if self.tail.first().is_some_and(|first| first.seqno <= seqno) {
            return Some((SlotSegment::Tail, index_of(&self.tail, seqno)?));
        }
        let segment = home_of(&self.sealed, seqno)?;
        Some((
            SlotSegment::Sealed(segment),
            index_of(&self.sealed[segment].slots, seqno)?,
        ))
    }

    fn facts_mut(&mut self, segment: SlotSegment) -> &mut SegmentCounts {
        match segment {
            SlotSegment::Tail => &mut self.tail_facts,
            SlotSegment::Sealed(index) => &mut self.sealed[index].facts,
        }
    }

    /// Replaces `old` in the log. Returns the seqno of the row that the new change supersedes.
    pub(super) fn replace(&mut self, old: &Document) -> Seqno {
        let Some((segment, index)) = self.find(old.seqno()) else {
            return old.seqno();
        };
        let position = self.facts_mut(segment).first_position + index as u64;
        if position < self.open.first_position || self.open.kind != CheckpointKind::Memory {
            self.mark_stale(segment, index, old);
            return old.seqno();
        }
        let slot = match segment {
            SlotSegment::Tail => &mut self.tail[index],
            SlotSegment::Sealed(segment) => {
                let slots = Arc::get_mut(&mut self.sealed[segment].slots);
                &mut slots.expect("nobody shares a segment that reaches into the open run")[index]
            }
        };
        let supersedes = slot.rows.superseded();
        if slot.document.take().is_some() {
            self.forget_replaced(segment, old.memory_bytes());
        }
        supersedes
    }

    fn forget_replaced(&mut self, segment: SlotSegment, bytes: usize) {
        let facts = self.facts_mut(segment);
        facts.live -= 1;
        facts.live_bytes -= bytes;
        let dead = facts.live == 0;
        self.open_bytes -= bytes;
        self.items -= 1;
        self.live_bytes -= bytes;
        self.dirty_items -= 1;
        self.dirty_bytes -= bytes;
        self.deduplicated += 1;
        if let (SlotSegment::Sealed(index), true) = (segment, dead) {
            self.drop_dead(index);
        }
    }

    /// Drops a segment whose changes were all replaced. So keys that change all the time do not
    /// fill memory while the store is stalled. Positions keep their numbers.
    fn drop_dead(&mut self, index: usize) {
        if let Some(dead) = self.sealed.remove(index) {
            self.slot_bytes -= dead.slot_bytes;
            self.open_bytes = self
                .open_bytes
                .saturating_sub(dead.slots.len() * size_of::<Slot>());
        }
    }

    fn mark_stale(&mut self, segment: SlotSegment, index: usize, old: &Document) {
        let slot = match segment {
            SlotSegment::Tail => &self.tail[index],
            SlotSegment::Sealed(segment) => &self.sealed[segment].slots[index],
        };
        if slot.document.as_ref().is_some_and(|held| held.same_as(old)) {
            self.facts_mut(segment).stale_bytes += old.memory_bytes();
            self.stale_bytes += old.memory_bytes();
        }
    }

    /// Records that the table dropped `old` without a change (its value was evicted).
    pub(crate) fn note_evicted(&mut self, old: &Document) {
        if let Some((segment, index)) = self.find(old.seqno()) {
            self.mark_stale(segment, index, old);
        }
    }

    /// Index of the closed run at `position`; the number of closed runs for the open one.
    pub(super) fn run_at(&self, position: u64) -> usize {
        if position >= self.open.first_position {
            return self.closed.len();
        }
        // Most cursors are at the end.
        if self
            .closed
            .back()
            .is_some_and(|last| last.first_position <= position)
        {
            return self.closed.len() - 1;
        }
        let begun = self
            .closed
            .partition_point(|run| run.first_position <= position);
        begun.saturating_sub(1)
    }

    pub(super) fn run(&self, index: usize) -> &Run {
        self.closed.get(index).unwrap_or(&self.open)
    }

    /// Removes the segments that end at or before `position`, and returns them.
    ///
    /// Cost: O(segments removed), or O(segments left) if these are fewer.
    fn detach(&mut self, position: u64) -> VecDeque<Sealed> {
        let passed = match self.sealed.back() {
            Some(last) if last.end_position <= position => self.sealed.len(),
            _ => self
                .sealed
                .partition_point(|sealed| sealed.end_position <= position),
        };
        let Some(last) = passed.checked_sub(1).map(|last| &self.sealed[last]) else {
            return VecDeque::new();
        };
        self.held_from = last.last_seqno.next();
        if passed <= self.sealed.len() / 2 {
            for sealed in self.sealed.range(..passed) {
                self.items -= sealed.facts.live;
                self.live_bytes -= sealed.facts.live_bytes;
                self.slot_bytes -= sealed.slot_bytes;
                self.stale_bytes -= sealed.facts.stale_bytes;
            }
            return self.sealed.drain(..passed).collect();
        }
        let left = self.sealed.split_off(passed);
        self.items = self.tail_facts.live;
        self.live_bytes = self.tail_facts.live_bytes;
        self.slot_bytes = slots_bytes(&self.tail);
        self.stale_bytes = self.tail_facts.stale_bytes;
        for sealed in &left {
            self.items += sealed.facts.live;
            self.live_bytes += sealed.facts.live_bytes;
            self.slot_bytes += sealed.slot_bytes;
            self.stale_bytes += sealed.facts.stale_bytes;
        }
        mem::replace(&mut self.sealed, left)
    }

    /// Detaches all segments that every cursor has passed.
    ///
    /// Cost: O(segments detached), independent of their length; plus O(log runs).
    pub(super) fn release(&mut self) -> (Garbage, Released) {
        let held = |log: &Self| (log.items, log.slot_bytes + log.stale_bytes);
        let (items, bytes) = held(self);
        let lowest = self.lowest;
        if self.tail_facts.first_position < lowest && self.next_position() == lowest {
            self.seal_tail();
        }
        let mut garbage = Garbage {
            segments: self.detach(lowest),
            ..Garbage::default()
        };
        if let Some(front) = self.sealed.front() {
            // The front segment has readers in its middle.
            let passed = lowest.saturating_sub(front.facts.first_position);
            let index = usize::try_from(passed).unwrap_or(0).checked_sub(1);
            if let Some(last) = index.and_then(|index| front.slots.get(index)) {
                self.held_from = last.seqno.next();
            }
        }
        let passed = self.run_at(lowest);
        self.closed.drain(..passed);
        self.shrink(&mut garbage);
        let (items_left, bytes_left) = held(self);
        let released = Released {
            items: items.saturating_sub(items_left) as u64,
            bytes: bytes.saturating_sub(bytes_left) as u64,
        };
        (garbage, released)
    }

    /// Detaches all segments that every cursor has passed, and counts them as expelled.
    pub(crate) fn expel(&mut self) -> Garbage {
        let (garbage, released) = self.release();
        self.expelled += released;
        garbage
    }

    /// Continues the cursor numbers of `other`, so that none is reused.
    pub(crate) fn number_cursors_after(&mut self, other: &Self) {
        self.cursors_made = other.cursors_made;
    }

    pub(crate) fn set_bytes_max(&mut self, bytes: usize) {
        self.bytes_max = bytes;
    }

    /// Frees the capacity of a busy period once the vBucket is idle.
    fn shrink(&mut self, garbage: &mut Garbage) {
        if self.sealed.is_empty() {
            self.sealed = VecDeque::new();
        }
        if self.closed.is_empty() {
            garbage.runs = mem::take(&mut self.closed);
        }
    }
}
