//! `HashTableBench`. Time is that of the threads' CPU (Linux), but for clearing.
//!
//! `HashTableBench/*` times the table alone, as the reference does: documents are made before,
//! what was replaced is freed in the measured time. The reference's threads share one table with
//! 47 locks; here a lock guards a whole vBucket, and a bucket has many, so the threads share 47.
//! They are sized beforehand, but for `InsertGrowing`, and shrink in the measured time when most
//! is deleted. All threads begin at once, and each made the documents of its keys itself.

use std::hint::black_box;
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};

use engine::{BareCounts, BareTable};
use model::{CollectionId, Document, Meta, Seqno};

use crate::cpu::cpu_ns;
use crate::{Run, report};

pub(crate) const THREADS: u64 = 2;
pub(crate) const ITEMS: u64 = 100_000;
const VBUCKETS: usize = 47;
pub(crate) const ROUNDS: u64 = 8;

/// A thing with its lock, which begins a cache line as a vBucket's slot does.
#[repr(align(64))]
struct Slot<T>(Mutex<T>);

/// What the threads share: many of a thing, each with its lock.
pub(crate) struct Shared<T>(Vec<Slot<T>>);

impl<T> Shared<T> {
    pub(crate) fn of(&self, index: usize) -> MutexGuard<'_, T> {
        self.0[index % VBUCKETS]
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn new(make: impl Fn() -> T) -> Self {
        Self((0..VBUCKETS).map(|_| Slot(Mutex::new(make()))).collect())
    }
}

/// Tables for the documents of all threads.
fn tables() -> Shared<BareTable> {
    let each = THREADS * ITEMS / VBUCKETS as u64;
    Shared::new(|| BareTable::with_room(0, each as usize))
}

/// Puts documents for all keys of a thread.
fn put_all(shared: &Shared<BareTable>, thread: u64) {
    for (index, document) in documents(keys(thread)) {
        drop(shared.of(index).put(document));
    }
}

pub(crate) fn keys(thread: u64) -> Vec<(usize, Vec<u8>)> {
    let keys = (0..ITEMS).map(|index| format!("\0Thread{thread}::{index}").into_bytes());
    keys.enumerate().collect()
}

fn document(key: &[u8], value: &[u8], seqno: usize) -> Document {
    let meta = Meta {
        seqno: Seqno(seqno as u64 + 1),
        ..Meta::default()
    };
    Document::from_parts(key, value, &meta)
}

fn documents(keys: Vec<(usize, Vec<u8>)>) -> Vec<(usize, Document)> {
    let made = keys.into_iter();
    made.map(|(index, key)| (index, document(&key, b"x", index)))
        .collect()
}

fn taken_once(documents: Vec<(usize, Document)>) -> Vec<(usize, Option<Document>)> {
    let each = documents.into_iter();
    each.map(|(index, document)| (index, Some(document)))
        .collect()
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn per_operation(ns: u64, operations: u64) -> f64 {
    ns as f64 / operations as f64
}

/// CPU time for each of `operation`'s calls, by two threads at once. `build` makes what they
/// share, `items` in each thread what that one needs, both outside of the measured time.
pub(crate) fn measure<T: Send, I>(
    run: &Run,
    name: &str,
    build: impl Fn() -> Shared<T>,
    items: impl Fn(&Shared<T>, u64) -> Vec<(usize, I)> + Sync,
    operation: impl Fn(&Shared<T>, usize, &mut I) + Sync,
) {
    let name = format!("{name}/threads:{THREADS}");
    if !run.wants(&name) {
        return;
    }
    let round = |shared: &Shared<T>, thread, begin: &Barrier| {
        let mut items = items(shared, thread);
        if thread % 2 == 1 {
            // Not in step with each other.
            items.reverse();
        }
        begin.wait();
        let before = cpu_ns();
        for (index, item) in &mut items {
            operation(shared, *index, item);
        }
        let took = cpu_ns() - before;
        begin.wait();
        took
    };
    let mut rounds: Vec<u64> = (0..ROUNDS)
        .map(|_| {
            let (shared, begin) = (build(), Barrier::new(THREADS as usize));
            let round = |thread| round(&shared, thread, &begin);
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|thread| scope.spawn(move || round(thread)))
                    .collect();
                let taken = threads.into_iter().filter_map(|thread| thread.join().ok());
                taken.sum::<u64>()
            })
        })
        .collect();
    rounds.sort_unstable();
    let each = |total| per_operation(total, THREADS * ITEMS);
    let median = each(rounds[rounds.len() / 2]);
    let counters = [
        ("items_per_second", 1e9 / median),
        ("least_ns", each(rounds[0])),
    ];
    report(&name, median, &counters);
}

