//! `perf_latency`: duration of every Add, Get, Replace and Delete of one vBucket, alone and beside a stream of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, Builder};
use std::time::Instant;

use bucket::{Bucket, BucketOptions, Eviction, Flushed, ReadySet, Wake};
use engine::{Outcome, StoreMode, VbConfig, Write};
use model::{Cas, Draft, Meta, VbUuid};
use storage::MemStore;

use crate::follower::{Followed, Follower, Unpark};
use crate::variants::{Variant, Work};
use crate::{Fixed, NAME, VB, key, now, report};

fn open() -> Arc<Bucket<MemStore>> {
    let options = BucketOptions {
        name: NAME.into(),
        vbuckets: 1,
        quota_bytes: 1 << 30,
        vb: Arc::new(VbConfig::default()),
        clean: true,
        eviction: Eviction::Values,
        compression: model::CompressionMode::Passive,
        compress: |_| None,
        expiry_pass_s: 0,
        history: bucket::HistoryRetention::default(),
        purge_age_s: 0,
        flush_interval_ms: 50,
        member: false,
        buffers: Arc::default(),
    };
    let mut uuids = || VbUuid(7);
    let bucket = Bucket::open(options, MemStore::default(), Arc::new(Fixed), &mut uuids)
        .expect("a store in memory opens");
    bucket.warm_up(&mut uuids);
    bucket
}

/// Sorted durations of a pass, and page faults of its threads.
#[derive(Default)]
struct Times {
    times: Vec<u64>,
    faults: u64,
}

impl Times {
    fn at(&self, permille: usize) -> f64 {
        nanoseconds(self.times[self.times.len() * permille / 1000])
    }

    /// Returns the standard deviation.
    fn deviation(&self) -> f64 {
        let count = nanoseconds(self.times.len() as u64);
        let mean = self.times.iter().copied().map(nanoseconds).sum::<f64>() / count;
        let square = |&time: &u64| (nanoseconds(time) - mean).powi(2);
        (self.times.iter().map(square).sum::<f64>() / count).sqrt()
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn nanoseconds(count: u64) -> f64 {
    count as f64
}

/// Returns the number of page faults of the calling thread so far.
fn page_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let minor = after_name.split_whitespace().nth(7);
    minor.and_then(|count| count.parse().ok()).unwrap_or(0)
}

type Passes = [(&'static str, Times); 4];

/// All passes over the documents of one bucket.
struct Run<'a> {
    bucket: &'a Bucket<MemStore>,
    variant: &'a Variant,
    value: Vec<u8>,
    /// Reads of evicted values.
    away: AtomicU64,
}

impl Run<'_> {
    /// Runs one pass over all documents. Returns the duration of every operation. Changes are
    /// flushed after it, as a node does twenty times a second.
    fn pass(&self, operation: impl Fn(&[u8]) + Sync) -> Times {
        let mut all = Times::default();
        if self.variant.threads == 1 {
            all = self.part(0, &operation);
        } else {
            thread::scope(|scope| {
                let part = |number| {
                    let operation = &operation;
                    scope.spawn(move || self.part(number, operation))
                };
                let parts: Vec<_> = (0..self.variant.threads).map(part).collect();
                for thread in parts {
                    let part = thread.join().expect("no writer panics");
                    all.times.extend(part.times);
                    all.faults += part.faults;
                }
            });
        }
        assert_eq!(self.bucket.flush_step(), Flushed::Clean, "into memory");
        all.times.sort_unstable();
        all
    }

    /// Runs the part of one thread.
    fn part(&self, thread: u32, operation: impl Fn(&[u8])) -> Times {
        let (documents, threads) = (self.variant.documents, self.variant.threads);
        let faults = page_faults();
        let mut times = Vec::with_capacity((documents / threads) as usize + 1);
        for number in (thread..documents).step_by(threads as usize) {
            let key = key(number);
            let start = Instant::now();
            operation(&key);
            times.push(start.elapsed().as_nanos() as u64);
        }
        let faults = page_faults() - faults;
        Times { times, faults }
    }

    fn store(&self, key: &[u8], mode: StoreMode) {
        let meta = Meta {
            expiry: self.variant.expiry(),
            ..Meta::default()
        };
        let mut write = Write {
            mode,
            draft: Some(Draft::new(key, &self.value, &meta)),
            cas: Cas::ANY,
            preserve_expiry: false,
            durability: None,
        };
        let done = self
            .bucket
            .run(VB, |vbucket| vbucket.store(&mut write, now()));
        assert!(matches!(done, Ok(Outcome::Done(_))), "a plain write");
    }

    fn passes(&self) -> Passes {
        let bucket = self.bucket;
        let add = self.pass(|key| self.store(key, StoreMode::Add));
        let get = self.pass(|key| {
            let got = bucket.run(VB, |vbucket| vbucket.get(key, now()));
            if matches!(got, Ok(Outcome::NeedsFetch(_))) {
                self.away.fetch_add(1, Ordering::Relaxed);
            }
            std::hint::black_box(&got);
        });
        let replace = self.pass(|key| self.store(key, StoreMode::Replace));
        let delete = self.pass(|key| {
            let deleted = bucket.run(VB, |vbucket| vbucket.delete(key, Cas::ANY, None, now()));
            assert!(deleted.is_ok(), "the document is there");
        });
        [
            ("Add", add),
            ("Get", get),
            ("Replace", replace),
            ("Delete", delete),
        ]
    }
}

/// Results of all passes over one bucket.
struct Measured {
    passes: Passes,
    /// Reads of evicted values.
    away: u64,
    /// Values that the concurrent work evicted.
    evicted: u64,
}

/// Runs the passes, with the concurrent work beside them.
fn measured(bucket: &Bucket<MemStore>, variant: &Variant) -> Measured {
    let run = Run {
        bucket,
        variant,
        value: variant.value.bytes(),
        away: AtomicU64::new(0),
    };
    let stop = AtomicBool::new(false);
    let mut work = Work::new(bucket, variant);
    let (passes, evicted) = thread::scope(|scope| {
        let beside = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) && work.step() {
                thread::yield_now();
            }
            work.evicted
        });
        let passes = run.passes();
        stop.store(true, Ordering::Relaxed);
        (passes, beside.join().expect("the work beside ends"))
    });
    Measured {
        passes,
        away: run.away.into_inner(),
        evicted,
    }
}

