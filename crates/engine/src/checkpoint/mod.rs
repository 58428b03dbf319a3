//! The log of changes: a run of segments over which checkpoints are laid.
//!
//! ```text
//! checkpoints   | 7 closed      | 8 closed | 9 open                |
//! segments      [ s s s s ][ s s ][ s s s ][ s . s s ][ s s s _ _ _ ]
//! positions     40        44     46        49                   55
//!                          ^persistence     ^taken      s change, . de-duplicated
//! ```
//!
//! Slots are never taken out of the middle, so a position on the item line is a number that
//! stays. A segment belongs to one checkpoint; only the last segment, the tail, takes changes.
//! A reader seals the tail and takes segments; from then on (`taken`) they do not change, so
//! what was handed out stays whole. Before that, a change whose key changes again within the
//! open checkpoint gives its place up.

mod batch;
mod segment;
mod stats;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

pub(crate) use batch::{FlightId, Taken};
pub use batch::{FlushBatch, FlushBudget, FlushDone, FlushItem, Garbage};
use model::{Document, Seqno, SnapshotRange};
use segment::{Facts, SLOTS_MAX, SLOTS_MIN, Sealed, Slot, Slots, index_of, slots_bytes};
pub use stats::CheckpointStats;

/// A run of changes that readers get as one snapshot.
#[derive(Clone, Copy, Debug)]
struct Checkpoint {
    /// Strictly consecutive.
    id: u64,
    first_position: u64,
    /// Seqnos of its changes; `start` is past `end` while it has none.
    snapshot: SnapshotRange,
    /// Bytes of its changes that are still held, slots included.
    bytes: usize,
}

/// A flush under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    end_position: u64,
    live: usize,
    live_bytes: usize,
    /// Last seqno of the batch.
    pub(crate) last_seqno: Seqno,
    /// Everything up to here is as it was at that seqno, once the batch is durable: nothing
    /// that was replaced before the batch waits behind its end. `None`: no such point in it.
    pub(crate) consistent: Option<Seqno>,
    /// Where the snapshot ends into which the batch reaches.
    pub(crate) snapshot_end: Seqno,
}

/// The log of one vBucket. Allocates nothing while it is empty.
#[derive(Debug)]
pub(crate) struct CheckpointLog {
    sealed: VecDeque<Sealed>,
    tail: Slots,
    tail_facts: Facts,
    /// Slots of the next tail.
    tail_slots: usize,
    closed: VecDeque<Checkpoint>,
    open: Checkpoint,
    bytes_max: usize,
    /// Segments that begin before this position were handed out.
    taken: u64,
    /// The persistence cursor: everything before this position is durable.
    persisted: u64,
    failed_to: Seqno,
    dirty_items: usize,
    dirty_bytes: usize,
    items: usize,
    slot_bytes: usize,
    stale_bytes: usize,
    deduplicated: u64,
}

/// Which segment a slot lies in.
#[derive(Clone, Copy, Debug)]
enum Home {
    Sealed(usize),
    Tail,
}

impl CheckpointLog {
    /// A log whose first change will follow `high`.
    pub(crate) fn new(high: Seqno, bytes_max: usize) -> Self {
        let snapshot = SnapshotRange {
            start: high.next(),
            end: high,
        };
        Self {
            sealed: VecDeque::new(),
            tail: Vec::new(),
            tail_facts: Facts::default(),
            tail_slots: SLOTS_MIN,
            closed: VecDeque::new(),
            open: Checkpoint {
                id: 1,
                first_position: 0,
                snapshot,
                bytes: 0,
            },
            bytes_max,
            taken: 0,
            persisted: 0,
            failed_to: Seqno::ZERO,
            dirty_items: 0,
            dirty_bytes: 0,
            items: 0,
            slot_bytes: 0,
            stale_bytes: 0,
            deduplicated: 0,
        }
    }

    /// Queues a change whose seqno is above all others. `old` is what the table held before.
    ///
    /// Cost: O(1) while no number was left out; else the logarithm of the segments held.
    pub(crate) fn append(&mut self, document: &Document, old: Option<&Document>) {
        if self.open.bytes >= self.bytes_max {
            self.close_checkpoint();
        }
        let supersedes = old.map_or(Seqno::ZERO, |old| self.replace(old));
        let bytes = document.memory_bytes();
        let seqno = document.seqno();
        self.make_room();
        self.tail.push(Slot {
            seqno,
            document: Some(document.clone()),
            supersedes,
        });
        self.tail_facts.live += 1;
        self.tail_facts.live_bytes += bytes;
        self.open.bytes += bytes + size_of::<Slot>();
        self.open.snapshot.end = seqno;
        self.items += 1;
        self.dirty_items += 1;
        self.dirty_bytes += bytes;
    }

