//! What the flusher carries to the store.

use std::collections::VecDeque;
use std::ops::AddAssign;

use model::{Document, Seqno, VbId, VbRecord};

use super::run::Run;
use super::segment::{ChangeSum, Piece, Sealed, SegmentCounts, Slot};
use collections::{EventGroup, SystemEvent};

/// How much a reader may take. The end of the last segment is estimated from its averages, so
/// bytes may be exceeded somewhat; at least one change is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushBudget {
    /// Most changes.
    pub items: usize,
    /// Most bytes of documents.
    pub bytes: usize,
}

impl FlushBudget {
    /// Everything there is.
    pub const ALL: Self = Self {
        items: usize::MAX,
        bytes: usize::MAX,
    };
}

/// One instruction for the store.
#[derive(Clone, Copy, Debug)]
pub enum FlushItem<'a> {
    /// Write this row; the row of `supersedes` (if not zero) goes in the same commit.
    Put {
        /// The change: a live document or a tombstone.
        document: &'a Document,
        /// Seqno of the key's older row, zero for none.
        supersedes: Seqno,
    },
    /// Remove a row: the key's newest change of this batch is another `Put`, or what was prepared is committed.
    Remove {
        /// Its key is the row's.
        of: &'a Document,
        /// The row is that of a prepare or an abort.
        prepared: bool,
        /// The row's seqno.
        seqno: Seqno,
    },
    /// Write a row of the history, besides what else becomes of the change: its collection keeps
    /// replaced versions.
    Keep(&'a Document),
}

/// Changes for the store, and the state to be written with them in one commit.
///
/// Shape: the rows of a store that applies every batch are, after each, the newest change of
/// every key up to `record.high_seqno`, one row a key.
///
/// Cost: holds segments of the log by reference; nothing is copied, and walking it needs no
/// lock. Drop it (or call [`FlushBatch::done`]) before the vBucket is locked again.
#[derive(Debug)]
pub struct FlushBatch {
    /// The vBucket.
    pub vb: VbId,
    /// State as of the end of the batch.
    pub record: VbRecord,
    pub(crate) taken: Taken,
    pub(crate) flight: FlightId,
}

/// How many changes ahead memory is asked for.
const PREFETCH_DISTANCE: usize = 3;

fn prefetch(slot: &Slot) {
    if let Some(document) = &slot.document {
        document.prefetch();
    }
}

/// Names one flush of one vBucket object, so that an answer is never taken for another's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FlightId {
    pub(crate) history: u64,
    pub(crate) number: u64,
}

/// What a flush took.
#[derive(Debug, Default)]
pub(crate) struct Taken {
    pub(crate) pieces: Vec<Piece>,
    /// Documents in whole segments; those in parts of segments are counted when asked.
    pub(super) counted: ChangeSum,
    /// Changes up to here were in a batch that failed: the store may have them nevertheless.
    pub(crate) failed_to: Seqno,
    /// Whether changes may be among them that commit a prepare.
    pub(crate) commits: bool,
    /// Whether changes may be among them that are kept.
    pub(crate) kept: bool,
    /// The first of them.
    pub(crate) kept_from: Seqno,
}

impl Taken {
    pub(crate) fn push(&mut self, piece: Piece, facts: &SegmentCounts) {
        if piece.is_whole() {
            self.counted.items += facts.live;
            self.counted.bytes += facts.live_bytes;
        }
        self.pieces.push(piece);
    }

    /// Its documents. Looks at those of parts of segments, two at most.
    pub(crate) fn count(&self) -> ChangeSum {
        let mut sum = self.counted;
        for part in self.pieces.iter().filter(|piece| !piece.is_whole()) {
            let more = part.count();
            sum.items += more.items;
            sum.bytes += more.bytes;
        }
        sum
    }

    /// Whether its last change was not replaced.
    pub(crate) fn ends_live(&self) -> bool {
        let last = self.pieces.last().and_then(|piece| piece.slots().last());
        last.is_some_and(Slot::is_live)
    }

    fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.pieces.iter().flat_map(Piece::slots)
    }

    pub(crate) fn first_seqno(&self) -> Option<Seqno> {
        self.pieces.first()?.first_seqno()
    }

    /// The group that a slot stands for.
    fn group_of(&self, slot: &Slot) -> Option<&EventGroup> {
        let grouped = self.pieces.iter().filter(|piece| piece.group.is_some());
        let mut of_it =
            grouped.filter(|piece| piece.slots().first().map(|one| one.seqno) == Some(slot.seqno));
        of_it.next()?.group.as_deref()
    }

    /// Bytes of rows of groups, which the log holds without their values.
    fn group_bytes(&self) -> usize {
        let groups = self.pieces.iter().filter_map(|piece| piece.group.as_ref());
        groups.map(|group| group.bytes()).sum()
    }

    pub(crate) fn last_seqno(&self) -> Option<Seqno> {
        Some(self.pieces.last()?.slots().last()?.seqno)
    }

    /// Seqno of the prepare that a change commits, zero for none. Documents are only looked at
    /// where there may be such changes.
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
        // Changes that a later one of this batch replaces; few, unless checkpoints are tiny.
        // De-duplicated slots do not count: what took their place may lie past the batch's end.
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
            // A row of this very batch is in the store only if an earlier attempt left it there.
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
            // The row of the prepare goes with the change that commits it.
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
    /// Rows to be written, at most: a change replaced by a later one of the batch counts too.
    pub fn len(&self) -> usize {
        self.taken.count().items
    }

    /// Whether only the record changed.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the documents that [`FlushBatch::len`] counts, as allocated.
    pub fn bytes(&self) -> usize {
        self.taken.count().bytes + self.taken.group_bytes()
    }

    /// Whether rows of the history may be among the instructions.
    pub fn has_history(&self) -> bool {
        self.taken.kept
    }

    /// Walks the instructions, the `Put`s in ascending seqno order. May be called repeatedly.
    ///
    /// Cost: O([`FlushBatch::len`]); 8 bytes for each change that the batch itself replaces.
    pub fn for_each(&self, f: &mut dyn FnMut(FlushItem<'_>)) {
        self.taken.for_each(f);
    }

    /// Ends the batch with the store's answer, for
    /// [`VBucket::finish_flush`](crate::VBucket::finish_flush).
    pub fn done(self, ok: bool) -> FlushDone {
        FlushDone {
            ok,
            flight: self.flight,
            changes: self.taken.count(),
        }
    }
}

/// How a flush ended; made by [`FlushBatch::done`].
#[derive(Clone, Copy, Debug)]
pub struct FlushDone {
    /// Whether all of the batch is durable.
    pub ok: bool,
    pub(crate) flight: FlightId,
    pub(crate) changes: ChangeSum,
}

/// Segments that no reader needs any more. Freeing them takes time in proportion to their
/// changes, so drop this after the vBucket's lock.
#[derive(Debug, Default)]
#[must_use = "to be dropped after the vBucket's lock"]
pub struct Garbage {
    pub(crate) segments: VecDeque<Sealed>,
    pub(crate) runs: VecDeque<Run>,
}

impl Garbage {
    /// The documents among it that nothing in the log replaced.
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
    /// How many, without those that a later one had replaced.
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
