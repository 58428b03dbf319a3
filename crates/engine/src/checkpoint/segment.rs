//! Segments: the pieces of the log that readers take whole.

use std::sync::Arc;

use model::{Document, Seqno};

/// Slots of the first segment of a busy period, and of the longest ones.
pub(crate) const SLOTS_MIN: usize = 16;
pub(crate) const SLOTS_MAX: usize = 256;

/// Bytes that a sealed segment takes beside its slots: the counted vector and its entry.
const SEALED_BYTES: usize = 16 + size_of::<Slots>() + size_of::<Sealed>();

/// One change.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) seqno: Seqno,
    /// `None` once a later change of the same key took its place.
    pub(crate) document: Option<Document>,
    /// Seqno of the key's older row, which goes when this one is written; zero for none.
    pub(crate) supersedes: Seqno,
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
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) slots: Arc<Slots>,
    pub(crate) first_seqno: Seqno,
    pub(crate) facts: Facts,
}

impl Sealed {
    /// `None` for a segment without slots.
    pub(crate) fn new(slots: Slots, facts: Facts) -> Option<Self> {
        let first_seqno = slots.first()?.seqno;
        Some(Self {
            slots: Arc::new(slots),
            first_seqno,
            facts,
        })
    }

    pub(crate) fn end_position(&self) -> u64 {
        self.facts.first_position + self.slots.len() as u64
    }

    /// Bytes without the documents.
    pub(crate) fn slot_bytes(&self) -> usize {
        SEALED_BYTES + slots_bytes(&self.slots)
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