fn hash_table(run: &Run) {
    // All threads look for the keys of the first one.
    for name in ["FindForRead", "FindForWrite"] {
        let name = format!("HashTableBench/{name}");
        measure(
            run,
            &name,
            || {
                let shared = tables();
                put_all(&shared, 0);
                shared
            },
            |_, _| keys(0),
            |shared, index, key| {
                let table = shared.of(index);
                assert!(black_box(table.find(key)).is_some());
            },
        );
    }
    let put = |shared: &Shared<BareTable>, index, document: &mut Option<Document>| {
        if let Some(document) = document.take() {
            let old = shared.of(index).put(document);
            drop(old);
        }
    };
    let new = |_: &Shared<BareTable>, thread| taken_once(documents(keys(thread)));
    let stored = |shared: &Shared<BareTable>, thread| {
        put_all(shared, thread);
        taken_once(documents(keys(thread)))
    };
    let small = || Shared::new(|| BareTable::new(0));
    measure(run, "HashTableBench/Insert", tables, new, put);
    measure(run, "HashTableBench/InsertGrowing", small, new, put);
    measure(run, "HashTableBench/Replace", tables, stored, put);
    measure(
        run,
        "HashTableBench/Delete",
        tables,
        |shared, thread| {
            put_all(shared, thread);
            keys(thread)
        },
        |shared, index, key| {
            let old = shared.of(index).remove(key);
            assert!(old.is_some());
        },
    );
    for collections in [1, 8, 64, 512, 1000] {
        let name = format!("HashTableBench/MultiCollectionInsert/{collections}");
        let spread = |_: &Shared<BareTable>, thread| {
            taken_once(documents(keys_of_collections(thread, collections)))
        };
        measure(run, &name, tables, spread, put);
    }
}

/// The keys of a thread, spread over so many collections.
fn keys_of_collections(thread: u64, collections: usize) -> Vec<(usize, Vec<u8>)> {
    let mut items = keys(thread);
    for (index, key) in &mut items {
        // Two bytes of LEB128, from collection 128 on.
        let collection = 128 + *index % collections;
        let prefix = [(collection & 0x7f) as u8 | 0x80, (collection >> 7) as u8];
        key.splice(..1, prefix);
    }
    items
}

/// `HashTableBench/Clear`: 100,000 documents with values of 1 to 256 bytes are freed.
/// `MultiCollectionClear` spreads them over collections, which tables do not tell apart.
fn clear(run: &Run) {
    let build = |keys: Vec<(usize, Vec<u8>)>| {
        let mut table = BareTable::new(0);
        for (index, key) in keys {
            let value = vec![b'v'; 1 + index % 256];
            drop(table.put(document(&key, &value, index)));
        }
        Some(table)
    };
    let clear = |table: &mut Option<BareTable>| drop(table.take());
    run.single("HashTableBench/Clear", 11, || build(keys(0)), clear);
    for collections in [100, 512, 1000] {
        let name = format!("HashTableBench/MultiCollectionClear/{collections}");
        let build = || build(keys_of_collections(0, collections));
        run.single(&name, 11, build, clear);
    }
}

/// `HashTableBench/HTStatsEpilogue`: what is counted when a document takes the place of another,
/// and nothing else. The argument is the number of collections that exist.
fn stats_epilogue(run: &Run) {
    for collections in [1, 8, 64, 512, 1000] {
        let name = format!("HashTableBench/HTStatsEpilogue/{collections}");
        if !run.wants(&name) {
            continue;
        }
        let ids = (0..collections).map(|index| CollectionId(128 + index));
        let mut counts = BareCounts::new(ids);
        let documents = documents(keys_of_collections(0, collections as usize));
        for (_, document) in &documents {
            counts.replaced(document, None);
        }
        let before = cpu_ns();
        for _ in 0..ROUNDS {
            for (_, document) in &documents {
                black_box(&mut counts).replaced(document, Some(document));
            }
        }
        let each = per_operation(cpu_ns() - before, ROUNDS * ITEMS);
        assert_eq!(counts.items(), ITEMS);
        report(&name, each, &[]);
    }
}

pub(crate) fn run(run: &Run) {
    hash_table(run);
    clear(run);
    stats_epilogue(run);
}
