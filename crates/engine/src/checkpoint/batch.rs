//! Batches of changes that the flusher writes to the store.

use std::collections::VecDeque;
use std::ops::AddAssign;

use model::{Document, Seqno, VbId, VbRecord};

use super::run::Run;
use super::segment::{ChangeSum, Sealed, SegmentCounts, SegmentPart, Slot};
use collections::{EventGroup, SystemEvent};

/// Limits of one read from the log. The size of the last segment's part is estimated from averages,
/// so `bytes` may be exceeded somewhat. At least one change is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushBudget {
    /// Maximum number of changes.
    pub items: usize,
    /// Maximum size of the documents in bytes.
    pub bytes: usize,
}

impl FlushBudget {
    /// No limit.
    pub const ALL: Self = Self {
        items: usize::MAX,
        bytes: usize::MAX,
    };
}

/// One instruction for the store.
#[derive(Clone, Copy, Debug)]
pub enum FlushItem<'a> {
    /// Write this row, and remove the row of `supersedes` (if not zero) in the same commit.
    Put {
        /// The change: a live document or a tombstone.
        document: &'a Document,
        /// Seqno of the key's older row; zero for none.
        supersedes: Seqno,
    },
    /// Remove a row: a later `Put` of this batch has the key's newest version, or the prepare of
    /// the row is committed.
    Remove {
        /// A document with the key of the row.
        of: &'a Document,
        /// Whether the row is a prepare or an abort.
        prepared: bool,
        /// Seqno of the row.
        seqno: Seqno,
    },
    /// Write a row of the history, in addition to other instructions for the same change: its
    /// collection keeps replaced versions.
    Keep(&'a Document),
}

/// Changes for the store, and the vBucket state to be written with them in one commit.
///
/// If a store applies every batch, then after each batch it has exactly one row per key: the newest
/// change up to `record.high_seqno`.
///
/// Cost: holds segments of the log by reference; copies nothing, and is walked without a lock. Drop
/// it (or call [`FlushBatch::done`]) before the vBucket is locked again.
#[derive(Debug)]
pub struct FlushBatch {
    /// The vBucket.
    pub vb: VbId,
    /// State at the end of the batch.
    pub record: VbRecord,
    pub(crate) taken: Taken,
    pub(crate) flight: FlightId,
}

/// Prefetch distance in changes.
const PREFETCH_DISTANCE: usize = 3;

fn prefetch(slot: &Slot) {
    if let Some(document) = &slot.document {
        document.prefetch();
    }
}

/// Identifies one flush of one `VBucket` value, so that an answer is never matched to another
/// flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightId {
    pub(crate) history: u64,
    pub(crate) number: u64,
}

/// Changes taken for a flush.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) pieces: Vec<SegmentPart>,
    /// Documents in whole segments; those in parts of segments are counted on request.
    pub(super) counted: ChangeSum,
    /// Last seqno of a failed batch: the store may have its changes nevertheless.
    pub(crate) failed_to: Seqno,
    /// Whether commits of prepares may be among the changes.
    pub(crate) commits: bool,
    /// Whether changes kept as history may be among them.
    pub(crate) kept: bool,
    /// First seqno that is kept as history.
    pub(crate) kept_from: Seqno,
}

impl Taken {
    pub(crate) fn push(&mut self, piece: SegmentPart, facts: &SegmentCounts) {
        if piece.is_whole() {
            self.counted.items += facts.live;
            self.counted.bytes += facts.live_bytes;
        }
        self.pieces.push(piece);
    }

    /// Counts the documents. Reads the documents of partial segments, of which there are two at
    /// most.
    pub(crate) fn count(&self) -> ChangeSum {
        let mut sum = self.counted;
        for part in self.pieces.iter().filter(|piece| !piece.is_whole()) {
            let more = part.count();
            sum.items += more.items;
            sum.bytes += more.bytes;
        }
        sum
    }

    /// Whether the last change was not replaced.
    pub(crate) fn ends_live(&self) -> bool {
        let last = self.pieces.last().and_then(|piece| piece.slots().last());
        last.is_some_and(Slot::is_live)
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.pieces.iter().flat_map(SegmentPart::slots)
    }

    pub(crate) fn first_seqno(&self) -> Option<Seqno> {
        self.pieces.first()?.first_seqno()
    }

    /// Returns the group of events for which the slot is the marker.
    fn group_of(&self, slot: &Slot) -> Option<&EventGroup> {
        let grouped = self.pieces.iter().filter(|piece| piece.group.is_some());
        let mut of_it =
            grouped.filter(|piece| piece.slots().first().map(|one| one.seqno) == Some(slot.seqno));
        of_it.next()?.group.as_deref()
    }

    /// Bytes of rows of event groups; the log holds these without their values.
    fn group_bytes(&self) -> usize {
        let groups = self.pieces.iter().filter_map(|piece| piece.group.as_ref());
        groups.map(|group| group.bytes()).sum()
    }

    pub(crate) fn last_seqno(&self) -> Option<Seqno> {
        Some(self.pieces.last()?.slots().last()?.seqno)
    }

