//! The persistence cursor: taking changes for a flush, and finishing it.

use model::Seqno;

use super::run::PrepareProgress;
use super::segment::{ChangeSum, HINT_MAX, SLOTS_MIN, SegmentCounts, Slot};
use super::{CheckpointLog, FlushBudget, Garbage, SpareBuffers, Taken};

/// Maximum number of segments for which a flush allocates at once: a million changes have as many.
const PIECES_MEANT_FOR: usize = 32;

/// A flush under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flight {
    end_position: u64,
    /// Last seqno of the batch.
    pub(crate) last_seqno: Seqno,
    /// Seqno up to which the store is consistent once the batch is durable: no change before it has
    /// its newest version only after the batch's end.
    pub(crate) consistent: Seqno,
    /// End of the snapshot in which the batch ends.
    pub(crate) snapshot_end: Seqno,
    /// The prepares that the batch certainly has.
    pub(crate) prepares: PrepareProgress,
}

impl FlushBudget {
    /// Returns how many of a segment's `slots` fit into the budget: at least one live slot, if
    /// there is any.
    pub(super) fn fitting(&self, slots: &[Slot], facts: &SegmentCounts) -> usize {
        if facts.live <= self.items && facts.live_bytes <= self.bytes {
            return slots.len();
        }
        let dead = slots.iter().position(Slot::is_live);
        let bytes_each = (facts.live_bytes / facts.live.max(1)).max(1);
        let items = self.items.min(self.bytes / bytes_each).max(1);
        dead.unwrap_or(slots.len())
            .saturating_add(items)
            .min(slots.len())
    }
}

impl CheckpointLog {
    /// Whether there is a change that is not durable.
    pub(crate) fn has_dirty(&self) -> bool {
        self.persisted < self.next_position()
    }

    /// Takes changes from the persistence cursor on.
    ///
    /// Cost: O(segments taken); does not read the changes.
    pub(crate) fn take_dirty(
        &mut self,
        budget: FlushBudget,
        spare: &mut SpareBuffers,
    ) -> (Taken, Flight) {
        let mut taken = Taken {
            failed_to: self.failed_to,
            commits: self.committed_to > self.persisted,
            kept: self.open.historical,
            kept_from: self.kept_from,
            ..Taken::default()
        };
        self.tail_hint = self.tail.len().clamp(SLOTS_MIN, HINT_MAX);
        if self.has_dirty() {
            self.take_spare(spare);
        }
        self.cut();
        self.seal_tail();
        let first = self
            .sealed
            .partition_point(|sealed| sealed.end_position <= self.persisted);
        let pieces = (self.sealed.len() - first).min(PIECES_MEANT_FOR);
        taken.pieces = spare.take_pieces();
        taken.pieces.reserve_exact(pieces);
        let mut end_position = self.persisted;
        let (mut items, mut bytes, mut last) = (0, 0, Seqno::ZERO);
        for sealed in self.sealed.range(first..) {
            // A failed batch is repeated as a whole: the store may have all of it, and must not go
            // back.
            let again = last < self.failed_to;
            let full = items >= budget.items || bytes >= budget.bytes;
            if full && !again && taken.ends_live() {
                break;
            }
            let begin = sealed.facts.first_position;
            let from = usize::try_from(end_position.saturating_sub(begin)).unwrap_or(0);
            let left = FlushBudget {
                items: budget.items.saturating_sub(items),
                bytes: budget.bytes.saturating_sub(bytes),
            };
            let mut to = from + left.fitting(&sealed.slots[from..], &sealed.facts);
            if again {
                let slots = &sealed.slots;
                to = to.max(slots.partition_point(|slot| slot.seqno <= self.failed_to));
            }
            let part = to < sealed.slots.len();
            if part {
                // A batch must not end with a replaced change.
                let live = sealed.slots[from..to].iter().rposition(Slot::is_live);
                to = live.map_or(to, |live| from + live + 1);
            }
            taken.push(sealed.piece(from, to), &sealed.facts);
            // Counts the whole segment also for a part; only the last segment may be a part.
            items = items.saturating_add(sealed.facts.live);
            bytes = bytes.saturating_add(sealed.facts.live_bytes);
            end_position = begin + to as u64;
            if part {
                break;
            }
            last = sealed.last_seqno;
        }
        let flight = self.flight(&taken, end_position);
        (taken, flight)
    }

    fn flight(&self, taken: &Taken, end_position: u64) -> Flight {
        let Some(last_seqno) = taken.last_seqno() else {
            let last = self.last_complete();
            return Flight {
                end_position,
                last_seqno: last,
                consistent: last,
                snapshot_end: self.progress().end,
                prepares: self.open.prepares,
            };
        };
        let index = self.run_at(end_position.saturating_sub(1));
        let reached = self.run(index);
        let ended = end_position == self.run(index + 1).first_position;
        let (consistent, snapshot_end) = if ended && reached.is_complete() {
            (last_seqno, last_seqno)
        } else {
            (reached.complete_before, reached.range.end)
        };
        let prepares = if ended {
            reached.prepares
        } else {
            reached.prepares_before
        };
        Flight {
            end_position,
            last_seqno,
            consistent,
            snapshot_end,
            prepares,
        }
    }

    /// Finishes a durable batch of `live` changes: moves the persistence cursor, and detaches
    /// changes that no reader needs any more.
    ///
    /// Cost: O(segments); dropping the result frees them.
    pub(crate) fn finish(&mut self, flight: &Flight, live: ChangeSum) -> Garbage {
        self.persisted = flight.end_position;
        self.dirty_items -= live.items;
        self.dirty_bytes -= live.bytes;
        if flight.last_seqno >= self.failed_to {
            self.failed_to = Seqno::ZERO;
        }
        self.settle()
    }

    /// Records a failed batch. Parts of it may have reached the store.
    pub(crate) fn fail(&mut self, flight: &Flight) {
        self.failed_to = self.failed_to.max(flight.last_seqno);
    }
}
