//! `HashTableBench`. Times are CPU times of the threads (Linux), except for clearing.
//!
//! `HashTableBench/*` times only the table, as the reference does: documents are created before,
//! replaced ones are freed in the measured time. The reference's threads share one table with 47
//! locks. Here a lock guards a whole vBucket, of which a bucket has many, so the threads share 47
//! tables. The tables have their final size, except for `InsertGrowing`, and shrink in the measured
//! time when most documents are deleted. All threads start at once; each has created its own
//! documents.

use std::hint::black_box;
use std::sync::{Barrier, Mutex, MutexGuard, PoisonError};

use benchkit::{Figures, REPETITIONS, Rows, Summary, per, thread_cpu_ns};
use engine::{BareCounts, BareTable};
use model::{CollectionId, Document, Meta, Seqno};

pub(crate) const THREADS: u64 = 2;
pub(crate) const ITEMS: u64 = 100_000;
const VBUCKETS: usize = 47;

/// A value with its lock, aligned to a cache line like a vBucket's slot.
#[repr(align(64))]
struct Slot<T>(Mutex<T>);

/// Values shared by the threads, each with its lock.
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

/// Returns tables for the documents of all threads.
fn tables() -> Shared<BareTable> {
    let each = THREADS * ITEMS / VBUCKETS as u64;
    Shared::new(|| BareTable::with_room(0, each as usize))
}

/// Stores documents for all keys of a thread.
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

/// Measures this thread's CPU time for each of [`ITEMS`] operations, ten times.
pub(crate) fn each_of_items(mut all: impl FnMut()) -> Figures {
    let one = |_| {
        let before = thread_cpu_ns();
        all();
        per(thread_cpu_ns() - before, ITEMS)
    };
    let samples: Vec<f64> = (0..REPETITIONS).map(one).collect();
    Figures::of_times(&samples)
}

/// Adds a row with the CPU time of each call of `operation`, in two threads at once. `build` makes
/// the shared values, `items` the values of each thread; both outside the measured time.
pub(crate) fn add_shared<'a, T: Send, I>(
    rows: &mut Rows<'a>,
    name: &str,
    build: impl Fn() -> Shared<T> + 'a,
    items: impl Fn(&Shared<T>, u64) -> Vec<(usize, I)> + Sync + 'a,
    operation: impl Fn(&Shared<T>, usize, &mut I) + Sync + 'a,
) {
    rows.add(format!("{name}/threads:{THREADS}"), move || {
        measure(&build, &items, &operation)
    });
}

fn measure<T: Send, I>(
    build: &impl Fn() -> Shared<T>,
    items: &(impl Fn(&Shared<T>, u64) -> Vec<(usize, I)> + Sync),
    operation: &(impl Fn(&Shared<T>, usize, &mut I) + Sync),
) -> Figures {
    let round = |shared: &Shared<T>, thread, begin: &Barrier| {
        let mut items = items(shared, thread);
        if thread % 2 == 1 {
            // So that the threads do not run in step.
            items.reverse();
        }
        begin.wait();
        let before = thread_cpu_ns();
        for (index, item) in &mut items {
            operation(shared, *index, item);
        }
        let took = thread_cpu_ns() - before;
        begin.wait();
        took
    };
    let samples: Vec<f64> = (0..REPETITIONS)
        .map(|_| {
            let (shared, begin) = (build(), Barrier::new(THREADS as usize));
            let round = |thread| round(&shared, thread, &begin);
            let taken = std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|thread| scope.spawn(move || round(thread)))
                    .collect();
                let taken = threads.into_iter().filter_map(|thread| thread.join().ok());
                taken.sum::<u64>()
            });
            per(taken, THREADS * ITEMS)
        })
        .collect();
    Figures::of_times(&samples).and("items_per_second", 1e9 / Summary::of(&samples).median)
}

fn hash_table(rows: &mut Rows<'_>) {
    // All threads look up the keys of the first one.
    for name in ["FindForRead", "FindForWrite"] {
        add_shared(
            rows,
            &format!("HashTableBench/{name}"),
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
    add_shared(rows, "HashTableBench/Insert", tables, new, put);
    add_shared(rows, "HashTableBench/InsertGrowing", small, new, put);
    add_shared(rows, "HashTableBench/Replace", tables, stored, put);
    add_shared(
        rows,
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
        let spread = move |_: &Shared<BareTable>, thread| {
            taken_once(documents(keys_of_collections(thread, collections)))
        };
        add_shared(rows, &name, tables, spread, put);
    }
}

/// Returns the keys of a thread, spread over so many collections.
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

/// `HashTableBench/Clear`: frees 100,000 documents with values of 1 to 256 bytes.
/// `MultiCollectionClear` spreads them over collections, which makes no difference to a table.
fn clear(rows: &mut Rows<'_>) {
    let build = |keys: Vec<(usize, Vec<u8>)>| {
        let mut table = BareTable::new(0);
        for (index, key) in keys {
            let value = vec![b'v'; 1 + index % 256];
            drop(table.put(document(&key, &value, index)));
        }
        Some(table)
    };
    let clear = |table: &mut Option<BareTable>| drop(table.take());
    rows.add_timed("HashTableBench/Clear", move || build(keys(0)), clear);
    for collections in [100, 512, 1000] {
        let name = format!("HashTableBench/MultiCollectionClear/{collections}");
        let build = move || build(keys_of_collections(0, collections));
        rows.add_timed(name, build, clear);
    }
}

/// `HashTableBench/HTStatsEpilogue`: only the counting when a document replaces another. The
/// argument is the number of existing collections.
fn stats_epilogue(collections: u32) -> Figures {
    let ids = (0..collections).map(|index| CollectionId(128 + index));
    let mut counts = BareCounts::new(ids);
    let documents = documents(keys_of_collections(0, collections as usize));
    for (_, document) in &documents {
        counts.replaced(document, None);
    }
    each_of_items(|| {
        for (_, document) in &documents {
            black_box(&mut counts).replaced(document, Some(document));
        }
    })
}

pub(crate) fn add(rows: &mut Rows<'_>) {
    hash_table(rows);
    clear(rows);
    for collections in [1, 8, 64, 512, 1000] {
        let name = format!("HashTableBench/HTStatsEpilogue/{collections}");
        rows.add(name, move || stats_epilogue(collections));
    }
}
