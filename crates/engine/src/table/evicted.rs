//! Documents that left memory whole: where their rows are, and what tells their keys apart.

use std::num::NonZeroU64;

use model::{Datatype, Document, Seqno};
use siphasher::sip::SipHasher13;

use super::part;
use super::parts::{Parts, Spot};

const SEQNO_BITS: u32 = 40;
const TAG_BITS: u32 = 23;
const GONE_BIT: u64 = 1 << SEQNO_BITS;
const TAG_SHIFT: u32 = SEQNO_BITS + 1;

/// What is kept of the document beside its print, in the lowest bits of the same word.
const ATTRIBUTED: u64 = 1;
const COMMITTED: u64 = 1 << 1;
const TRAITS: u64 = ATTRIBUTED | COMMITTED;

/// What is still known of a document that left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Remains {
    /// Its row.
    pub(crate) seqno: Seqno,
    /// It is deleted.
    pub(crate) tombstone: bool,
    /// It has attributes.
    pub(crate) attributed: bool,
    /// It was a durable write.
    pub(crate) committed: bool,
}

/// A part of the key's hash (23 bits), whether it is a tombstone (1), and its seqno (40); the
/// print of its key (62 bits of another hash) and its traits (2).
#[derive(Clone, Copy)]
struct EvictedRow {
    place: NonZeroU64,
    print: u64,
}

impl part::TableEntry for EvictedRow {
    type Line = u64;
    const HASHES_QUICKLY: bool = true;
}

impl EvictedRow {
    fn new(hash: u64, print: u64, document: &Document) -> Self {
        let trait_if = |is_so: bool, bit: u64| if is_so { bit } else { 0 };
        let gone = trait_if(document.kind().is_tombstone(), GONE_BIT);
        let bits = tag_of(hash) << TAG_SHIFT | gone | document.seqno().0;
        Self {
            // No change has the seqno zero.
            place: NonZeroU64::new(bits).unwrap_or(NonZeroU64::MIN),
            print: print & !TRAITS
                | trait_if(document.datatype().contains(Datatype::XATTR), ATTRIBUTED)
                | trait_if(document.kind().is_commit(), COMMITTED),
        }
    }

    fn tag(self) -> u64 {
        self.place.get() >> TAG_SHIFT
    }

    fn seqno(self) -> Seqno {
        Seqno(self.place.get() & (GONE_BIT - 1))
    }

    fn is_tombstone(self) -> bool {
        self.place.get() & GONE_BIT != 0
    }

    fn has_print(self, print: u64) -> bool {
        (self.print ^ print) & !TRAITS == 0
    }

    fn remains(self) -> Remains {
        Remains {
            seqno: self.seqno(),
            tombstone: self.is_tombstone(),
            attributed: self.print & ATTRIBUTED != 0,
            committed: self.print & COMMITTED != 0,
        }
    }

    /// All that can be known of the key's hash later on decides where the entry lies.
    fn hash(self) -> u64 {
        spread(self.tag())
    }
}

fn tag_of(hash: u64) -> u64 {
    hash >> (64 - TAG_BITS)
}

/// Which of so many tables a key lies in, by none of the bits that place it there.
#[inline]
fn index_of(tag: u64, tables: usize) -> usize {
    let mixed = tag.wrapping_mul(0x85eb_ca6b) & u64::from(u32::MAX);
    ((mixed * tables as u64) >> 32) as usize
}