/// Totals of the streaming thread, and the number of its wakes.
struct Streamed {
    followed: Followed,
    wakes: u64,
}

fn streamed(variant: &Variant, sends: bool) -> (Measured, Streamed) {
    let bucket = open();
    let wake = Arc::new(Unpark::default());
    let ready = Arc::new(ReadySet::new(Arc::clone(&wake) as Arc<dyn Wake>));
    bucket.subscribe(VB, &ready);
    let stop = Arc::new(AtomicBool::new(false));
    let thread = {
        let (follower, stop) = (Follower::new(&bucket, &ready, sends), Arc::clone(&stop));
        Builder::new().spawn(move || follower.follow(&stop))
    };
    let thread = thread.expect("a thread starts");
    wake.thread.get_or_init(|| thread.thread().clone());
    let measured = measured(&bucket, variant);
    let wakes = wake.wakes.load(Ordering::Relaxed);
    stop.store(true, Ordering::Relaxed);
    wake.wake();
    let followed = thread.join().expect("the follower ends");
    (measured, Streamed { followed, wakes })
}

fn report_passes(name: &str, round: &str, measured: &Measured) {
    for (operation, times) in &measured.passes {
        let mut figures = vec![
            ("median_ns", times.at(500)),
            ("p95_ns", times.at(950)),
            ("p99_ns", times.at(990)),
            ("stddev_ns", times.deviation()),
            ("faults", nanoseconds(times.faults)),
        ];
        if *operation == "Get" && measured.evicted > 0 {
            figures.push(("away", nanoseconds(measured.away)));
            figures.push(("evicted", nanoseconds(measured.evicted)));
        }
        report(&format!("{name}/{operation}/{round}"), &figures);
    }
}

/// Measures a variant on each wanted side; the sides take turns.
pub(crate) fn measure(variant: &Variant, wanted: impl Fn(&str) -> bool) {
    let name = variant.name;
    for round in ["first", "1", "2", "3"] {
        let mut sides = Vec::new();
        if wanted("alone") {
            sides.push(("alone", measured(&open(), variant)));
        }
        for (side, sends) in [("streamed", true), ("unsent", false)] {
            if !wanted(side) {
                continue;
            }
            let (measured, streamed) = streamed(variant, sends);
            sides.push((side, measured));
            let figures = [
                ("changes", nanoseconds(streamed.followed.changes)),
                ("pulls", nanoseconds(streamed.followed.pulls)),
                ("turns", nanoseconds(streamed.followed.turns)),
                ("wakes", nanoseconds(streamed.wakes)),
            ];
            report(&format!("{name}/{side}/seen/{round}"), &figures);
        }
        for (side, measured) in &sides {
            report_passes(&format!("{name}/{side}"), round, measured);
        }
    }
}
