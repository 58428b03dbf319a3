use model::{Cas, Datatype, Kind, Meta, Seqno};

use super::*;

fn document(key: &[u8], value: &[u8], kind: Kind) -> Document {
    let meta = Meta {
        cas: Cas(1),
        seqno: Seqno(1),
        kind,
        datatype: Datatype::RAW,
        ..Meta::default()
    };
    Document::from_parts(key, value, &meta)
}

fn recount(table: &Table) -> TableCounts {
    let mut counts = TableCounts::default();
    let mut next = SlotIndex::default();
    std::iter::from_fn(|| table.step(&mut next))
        .filter_map(|slot| table.in_slot(slot))
        .for_each(|found| counts.add(found));
    counts
}

fn put(table: &mut Table, document: Document) -> Option<Document> {
    let place = table.place(document.key());
    table.put(place, document)
}

#[test]
fn table_finds_documents_after_many_resizes() {
    let mut table = Table::new(42);
    for index in 0..5000u32 {
        assert!(
            put(
                &mut table,
                document(&index.to_be_bytes(), b"v", Kind::Mutation)
            )
            .is_none()
        );
    }
    for index in 0..5000u32 {
        let place = table.place(&index.to_be_bytes());
        assert_eq!(table.at(place).unwrap().key(), index.to_be_bytes());
    }
    assert!(table.at(table.place(b"absent")).is_none());
    assert!(table.resizes() >= 8, "{}", table.resizes());
    assert_eq!(*table.counts(), recount(&table));
}

#[test]
fn counts_follow_replacement_eviction_and_removal() {
    let mut table = Table::new(1);
    put(&mut table, document(b"a", b"1", Kind::Mutation));
    put(&mut table, document(b"b", b"1", Kind::Mutation));
    put(&mut table, document(b"c", b"", Kind::Deletion));
    let old = put(
        &mut table,
        document(b"a", b"longer than before", Kind::Mutation),
    )
    .unwrap();
    assert_eq!(old.value(), b"1");
    let evicted = table.at(table.place(b"b")).unwrap().to_non_resident();
    put(&mut table, evicted);
    let counts = *table.counts();
    assert_eq!(
        (counts.items, counts.tombstones, counts.non_resident),
        (2, 1, 1)
    );
    assert_eq!(counts, recount(&table));
    table.remove(b"b");
    table.remove(b"c");
    assert!(table.remove(b"c").is_none());
    let counts = *table.counts();
    assert_eq!(
        (counts.items, counts.tombstones, counts.non_resident),
        (1, 0, 0)
    );
    assert_eq!(counts, recount(&table));
}

#[test]
fn an_empty_table_allocates_nothing() {
    let table = Table::new(7);
    assert_eq!(table.array_bytes(), 0);
    assert!(table.place_of_slot(SlotIndex::default()).is_none());
    assert!(table.step(&mut SlotIndex::default()).is_none());
}

#[test]
fn grows_and_shrinks_in_small_parts() {
    const COUNT: u32 = 100_000;
    let mut table = Table::new(7);
    let mut most = 0;
    for index in 0..COUNT {
        let slots = table.slots();
        put(
            &mut table,
            document(&index.to_be_bytes(), b"", Kind::Mutation),
        );
        most = most.max(table.slots() - slots);
    }
    assert!(most <= 1024, "{most} slots at once");
    assert_eq!(*table.counts(), recount(&table));
    assert_eq!(table.len(), COUNT as usize);
    let filled = COUNT as usize * 100 / table.slots();
    assert!((60..90).contains(&filled), "{filled} %");
    for index in 0..COUNT {
        let slots = table.slots();
        let gone = table.remove(&index.to_be_bytes());
        assert!(gone.is_some(), "{index}");
        let (len, left) = (table.len(), table.slots());
        assert!(
            len == 0 || slots - left <= 448,
            "{slots} to {left} slots at once"
        );
        // All parts were checked since the table has so many free slots.
        assert!(left <= (len + 448) * 10, "{left} slots for {len}");
        if index % 1000 == 0 {
            let found = table.place(&(COUNT - 1).to_be_bytes());
            assert_eq!(table.at(found).is_some(), index != COUNT - 1);
        }
    }
    assert_eq!((table.len(), table.array_bytes()), (0, 0));
    assert_eq!(*table.counts(), TableCounts::default());
}

