//! Segments: the units in which the log holds changes and hands them out.

use std::collections::VecDeque;
use std::sync::Arc;

use model::{Document, Seqno};

use collections::EventGroup;

/// Minimum number of slots of a new segment, and maximum number of slots of a segment.
pub(crate) const SLOTS_MIN: usize = 16;
pub(crate) const SLOTS_MAX: usize = 1 << 16;

/// Maximum number of slots of a tail that is sized by the last read only.
pub(crate) const HINT_MAX: usize = 1024;

/// Size of the documents at which a segment is sealed, in bytes; or half of the log's size when the
/// segment began, if that is more. So a reader in the middle pins little, and there are few
/// segments.
pub(crate) const SEGMENT_BYTES_MIN: usize = 512 << 10;

/// Overhead of a sealed segment in bytes: the counted vector and its entry.
const SEALED_BYTES: usize = 16 + size_of::<Slots>() + size_of::<Sealed>();

/// One change in the log.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    pub(crate) seqno: Seqno,
    /// `None` once a later change of the same key replaced it.
    pub(crate) document: Option<Document>,
    /// Effect on the rows of the store.
    pub(crate) rows: RowEffect,
}

impl Slot {
    pub(crate) fn is_live(&self) -> bool {
        self.document.is_some()
    }
}

/// Effect of a change on the store: which row it supersedes, and whether it is kept as history.
/// Eight bytes: seqnos have 48 bits.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RowEffect(u64);

impl RowEffect {
    const KEPT: u64 = 1 << 63;

    pub(crate) fn new(supersedes: Seqno, kept: bool) -> Self {
        Self(supersedes.0 | if kept { Self::KEPT } else { 0 })
    }

    /// Seqno of the key's older row; zero for none.
    pub(crate) fn superseded(self) -> Seqno {
        Seqno(self.0 & !Self::KEPT)
    }

    /// Whether the version is kept after it was replaced.
    pub(crate) fn is_kept(self) -> bool {
        self.0 & Self::KEPT != 0
    }
}

/// The changes of one segment, in ascending order of seqno.
pub(crate) type Slots = Vec<Slot>;

/// Counters of a segment. They make the cost of detaching independent of its length.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct SegmentCounts {
    /// Position of the first slot.
    pub(crate) first_position: u64,
    /// Slots that hold a document.
    pub(crate) live: usize,
    /// Bytes of these documents.
    pub(crate) live_bytes: usize,
    /// Bytes of those of them that the table does not hold any more.
    pub(crate) stale_bytes: usize,
}

/// A number of changes, and the bytes of their documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ChangeSum {
    pub(crate) items: usize,
    pub(crate) bytes: usize,
}

/// A sealed segment: it takes no further slots. Once a reader took it, it does not change at all.
///
/// Has everything that detaching needs. So detaching does not touch the slots, which may have left
/// the caches long ago.
#[derive(Debug)]
pub(crate) struct Sealed {
    pub(crate) slots: Arc<Slots>,
    pub(crate) first_seqno: Seqno,
    pub(crate) last_seqno: Seqno,
    pub(crate) facts: SegmentCounts,
    /// Position after the last slot.
    pub(crate) end_position: u64,
    /// Bytes without the documents.
    pub(crate) slot_bytes: usize,
    /// Group of events, if the only slot is the marker of one.
    pub(crate) group: Option<Arc<EventGroup>>,
}

impl Sealed {
    /// Seals `slots`. `None` if there are none.
    pub(crate) fn new(slots: Slots, facts: SegmentCounts) -> Option<Self> {
        let (first_seqno, last_seqno) = (slots.first()?.seqno, slots.last()?.seqno);
        Some(Self {
            first_seqno,
            last_seqno,
            facts,
            end_position: facts.first_position + slots.len() as u64,
            slot_bytes: SEALED_BYTES + slots_bytes(&slots),
            slots: Arc::new(slots),
            group: None,
        })
    }

    /// Returns a part of the segment.
    pub(crate) fn piece(&self, from: usize, to: usize) -> SegmentPart {
        SegmentPart {
            group: self.group.clone(),
            ..SegmentPart::new(Arc::clone(&self.slots), from, to)
        }
    }
}

/// A part of a segment, held by a reader. Never empty.
#[derive(Debug)]
pub(crate) struct SegmentPart {
    slots: Arc<Slots>,
    from: usize,
    to: usize,
    /// Group of events, as in [`Sealed::group`].
    pub(crate) group: Option<Arc<EventGroup>>,
}