    fn make_room(&mut self) {
        if self.tail.len() < self.tail.capacity() {
            return;
        }
        if !self.tail.is_empty() && self.tail_facts.live == 0 {
            // Every change in it was replaced: nobody needs it as a segment.
            self.open.bytes -= self.tail.len() * size_of::<Slot>();
            self.tail_facts.first_position = self.next_position();
            self.tail.clear();
            return;
        }
        if !self.tail.is_empty() {
            self.seal_tail();
            self.tail_slots = (self.tail_slots * 2).min(SLOTS_MAX);
        }
        self.tail = Vec::with_capacity(self.tail_slots);
        self.slot_bytes += slots_bytes(&self.tail);
    }

    fn next_position(&self) -> u64 {
        self.tail_facts.first_position + self.tail.len() as u64
    }

    fn seal_tail(&mut self) {
        let next_position = self.next_position();
        let facts = mem::replace(
            &mut self.tail_facts,
            Facts {
                first_position: next_position,
                ..Facts::default()
            },
        );
        let slots = mem::take(&mut self.tail);
        let tail_bytes = slots_bytes(&slots);
        if let Some(sealed) = Sealed::new(slots, facts) {
            self.slot_bytes += sealed.slot_bytes() - tail_bytes;
            self.sealed.push_back(sealed);
        }
    }

    /// Closes the open checkpoint and opens the next one, unless the open one is empty.
    pub(crate) fn close_checkpoint(&mut self) {
        if self.open.snapshot.start > self.open.snapshot.end {
            return;
        }
        self.seal_tail();
        let start = self.open.snapshot.end.next();
        let next = Checkpoint {
            id: self.open.id + 1,
            first_position: self.next_position(),
            snapshot: SnapshotRange {
                start,
                end: self.open.snapshot.end,
            },
            bytes: 0,
        };
        let closed = mem::replace(&mut self.open, next);
        // One whose changes are all durable already is not kept.
        if self.lowest_cursor() < next.first_position {
            self.closed.push_back(closed);
        }
    }

    fn find(&self, seqno: Seqno) -> Option<(Home, usize)> {
        if self.tail.first().is_some_and(|first| first.seqno <= seqno) {
            return Some((Home::Tail, index_of(&self.tail, seqno)?));
        }
        let after = self
            .sealed
            .partition_point(|sealed| sealed.first_seqno <= seqno);
        let home = after.checked_sub(1)?;
        Some((
            Home::Sealed(home),
            index_of(&self.sealed[home].slots, seqno)?,
        ))
    }

    fn facts_mut(&mut self, home: Home) -> &mut Facts {
        match home {
            Home::Tail => &mut self.tail_facts,
            Home::Sealed(index) => &mut self.sealed[index].facts,
        }
    }

    /// Makes way for a change that replaces `old`; returns which row that change supersedes.
    fn replace(&mut self, old: &Document) -> Seqno {
        let Some((home, index)) = self.find(old.seqno()) else {
            return old.seqno();
        };
        let frozen = self.taken.max(self.open.first_position);
        if self.facts_mut(home).first_position < frozen {
            self.mark_stale(home, index, old);
            return old.seqno();
        }
        let slot = match home {
            Home::Tail => &mut self.tail[index],
            Home::Sealed(segment) => {
                let slots = Arc::get_mut(&mut self.sealed[segment].slots);
                &mut slots.expect("nobody shares a segment that was not handed out")[index]
            }
        };
        let supersedes = slot.supersedes;
        if slot.document.take().is_some() {
            self.forget_replaced(home, old.memory_bytes());
        }
        supersedes
    }

    fn forget_replaced(&mut self, home: Home, bytes: usize) {
        let facts = self.facts_mut(home);
        facts.live -= 1;
        facts.live_bytes -= bytes;
        let dead = facts.live == 0;
        self.open.bytes -= bytes;
        self.items -= 1;
        self.dirty_items -= 1;
        self.dirty_bytes -= bytes;
        self.deduplicated += 1;
        if let (Home::Sealed(index), true) = (home, dead) {
            self.drop_dead(index);
        }
    }

    /// Drops a segment in which every change was replaced, so that keys that change all the
    /// time do not fill memory while the store stands still. Positions keep their numbers.
    fn drop_dead(&mut self, index: usize) {
        if let Some(dead) = self.sealed.remove(index) {
            self.slot_bytes -= dead.slot_bytes();
            self.open.bytes -= dead.slots.len() * size_of::<Slot>();
        }
    }

    fn mark_stale(&mut self, home: Home, index: usize, old: &Document) {
        let slot = match home {
            Home::Tail => &self.tail[index],
            Home::Sealed(segment) => &self.sealed[segment].slots[index],
        };
        if slot.document.as_ref().is_some_and(|held| held.same_as(old)) {
            self.facts_mut(home).stale_bytes += old.memory_bytes();
            self.stale_bytes += old.memory_bytes();
        }
    }

