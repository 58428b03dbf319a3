//! `HashTableBench` and `VBucketBench`, with two threads. The reference's threads share one table
//! with striped locks; here a lock guards a whole vBucket, and a bucket has many, so the threads
//! share sixteen. Time is that of the threads' CPU (Linux).

use std::hint::black_box;
use std::sync::{Mutex, MutexGuard, PoisonError};

use engine::VBucket;
use model::{Cas, Draft, Meta};

use crate::common::{NOW, set, vbucket};
use crate::cpu::cpu_ns;
use crate::{Run, report};

const THREADS: u64 = 2;
const ITEMS: u64 = 100_000;
const VBUCKETS: usize = 16;
const ROUNDS: u64 = 8;

struct Shared(Vec<Mutex<VBucket>>);

impl Shared {
    fn empty() -> Self {
        Self((0..VBUCKETS).map(|_| Mutex::new(vbucket())).collect())
    }

    /// Holds the documents of `threads` threads.
    fn filled(threads: u64) -> Self {
        let shared = Self::empty();
        for thread in 0..threads {
            for (index, key) in keys(thread).iter().enumerate() {
                set(&mut shared.of(index), key, b"x");
            }
        }
        shared
    }

    fn of(&self, index: usize) -> MutexGuard<'_, VBucket> {
        self.0[index % VBUCKETS]
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn keys(thread: u64) -> Vec<Vec<u8>> {
    (0..ITEMS)
        .map(|index| format!("\0Thread{thread}::{index}").into_bytes())
        .collect()
}

/// CPU time for each of `operation`'s calls, by two threads at once.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn measure(
    run: &Run,
    name: &str,
    build: impl Fn() -> Shared,
    operation: impl Fn(&Shared, usize, &[u8]) + Sync,
    own_keys: bool,
) {
    let name = format!("HashTableBench/{name}/threads:{THREADS}");
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
                        let mut keys: Vec<(usize, Vec<u8>)> =
                            keys(if own_keys { thread } else { 0 })
                                .into_iter()
                                .enumerate()
                                .collect();
                        if thread % 2 == 1 {
                            // Not in step with each other.
                            keys.reverse();
                        }
                        let (shared, operation) = (&shared, &operation);
                        scope.spawn(move || {
                            let before = cpu_ns();
                            for (index, key) in &keys {
                                operation(shared, *index, key);
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

pub(crate) fn run(run: &Run) {
    measure(
        run,
        "FindForRead",
        || Shared::filled(1),
        |shared, index, key| {
            assert!(shared.of(index).get(key, NOW).is_ok());
        },
        false,
    );
    measure(
        run,
        "Insert",
        Shared::empty,
        |shared, index, key| set(&mut shared.of(index), key, b"x"),
        true,
    );
    measure(
        run,
        "Replace",
        || Shared::filled(THREADS),
        |shared, index, key| set(&mut shared.of(index), key, b"y"),
        true,
    );
    measure(
        run,
        "Delete",
        || Shared::filled(THREADS),
        |shared, index, key| {
            assert!(shared.of(index).delete(key, Cas::ANY, NOW).is_ok());
        },
        true,
    );
    create_delete(run);
}
