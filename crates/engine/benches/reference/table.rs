//! `HashTableBench`, `VBucketBench` and `PagingVisitorBench`. Time is that of the threads' CPU
//! (Linux), but for the paging visitor's and for clearing.
//!
//! `HashTableBench/*` times the table alone, as the reference does: documents are made before,
//! what was replaced is freed in the measured time. The reference's threads share one table with
//! striped locks that was sized beforehand; here a lock guards a whole vBucket, and a bucket has
//! many, so the threads share sixteen, and tables grow in the measured time. `WholeWrite/*` is the
//! same with all that a vBucket does for an operation of a client: checks, seqno and CAS, log.

use std::hint::black_box;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use engine::{BareTable, VBucket, VbConfig};
use model::{Cas, Document, Draft, Meta, Seqno, VbId, VbState};

use crate::common::{FIRST, NOW, flush, set, vbucket};
use crate::cpu::cpu_ns;
use crate::{Run, report};

const THREADS: u64 = 2;
const ITEMS: u64 = 100_000;
const VBUCKETS: usize = 16;
const ROUNDS: u64 = 8;

/// What the threads share: sixteen of a thing, each with its lock.
struct Shared<T>(Vec<Mutex<T>>);

impl<T> Shared<T> {
    fn of(&self, index: usize) -> MutexGuard<'_, T> {
        self.0[index % VBUCKETS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn new(make: impl Fn() -> T) -> Self {
        Self((0..VBUCKETS).map(|_| Mutex::new(make())).collect())
    }
}

fn vbuckets(threads: u64) -> Shared<VBucket> {
    let shared = Shared::new(vbucket);
    for thread in 0..threads {
        for (index, key) in keys(thread) {
            set(&mut shared.of(index), &key, b"x");
        }
    }
    shared
}

fn tables(threads: u64) -> Shared<BareTable> {
    let shared = Shared::new(|| BareTable::new(0));
    for thread in 0..threads {
        for (index, document) in documents(keys(thread)) {
            drop(shared.of(index).put(document));
        }
    }
    shared
}

fn keys(thread: u64) -> Vec<(usize, Vec<u8>)> {
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

/// CPU time for each of `operation`'s calls, by two threads at once. `build` makes what they
/// share, `items` what each of them needs, both outside of the measured time.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn measure<T: Send, I: Send>(
    run: &Run,
    name: &str,
    build: impl Fn() -> Shared<T>,
    items: impl Fn(u64) -> Vec<(usize, I)>,
    operation: impl Fn(&Shared<T>, usize, &mut I) + Sync,
) {
    let name = format!("{name}/threads:{THREADS}");
    if !run.wants(&name) {
        return;
    }
    // The clock goes in steps, so the sum of several rounds counts.
    let total: u64 = (0..ROUNDS)
        .map(|_| {
            let shared = build();
            std::thread::scope(|scope| {
                let threads: Vec<_> = (0..THREADS)
                    .map(|thread| {
                        let mut items = items(thread);
                        if thread % 2 == 1 {
                            // Not in step with each other.
                            items.reverse();
                        }
                        let (shared, operation) = (&shared, &operation);
                        scope.spawn(move || {
                            let before = cpu_ns();
                            for (index, item) in &mut items {
                                operation(shared, *index, item);
                            }
                            cpu_ns() - before
                        })
                    })
                    .collect();
                let taken = threads.into_iter().filter_map(|thread| thread.join().ok());
                taken.sum::<u64>()
            })
        })
        .sum();
    let each = total as f64 / (ROUNDS * THREADS * ITEMS) as f64;
    report(&name, each, &[("items_per_second", 1e9 / each)]);
}

fn hash_table(run: &Run) {
    // All threads look for the keys of the first one.
    for name in ["FindForRead", "FindForWrite"] {
        let name = format!("HashTableBench/{name}");
        measure(
            run,
            &name,
            || tables(1),
            |_| keys(0),
            |shared, index, key| {
                let table = shared.of(index);
                assert!(black_box(table.find(key)).is_some());
            },
        );
    }
    let put = |shared: &Shared<BareTable>, index, document: &mut Option<Document>| {
        if let Some(document) = document.take() {
            drop(shared.of(index).put(document));
        }
    };
    let new = |thread| taken_once(documents(keys(thread)));
    measure(run, "HashTableBench/Insert", || tables(0), new, put);
    measure(run, "HashTableBench/Replace", || tables(THREADS), new, put);
    measure(
        run,
        "HashTableBench/Delete",
        || tables(THREADS),
        keys,
        |shared, index, key| assert!(shared.of(index).remove(key).is_some()),
    );
    for collections in [1, 8, 64, 512, 1000] {
        let name = format!("HashTableBench/MultiCollectionInsert/{collections}");
        let spread = |thread| {
            let mut items = keys(thread);
            for (index, key) in &mut items {
                // Two bytes of LEB128, from collection 128 on.
                let collection = 128 + *index % collections;
                let prefix = [(collection & 0x7f) as u8 | 0x80, (collection >> 7) as u8];
                key.splice(..1, prefix);
            }
            taken_once(documents(items))
        };
        measure(run, &name, || tables(0), spread, put);
    }
}

fn whole_writes(run: &Run) {
    measure(
        run,
        "WholeWrite/Get",
        || vbuckets(1),
        |_| keys(0),
        |shared, index, key| {
            assert!(shared.of(index).get(key, NOW).is_ok());
        },
    );
    measure(
        run,
        "WholeWrite/Insert",
        || vbuckets(0),
        keys,
        |shared, index, key| set(&mut shared.of(index), key, b"x"),
    );
    measure(
        run,
        "WholeWrite/Replace",
        || vbuckets(THREADS),
        keys,
        |shared, index, key| set(&mut shared.of(index), key, b"y"),
    );
    measure(
        run,
        "WholeWrite/Delete",
        || vbuckets(THREADS),
        keys,
        |shared, index, key| {
            assert!(shared.of(index).delete(key, Cas::ANY, NOW).is_ok());
        },
    );
}

/// `HashTableBench/Clear`: 100,000 documents with values of 1 to 256 bytes are freed.
fn clear(run: &Run) {
    let build = || {
        let mut table = BareTable::new(0);
        for (index, key) in keys(0) {
            let value = vec![b'v'; 1 + index % 256];
            drop(table.put(document(&key, &value, index)));
        }
        Some(table)
    };
    run.single("HashTableBench/Clear", 11, build, |table| {
        drop(table.take());
    });
}

/// `VBucketBench/CreateDeleteStoredValue`: a document is made and freed.
fn create_delete(run: &Run) {
    let name = "VBucketBench/CreateDeleteStoredValue";
    if !run.wants(name) {
        return;
    }
    let before = cpu_ns();
    for _ in 0..ROUNDS * ITEMS {
        drop(black_box(Draft::new(b"\0key", b"value", &Meta::default())));
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let each = (cpu_ns() - before) as f64 / (ROUNDS * ITEMS) as f64;
    report(name, each, &[]);
}

/// `PagingVisitorBench/SingleVBucket`: every document of a vBucket that holds `mib` is evicted
/// whole, in the steps in which that is done under its lock.
fn paging_visitor(run: &Run, mib: usize) {
    const SLOTS_A_STEP: usize = 32;
    let build = || {
        let config = VbConfig {
            evicts_keys: true,
            ..VbConfig::default()
        };
        let mut vbucket = VBucket::new(VbId(0), VbState::Active, FIRST, Arc::new(config));
        let mut index = 0;
        while vbucket.memory_bytes() < mib << 20 {
            let key = format!("\0key-of-24-characters-{index:03}");
            set(&mut vbucket, key.as_bytes(), &[b'v'; 1024]);
            index += 1;
            if index % 1000 == 0 {
                flush(&mut vbucket);
            }
        }
        flush(&mut vbucket);
        vbucket
    };
    let name = format!("PagingVisitorBench/SingleVBucket/24/{mib}");
    run.single(&name, 5, build, |vbucket| {
        let mut garbage = Vec::new();
        while vbucket.hash_stats().entries > 0 {
            vbucket.evict_cold(SLOTS_A_STEP, usize::MAX, NOW, &mut garbage);
            garbage.clear();
        }
    });
}

pub(crate) fn run(run: &Run) {
    hash_table(run);
    whole_writes(run);
    clear(run);
    create_delete(run);
    for mib in [8, 102, 205] {
        paging_visitor(run, mib);
    }
}