impl SegmentPart {
    pub(crate) fn new(slots: Arc<Slots>, from: usize, to: usize) -> Self {
        debug_assert!(from < to && to <= slots.len());
        Self {
            slots,
            from,
            to,
            group: None,
        }
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.slots[self.from..self.to]
    }

    /// Seqno of its first change, or of the first event of its group.
    pub(crate) fn first_seqno(&self) -> Option<Seqno> {
        let first = self.slots().first()?.seqno;
        let others = self.group.as_ref().map_or(1, |group| group.events().max(1)) - 1;
        Some(Seqno(first.0 - u64::from(others)))
    }

    /// Whether it is a whole segment.
    pub(crate) fn is_whole(&self) -> bool {
        self.to - self.from == self.slots.len()
    }

    /// Counts its documents.
    pub(crate) fn count(&self) -> ChangeSum {
        let mut sum = ChangeSum::default();
        for document in self
            .slots()
            .iter()
            .filter_map(|slot| slot.document.as_ref())
        {
            sum.items += 1;
            sum.bytes += document.memory_bytes();
        }
        sum
    }
}

/// Bytes allocated for `slots`.
pub(crate) fn slots_bytes(slots: &Slots) -> usize {
    slots.capacity() * size_of::<Slot>()
}

/// Returns the index of the segment that has `seqno`, if one has; segments ascend by seqno.
///
/// Cost: a step or two if segments have equal lengths, as those of one stream have; at most twice
/// the logarithm of their number.
pub(crate) fn home_of(sealed: &VecDeque<Sealed>, seqno: Seqno) -> Option<usize> {
    let (first, last) = (sealed.front()?.first_seqno, sealed.back()?.last_seqno);
    if seqno < first || seqno > last {
        return None;
    }
    let (into, all) = (seqno.0 - first.0, last.0 - first.0 + 1);
    let guess = u128::from(into) * sealed.len() as u128 / u128::from(all);
    let (mut low, mut high) = (0, sealed.len());
    let mut at = usize::try_from(guess).unwrap_or(0).min(high - 1);
    let mut step = 1;
    // The segment is in low..high. Search from the guess in growing steps, then by halves.
    while high - low > 1 {
        if sealed[at].first_seqno <= seqno {
            low = at;
            at += step;
        } else {
            high = at;
            at = at.saturating_sub(step);
        }
        step *= 2;
        if at <= low || at >= high {
            at = low + (high - low) / 2;
        }
    }
    Some(low)
}

/// Returns the index of the slot of `seqno`: directly if no seqno was skipped, else by search.
pub(crate) fn index_of(slots: &[Slot], seqno: Seqno) -> Option<usize> {
    let first = slots.first()?.seqno;
    let guess = usize::try_from(seqno.0.checked_sub(first.0)?).ok()?;
    if slots.get(guess).is_some_and(|slot| slot.seqno == seqno) {
        return Some(guess);
    }
    slots.binary_search_by_key(&seqno, |slot| slot.seqno).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns segments with these numbers of slots; every seventh seqno is skipped.
    fn line(lengths: &[usize]) -> VecDeque<Sealed> {
        let mut seqno = 5;
        let mut next = |_| {
            seqno += if seqno % 7 == 6 { 2 } else { 1 };
            Slot {
                seqno: Seqno(seqno),
                document: None,
                rows: RowEffect::default(),
            }
        };
        let of = |&length: &usize| {
            Sealed::new(
                (0..length).map(&mut next).collect(),
                SegmentCounts::default(),
            )
        };
        lengths.iter().filter_map(of).collect()
    }

    #[test]
    fn home_of_finds_seqnos_in_segments_of_any_length() {
        let alike = [30; 100];
        let mut growing: Vec<usize> = (0..12).map(|power| 1 << power).collect();
        let shrinking: Vec<usize> = growing.iter().rev().copied().collect();
        growing.extend([1; 40]);
        for lengths in [alike.as_slice(), &growing, &shrinking, &[1], &[3, 900, 1]] {
            let line = line(lengths);
            let last = line.back().expect("it has some").last_seqno;
            for seqno in (0..last.0 + 3).map(Seqno) {
                let begun = line.partition_point(|sealed| sealed.first_seqno <= seqno);
                let home = begun.checked_sub(1).filter(|_| seqno <= last);
                assert_eq!(home_of(&line, seqno), home, "{seqno:?} in {lengths:?}");
            }
        }
        assert_eq!(home_of(&VecDeque::new(), Seqno(1)), None);
    }
}