    /// The table let go of `old` without a change (its value was evicted).
    pub(crate) fn note_evicted(&mut self, old: &Document) {
        if let Some((home, index)) = self.find(old.seqno()) {
            self.mark_stale(home, index, old);
        }
    }

    /// Whether there is a change that is not durable.
    pub(crate) fn has_dirty(&self) -> bool {
        self.persisted < self.next_position()
    }

    /// Hands out the segments from the persistence cursor on.
    ///
    /// Cost: O(segments taken); the changes themselves are not looked at.
    pub(crate) fn take_dirty(&mut self, budget: FlushBudget) -> (Taken, Flight) {
        let mut taken = Taken {
            failed_to: self.failed_to,
            ..Taken::default()
        };
        let first = self
            .sealed
            .partition_point(|sealed| sealed.facts.first_position < self.persisted);
        let mut end_position = self.persisted;
        let mut next = first;
        // What failed comes again as a whole: the store may have it, and must not go back.
        while taken.live < budget.items && taken.live_bytes < budget.bytes
            || taken.last_seqno() < Some(self.failed_to)
        {
            if next == self.sealed.len() {
                self.tail_slots = self
                    .tail
                    .len()
                    .next_power_of_two()
                    .clamp(SLOTS_MIN, SLOTS_MAX);
                self.seal_tail();
            }
            let Some(sealed) = self.sealed.get(next) else {
                break;
            };
            taken.segments.push(Arc::clone(&sealed.slots));
            taken.live += sealed.facts.live;
            taken.live_bytes += sealed.facts.live_bytes;
            end_position = sealed.end_position();
            next += 1;
        }
        self.taken = self.taken.max(end_position);
        let flight = self.flight(&taken, end_position);
        (taken, flight)
    }

    fn flight(&self, taken: &Taken, end_position: u64) -> Flight {
        let last_seqno = taken.last_seqno().unwrap_or(self.open.snapshot.end);
        // Checkpoints that begin at or before the end; all but the last of them end there too.
        let begun = self
            .closed
            .partition_point(|closed| closed.first_position <= end_position)
            + usize::from(self.open.first_position <= end_position);
        let ended = begun.saturating_sub(1);
        let reached = self.closed.get(ended).unwrap_or(&self.open);
        let last_ended = ended
            .checked_sub(1)
            .and_then(|index| self.closed.get(index));
        let (consistent, snapshot_end) = if end_position == self.next_position() {
            (Some(last_seqno), last_seqno)
        } else if reached.first_position == end_position {
            (last_ended.map(|ended| ended.snapshot.end), last_seqno)
        } else {
            (
                last_ended.map(|ended| ended.snapshot.end),
                reached.snapshot.end,
            )
        };
        let (live, live_bytes) = (taken.live, taken.live_bytes);
        Flight {
            end_position,
            live,
            live_bytes,
            last_seqno,
            consistent,
            snapshot_end,
        }
    }

    /// The batch of `flight` is durable: moves the persistence cursor, detaches what nobody
    /// needs any more.
    ///
    /// Cost: O(segments); freeing them is left to who drops the answer.
    pub(crate) fn finish(&mut self, flight: &Flight) -> Garbage {
        self.persisted = flight.end_position;
        self.dirty_items -= flight.live;
        self.dirty_bytes -= flight.live_bytes;
        if flight.last_seqno >= self.failed_to {
            self.failed_to = Seqno::ZERO;
        }
        self.release()
    }

    /// The batch of `flight` is not durable, though parts of it may have reached the store.
    pub(crate) fn fail(&mut self, flight: &Flight) {
        self.failed_to = self.failed_to.max(flight.last_seqno);
    }

    fn lowest_cursor(&self) -> u64 {
        self.persisted
    }

    fn release(&mut self) -> Garbage {
        let lowest = self.lowest_cursor();
        let mut segments = Vec::new();
        while let Some(sealed) = self
            .sealed
            .pop_front_if(|sealed| sealed.end_position() <= lowest)
        {
            self.items -= sealed.facts.live;
            self.slot_bytes -= sealed.slot_bytes();
            self.stale_bytes -= sealed.facts.stale_bytes;
            self.give_back(&sealed);
            segments.push(sealed.slots);
        }
        while !self.closed.is_empty()
            && self.closed.get(1).unwrap_or(&self.open).first_position <= lowest
        {
            self.closed.pop_front();
        }
        self.shrink();
        Garbage { segments }
    }

    /// Takes a released segment out of the bytes of its checkpoint.
    fn give_back(&mut self, sealed: &Sealed) {
        if sealed.facts.first_position >= self.open.first_position {
            let held = sealed.facts.live_bytes + sealed.slots.len() * size_of::<Slot>();
            self.open.bytes -= held;
        }
    }

    /// An idle vBucket keeps no room of a busy time.
    fn shrink(&mut self) {
        if self.sealed.is_empty() {
            self.sealed = VecDeque::new();
        }
        if self.closed.is_empty() {
            self.closed = VecDeque::new();
        }
    }
}
