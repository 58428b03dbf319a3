//! Segments: the pieces in which the log holds its changes, and hands them out.

use std::sync::Arc;

use model::{Document, Seqno};

/// Slots of the first segment of a busy period, and of the longest ones.
pub(crate) const SLOTS_MIN: usize = 16;
pub(crate) const SLOTS_MAX: usize = 1 << 16;

/// A segment takes no more changes once its documents take this much, or half of what the log
/// held when it began: a reader in its middle holds back little, and there are few of them.
pub(crate) const SEGMENT_BYTES_MIN: usize = 512 << 10;

/// Bytes that a sealed segment takes beside its slots: the counted vector and its entry.
const SEALED_BYTES: usize = 16 + size_of::<Slots>() + size_of::<Sealed>();

/// One change.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) seqno: Seqno,
    /// `None` once a later change of the same key took its place.
    pub(crate) document: Option<Document>,
    /// Seqno of the key's older row, which goes when this one is written; zero for none.
    pub(crate) supersedes: Seqno,
}

impl Slot {
    pub(crate) fn is_live(&self) -> bool {
        self.document.is_some()
    }
}

/// The changes of one segment, ascending by seqno.
pub(crate) type Slots = Vec<Slot>;

/// What is counted per segment, so that detaching one costs the same however long it is.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Facts {
    /// Position of the first slot on the item line.
    pub(crate) first_position: u64,
    /// Slots that hold a document.
    pub(crate) live: usize,
    /// Bytes of these documents.
    pub(crate) live_bytes: usize,
    /// Bytes of those of them that the table does not hold any more.
    pub(crate) stale_bytes: usize,
}

/// A segment that takes no further slots. Once a reader took it, it does not change at all.
///
/// What detaching one needs lies here: its slots, which nobody may have looked at for long, are
/// not touched.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) slots: Arc<Slots>,
    pub(crate) first_seqno: Seqno,
    pub(crate) last_seqno: Seqno,
    pub(crate) facts: Facts,
    /// Position behind the last slot.
    pub(crate) end_position: u64,
    /// Bytes without the documents.
    pub(crate) slot_bytes: usize,
}

impl Sealed {
    /// `None` for a segment without slots.
    pub(crate) fn new(slots: Slots, facts: Facts) -> Option<Self> {
        let (first_seqno, last_seqno) = (slots.first()?.seqno, slots.last()?.seqno);
        Some(Self {
            first_seqno,
            last_seqno,
            facts,
            end_position: facts.first_position + slots.len() as u64,
            slot_bytes: SEALED_BYTES + slots_bytes(&slots),
            slots: Arc::new(slots),
        })
    }
}

/// A part of a segment, as a reader holds it. Never empty.
#[derive(Debug)]
pub(crate) struct Piece {
    slots: Arc<Slots>,
    from: usize,
    to: usize,
}

impl Piece {
    pub(crate) fn new(slots: Arc<Slots>, from: usize, to: usize) -> Self {
        debug_assert!(from < to && to <= slots.len());
        Self { slots, from, to }
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots[self.from..self.to]
    }

    /// Whether it is all of its segment.
    pub(crate) fn is_whole(&self) -> bool {
        self.to - self.from == self.slots.len()
    }

    /// Documents and their bytes, counted.
    pub(crate) fn count(&self) -> (usize, usize) {
        let documents = self
            .slots()
            .iter()
            .filter_map(|slot| slot.document.as_ref());
        documents.fold((0, 0), |(live, bytes), document| {
            (live + 1, bytes + document.memory_bytes())
        })
    }
}

/// Bytes allocated for `slots`.
pub(crate) fn slots_bytes(slots: &Slots) -> usize {
    slots.capacity() * size_of::<Slot>()
}

/// Index of the slot of `seqno`: where it lies when no number was left out, else by search.
pub(crate) fn index_of(slots: &[Slot], seqno: Seqno) -> Option<usize> {
    let first = slots.first()?.seqno;
    let guess = usize::try_from(seqno.0.checked_sub(first.0)?).ok()?;
    if slots.get(guess).is_some_and(|slot| slot.seqno == seqno) {
        return Some(guess);
    }
    slots.binary_search_by_key(&seqno, |slot| slot.seqno).ok()
}