fn spread(tag: u64) -> u64 {
    tag.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Where the rows are of keys that the table does not hold any more.
///
/// It knows 85 bits of the hash of each key. Of a million keys, one is mistaken for another in
/// 10^19 look-ups; only the row tells.
///
/// Cost: 16 bytes an entry, 21 with what is free.
pub(super) struct Evicted {
    /// The keys are divided among these. How many there are differs from one vBucket to the next:
    /// the parts of a table are all about as large, and the vBuckets of a node have about as many
    /// keys. If all of their parts grew at once, each time the memory of those of the size before
    /// would be of no use until the last of them has grown.
    tables: Box<[Parts<EvictedRow>]>,
    bytes: usize,
    keys: (u64, u64),
    /// No document that left has a higher revision.
    max_rev: u64,
}

/// Tables of a vBucket, at least; fewer than twice as many.
const TABLES_MIN: u64 = 4;

impl Evicted {
    /// With the keys of the prints, which clients must not be able to foresee.
    pub(super) fn new(keys: (u64, u64)) -> Self {
        let tables = TABLES_MIN + keys.0 % TABLES_MIN;
        let tables: Box<[_]> = (0..tables).map(|_| Parts::default()).collect();
        Self {
            bytes: size_of::<Self>() + size_of_val(&*tables),
            tables,
            keys,
            max_rev: 0,
        }
    }

    fn print(&self, key: &[u8]) -> u64 {
        SipHasher13::new_with_keys(self.keys.0, self.keys.1).hash(key)
    }

    /// Whether a row of this seqno can be remembered.
    pub(super) fn fits(seqno: Seqno) -> bool {
        seqno.0 < GONE_BIT
    }

    fn table(&self, tag: u64) -> &Parts<EvictedRow> {
        &self.tables[index_of(tag, self.tables.len())]
    }

    /// Changes the table of `tag`, and counts what it takes then.
    fn change<T>(&mut self, tag: u64, change: impl FnOnce(&mut Parts<EvictedRow>) -> T) -> T {
        let table = &mut self.tables[index_of(tag, self.tables.len())];
        let before = table.bytes();
        let result = change(table);
        self.bytes = self.bytes + table.bytes() - before;
        result
    }

    pub(super) fn insert(&mut self, hash: u64, document: &Document) {
        let entry = EvictedRow::new(hash, self.print(document.key()), document);
        self.max_rev = self.max_rev.max(document.rev());
        self.change(entry.tag(), |table| {
            table.insert(entry.hash(), entry, &|other: &EvictedRow| other.hash());
        });
    }

    /// Asks for the memory that a look-up of this hash will look at first.
    #[inline]
    pub(super) fn prefetch(&self, hash: u64) {
        let tag = tag_of(hash);
        self.table(tag).prefetch(spread(tag));
    }

    /// What is known of a key with this hash.
    pub(super) fn find(&self, hash: u64, key: &[u8]) -> Option<Remains> {
        let (tag, print) = (tag_of(hash), self.print(key));
        let is_it = |entry: &EvictedRow| entry.tag() == tag && entry.has_print(print);
        let table = self.table(tag);
        let spot = table.find(spread(tag), is_it);
        Some(table.get(spot)?.remains())
    }

    pub(super) fn contains(&self, hash: u64, seqno: Seqno) -> bool {
        let tag = tag_of(hash);
        let is_it = |entry: &EvictedRow| entry.tag() == tag && entry.seqno() == seqno;
        self.table(tag).find(spread(tag), is_it) != Spot::NONE
    }

    /// Forgets a row; returns whether it was that of a tombstone.
    pub(super) fn take(&mut self, hash: u64, seqno: Seqno) -> Option<bool> {
        let tag = tag_of(hash);
        let is_it = |entry: &EvictedRow| entry.tag() == tag && entry.seqno() == seqno;
        let entry = self.change(tag, |table| {
            table.remove(spread(tag), is_it, &|other: &EvictedRow| other.hash())
        })?;
        Some(entry.is_tombstone())
    }

    pub(super) fn max_rev(&self) -> u64 {
        self.max_rev
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Bytes of a part, on average.
    #[cfg(test)]
    pub(super) fn part_bytes(&self) -> usize {
        let bytes: usize = self.tables.iter().map(Parts::array_bytes).sum();
        bytes / self.tables.iter().map(Parts::parts).sum::<usize>().max(1)
    }
}