    /// Seqno of the prepare that the change commits; zero for none. Reads documents only if the
    /// batch may have commits.
    fn committed(&self, slot: &Slot) -> Seqno {
        match &slot.document {
            Some(change) if self.commits && change.kind().is_commit() => change.prepare_seqno(),
            _ => Seqno::ZERO,
        }
    }

    pub(super) fn for_each(&self, f: &mut dyn FnMut(FlushItem<'_>)) {
        let Some(first) = self.first_seqno() else {
            return;
        };
        // Changes that a later change of this batch replaces; few, unless checkpoints are tiny.
        // De-duplicated slots do not count: their replacement may be after the batch's end.
        let mut replaced: Vec<Seqno> = self
            .slots()
            .filter(|slot| slot.document.is_some())
            .flat_map(|slot| [slot.rows.superseded(), self.committed(slot)])
            .filter(|seqno| *seqno >= first)
            .collect();
        replaced.sort_unstable();
        // Documents that were written long ago have left the processor's caches.
        let mut ahead = self.slots();
        for slot in ahead.by_ref().take(PREFETCH_DISTANCE) {
            prefetch(slot);
        }
        for slot in self.slots() {
            if let Some(later) = ahead.next() {
                prefetch(later);
            }
            let Some(document) = &slot.document else {
                continue;
            };
            // The store has a row of this same batch only if an earlier attempt wrote it.
            let older = slot.rows.superseded();
            let in_store = older < first || older <= self.failed_to;
            let supersedes = if in_store { older } else { Seqno::ZERO };
            if slot.rows.is_kept() && slot.seqno >= self.kept_from {
                f(FlushItem::Keep(document));
            }
            if SystemEvent::is_group(document.key())
                && let Some(group) = self.group_of(slot)
            {
                f(FlushItem::Put {
                    document: &group.row(document),
                    supersedes: Seqno::ZERO,
                });
                continue;
            }
            if replaced.is_empty() || replaced.binary_search(&slot.seqno).is_err() {
                f(FlushItem::Put {
                    document,
                    supersedes,
                });
            } else if supersedes != Seqno::ZERO {
                f(FlushItem::Remove {
                    of: document,
                    prepared: document.kind().is_prepared(),
                    seqno: supersedes,
                });
            }
            // Remove the prepare's row together with the commit.
            let prepare = self.committed(slot);
            if prepare != Seqno::ZERO && (prepare < first || prepare <= self.failed_to) {
                f(FlushItem::Remove {
                    of: document,
                    prepared: true,
                    seqno: prepare,
                });
            }
        }
    }
}

impl FlushBatch {
    /// Maximum number of rows to be written: changes replaced within the batch count too.
    pub fn len(&self) -> usize {
        self.taken.count().items
    }

    /// Whether only the record changed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Allocated bytes of the documents counted by [`FlushBatch::len`].
    pub fn bytes(&self) -> usize {
        self.taken.count().bytes + self.taken.group_bytes()
    }

    /// Whether the batch may write rows of the history.
    pub fn has_history(&self) -> bool {
        self.taken.kept
    }

    /// Calls `f` for each instruction; the `Put`s come in ascending seqno order. May be called
    /// repeatedly.
    ///
    /// Cost: O([`FlushBatch::len`]); 8 bytes for each change that is replaced within the batch.
    pub fn for_each(&self, f: &mut dyn FnMut(FlushItem<'_>)) {
        self.taken.for_each(f);
    }

    /// Ends the batch with the store's result, for
    /// [`VBucket::finish_flush`](crate::VBucket::finish_flush).
    pub fn done(self, ok: bool) -> FlushDone {
        FlushDone {
            ok,
            flight: self.flight,
            changes: self.taken.count(),
        }
    }
}

/// Result of a flush; made by [`FlushBatch::done`].
#[derive(Clone, Copy, Debug)]
pub struct FlushDone {
    /// Whether the whole batch is durable.
    pub ok: bool,
    pub(crate) flight: FlightId,
    pub(crate) changes: ChangeSum,
}

/// Segments that no reader needs any more. Freeing them takes time in proportion to their changes,
/// so drop this after the vBucket's lock.
#[derive(Debug, Default)]
#[must_use = "to be dropped after the vBucket's lock"]
pub struct Garbage {
    pub(crate) segments: VecDeque<Sealed>,
    pub(crate) runs: VecDeque<Run>,
}

impl Garbage {
    /// Documents that nothing in the log replaced.
    pub fn documents(&self) -> impl Iterator<Item = &Document> {
        let slots = self.segments.iter().flat_map(|sealed| sealed.slots.iter());
        slots.filter_map(|slot| slot.document.as_ref())
    }

    /// Whether there is nothing to free.
    pub fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.runs.capacity() == 0
    }
}

/// Changes that left the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// Number of changes, without those that a later one had replaced.
    pub items: u64,
    /// Bytes of their slots, and of documents that only the log held.
    pub bytes: u64,
}

impl AddAssign for Released {
    fn add_assign(&mut self, other: Self) {
        self.items += other.items;
        self.bytes += other.bytes;
    }
}