#[test]
fn a_pass_meets_every_document_once() {
    let mut table = Table::new(3);
    for index in 0..10_000_u32 {
        put(
            &mut table,
            document(&index.to_be_bytes(), b"", Kind::Mutation),
        );
    }
    let mut next = table.some_slot(0);
    let mut met = std::collections::BTreeSet::new();
    let mut steps = 0;
    while let Some(slot) = table.step(&mut next) {
        steps += 1;
        if let Some(found) = table.in_slot(slot) {
            assert!(met.insert(found.key().to_vec()));
        }
    }
    assert_eq!((met.len(), steps), (10_000, table.slots()));
    assert_eq!(next, SlotIndex::default());
}

/// Hashes that differ in few bits, so that entries crowd in few buckets and share tags.
fn crowded(number: u64) -> u64 {
    let scattered = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    scattered & 0xc000_0000_0f00_0003
}

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Number(std::num::NonZeroU64);

/// Entries, and the set that they should equal.
struct Compared {
    entries: Parts<Number>,
    held: std::collections::BTreeSet<Number>,
    hash: fn(u64) -> u64,
}

impl Compared {
    fn new(hash: fn(u64) -> u64) -> Self {
        Self {
            entries: Parts::default(),
            held: std::collections::BTreeSet::new(),
            hash,
        }
    }

    /// Returns whether the number was there.
    fn remove(&mut self, number: Number) -> bool {
        let hash = self.hash;
        let rehash = |other: &Number| hash(other.0.get());
        let is_it = |other: &Number| *other == number;
        let gone = self.entries.remove(hash(number.0.get()), is_it, &rehash);
        let held = self.held.remove(&number);
        assert_eq!(gone, held.then_some(number));
        held
    }

    fn insert(&mut self, number: Number) {
        let hash = self.hash;
        let rehash = |other: &Number| hash(other.0.get());
        self.entries.insert(hash(number.0.get()), number, &rehash);
        self.held.insert(number);
    }

    fn find(&self, number: Number) -> Option<Number> {
        let hash = (self.hash)(number.0.get());
        let found = self.entries.find(hash, |&other| other == number);
        self.entries.get(found).copied()
    }

    /// Adds and removes numbers up to `most` in turns, then removes all.
    fn run(&mut self, steps: u64, most: u64) {
        let mut random = 7_u64;
        for step in 0..steps {
            random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
            let number = std::num::NonZeroU64::new(1 + (random >> 33) % most).unwrap();
            let number = Number(number);
            let held = self.held.get(&number).copied();
            assert_eq!(self.find(number), held, "step {step}");
            // Grows for a while, then shrinks, then again.
            let grows = step / 10_000 % 2 == 0 || random >> 62 == 0;
            if !self.remove(number) && grows {
                self.insert(number);
            }
            assert_eq!(self.entries.len(), self.held.len());
        }
        for number in self.held.clone() {
            assert!(self.remove(number));
        }
        assert_eq!((self.entries.len(), self.entries.slots()), (0, 0));
    }
}

#[test]
fn crowded_part_finds_only_its_entries() {
    Compared::new(crowded).run(60_000, 1500);
    let scattered = |number: u64| number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    Compared::new(scattered).run(60_000, 15_000);
}

#[test]
fn prefetched_candidates_include_the_entries_found() {
    let mut table = Table::new(7);
    let absent = hash_of(&table.hasher, b"absent");
    assert_eq!(table.documents.candidates(absent).count(), 0);
    table.documents.prefetch(absent);
    let keys: Vec<[u8; 4]> = (0..5000_u32).map(u32::to_be_bytes).collect();
    for key in &keys {
        put(&mut table, document(key, b"v", Kind::Mutation));
    }
    let prefetched = |key: &[u8]| {
        let hash = hash_of(&table.hasher, key);
        let mut candidates = table.documents.candidates(hash);
        candidates.any(|document| document.key() == key)
    };
    // Some entries are behind a full bucket.
    let found = keys.iter().filter(|key| prefetched(*key)).count();
    assert!(found > 4000, "{found} of 5000");
    let wrong = keys.iter().map(|key| {
        let candidates = table.documents.candidates(hash_of(&table.hasher, key));
        candidates.filter(|document| document.key() != key).count()
    });
    let wrong: usize = wrong.sum();
    assert!(wrong < 500, "{wrong} others of 5000");
}
