//! Documents that left memory whole: where their rows are, eight bytes each.

use std::num::NonZeroU64;

use model::Seqno;

use super::parts::{Parts, Spot};

const SEQNO_BITS: u32 = 40;
const TAG_BITS: u32 = 23;
const GONE_BIT: u64 = 1 << SEQNO_BITS;
const TAG_SHIFT: u32 = SEQNO_BITS + 1;

/// A part of the key's hash (23 bits), whether it is a tombstone (1), and its seqno (40).
#[derive(Clone, Copy)]
struct Entry(NonZeroU64);

impl Entry {
    fn new(hash: u64, seqno: Seqno, tombstone: bool) -> Self {
        let gone = if tombstone { GONE_BIT } else { 0 };
        let bits = tag_of(hash) << TAG_SHIFT | gone | seqno.0;
        // No change has the seqno zero.
        Self(NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN))
    }

    fn tag(self) -> u64 {
        self.0.get() >> TAG_SHIFT
    }

    fn seqno(self) -> Seqno {
        Seqno(self.0.get() & (GONE_BIT - 1))
    }

    fn is_tombstone(self) -> bool {
        self.0.get() & GONE_BIT != 0
    }

    /// All that can be known of the key's hash later on decides where the entry lies.
    fn hash(self) -> u64 {
        spread(self.tag())
    }
}

fn tag_of(hash: u64) -> u64 {
    hash >> (64 - TAG_BITS)
}

fn spread(tag: u64) -> u64 {
    tag.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where the rows are of keys that the table does not hold any more.
///
/// It knows a part of each key's hash only: what it says is a guess, wrong for about one absent
/// key of 2^23 / entries. The row tells.
#[derive(Default)]
pub(super) struct Evicted {
    entries: Parts<Entry>,
}

impl Evicted {
    /// Whether a row of this seqno can be remembered.
    pub(super) fn fits(seqno: Seqno) -> bool {
        seqno.0 < GONE_BIT
    }

    pub(super) fn insert(&mut self, hash: u64, seqno: Seqno, tombstone: bool) {
        let entry = Entry::new(hash, seqno, tombstone);
        self.entries
            .insert(entry.hash(), entry, &|other: &Entry| other.hash());
    }

    /// A row that may be of the key with this hash.
    pub(super) fn candidate(&self, hash: u64) -> Option<Seqno> {
        let tag = tag_of(hash);
        let spot = self.entries.find(spread(tag), |entry| entry.tag() == tag);
        Some(self.entries.get(spot)?.seqno())
    }

    pub(super) fn contains(&self, hash: u64, seqno: Seqno) -> bool {
        let tag = tag_of(hash);
        let is_it = |entry: &Entry| entry.tag() == tag && entry.seqno() == seqno;
        self.entries.find(spread(tag), is_it) != Spot::NONE
    }

    /// Forgets a row; tells whether it was that of a tombstone.
    pub(super) fn take(&mut self, hash: u64, seqno: Seqno) -> Option<bool> {
        let tag = tag_of(hash);
        let is_it = |entry: &Entry| entry.tag() == tag && entry.seqno() == seqno;
        let entry = self
            .entries
            .remove(spread(tag), is_it, &|other: &Entry| other.hash())?;
        Some(entry.is_tombstone())
    }

    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.entries.bytes()
    }
}
