//! What change streams cost those who write: one JSON object a line.
//!
//! `VBReadyQueueBench/*` marks and takes ready vBuckets. `perf_latency_core/{alone,streamed}/*`
//! times every Add, Get, Replace and Delete of one vBucket, 100,000 documents with values of 100
//! bytes, without and with a thread that streams the same vBucket; both in one run, taking
//! turns. Times in nanoseconds.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock and starts threads"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Instant;

use bucket::{Bucket, BucketOptions, Clock, Eviction, ReadySet, Wake};
use engine::dcp::{Event, Filled, Position, Stream, StreamAsk, StreamOptions};
use engine::{Outcome, StoreMode, VbConfig, Write};
use model::{Cas, Draft, Meta, Now, Seqno, SnapshotRange, VbId, VbUuid};
use storage::MemStore;

const VB: VbId = VbId(0);
const NAME: &str = "bench";
const DOCUMENTS: u32 = 100_000;

struct Quiet(AtomicU64);

impl Wake for Quiet {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> Now {
        Now {
            unix_ns: 1_700_000_000_000_000_000,
            mono_ns: 1,
        }
    }
}

fn report(name: &str, figures: &[(&str, f64)]) {
    let figures: Vec<String> = figures
        .iter()
        .map(|(figure, value)| format!(",\"{figure}\":{value:.1}"))
        .collect();
    #[expect(clippy::print_stdout, reason = "this is its purpose")]
    {
        println!("{{\"name\":\"{name}\"{}}}", figures.concat());
    }
}

fn set() -> Arc<ReadySet> {
    Arc::new(ReadySet::new(Arc::new(Quiet(AtomicU64::new(0)))))
}

/// Nanoseconds of each of `count` runs of `f`, which are timed together.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn each(count: u32, mut f: impl FnMut(u32)) -> f64 {
    let start = Instant::now();
    for number in 0..count {
        f(number);
    }
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

fn ready_queue() {
    const ROUNDS: u32 = 1_000_000;
    let queue = set();
    queue.mark(VB);
    let again = each(ROUNDS, |_| queue.mark(std::hint::black_box(VB)));
    report("VBReadyQueueBench/PushNotEmpty", &[("median_ns", again)]);
    let queue = set();
    let all = each(1000, |_| {
        for vb in 0..1024 {
            queue.mark(VbId(vb));
        }
        let mut from = VB;
        while let Some(vb) = queue.next(from) {
            from = VbId(vb.0 + 1);
        }
    });
    report("VBReadyQueueBench/PopAllSanity", &[("median_ns", all)]);
    let mut pushed = f64::MAX;
    let mut popped = f64::MAX;
    for _ in 0..100 {
        let queue = set();
        pushed = pushed.min(each(1024, |vb| queue.mark(VbId(vb as u16))));
        popped = popped.min(each(1024, |vb| {
            std::hint::black_box(queue.next(VbId(vb as u16)));
        }));
    }
    report("VBReadyQueueBench/PushEmpty", &[("median_ns", pushed)]);
    report("VBReadyQueueBench/PopFront", &[("median_ns", popped)]);
    crowd();
}

/// 64 writers mark vBuckets at random, one reader takes them.
fn crowd() {
    const WRITERS: u64 = 64;
    const MARKS: u64 = 200_000;
    let queue = set();
    let busy_ns = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for writer in 0..WRITERS {
        let (queue, busy_ns, done) = (Arc::clone(&queue), Arc::clone(&busy_ns), Arc::clone(&done));
        let run = move || {
            let mut random = writer.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let start = cpu_ns();
            for _ in 0..MARKS {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                queue.mark(VbId((random % 1024) as u16));
            }
            busy_ns.fetch_add(cpu_ns() - start, Ordering::Relaxed);
            done.fetch_add(1, Ordering::Release);
        };
        threads.push(Builder::new().spawn(run).expect("a thread starts"));
    }
    let mut from = VB;
    while done.load(Ordering::Acquire) < WRITERS {
        match queue.next(from) {
            Some(vb) => from = VbId(vb.0 + 1),
            None => std::thread::yield_now(),
        }
    }
    for thread in threads {
        thread.join().expect("no writer panics");
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let mark = busy_ns.load(Ordering::Relaxed) as f64 / (WRITERS * MARKS) as f64;
    report("VBReadyQueueBench/MPSCRandom/64", &[("cpu_ns", mark)]);
}

/// CPU time of the calling thread.
fn cpu_ns() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
    }
    #[cfg(not(target_os = "linux"))]
    0
}

fn open() -> Arc<Bucket<MemStore>> {
    let options = BucketOptions {
        name: "bench".into(),
        vbuckets: 1,
        quota_bytes: 1 << 30,
        vb: Arc::new(VbConfig::default()),
        clean: true,
        eviction: Eviction::Values,
        expiry_pass_s: 0,
        purge_age_s: 0,
        flush_interval_ms: 50,
    };
    let mut uuids = || VbUuid(7);
    let bucket = Bucket::open(options, MemStore::default(), Arc::new(Fixed), &mut uuids)
        .expect("a store in memory opens");
    bucket.warm_up(&mut uuids);
    bucket
}

fn key(number: u32) -> Vec<u8> {
    format!("\0key{number}").into_bytes()
}

fn store(bucket: &Bucket<MemStore>, key: &[u8], mode: StoreMode) {
    let mut write = Write {
        mode,
        draft: Some(Draft::new(key, &[b'v'; 100], &Meta::default())),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
    };
    let done = bucket.run(VB, |vbucket| vbucket.store(&mut write, Fixed.now()));
    assert!(matches!(done, Ok(Outcome::Done(_))), "a plain write");
}

/// One pass over all documents; the time of every operation.
fn pass(mut operation: impl FnMut(&[u8])) -> Vec<u64> {
    let mut times = Vec::with_capacity(DOCUMENTS as usize);
    for number in 0..DOCUMENTS {
        let key = key(number);
        let start = Instant::now();
        operation(&key);
        times.push(start.elapsed().as_nanos() as u64);
    }
    times.sort_unstable();
    times
}

type Passes = [(&'static str, Vec<u64>); 4];

fn passes(bucket: &Bucket<MemStore>) -> Passes {
    let now = Fixed.now();
    let add = pass(|key| store(bucket, key, StoreMode::Add));
    let get = pass(|key| {
        let got = bucket.run(VB, |vbucket| vbucket.get(key, now));
        std::hint::black_box(&got);
    });
    let replace = pass(|key| store(bucket, key, StoreMode::Replace));
    let delete = pass(|key| {
        let deleted = bucket.run(VB, |vbucket| vbucket.delete(key, Cas::ANY, now));
        assert!(deleted.is_ok(), "the document is there");
    });
    [
        ("Add", add),
        ("Get", get),
        ("Replace", replace),
        ("Delete", delete),
    ]
}

/// Streams the vBucket until told to stop; tells how many changes it saw.
fn follow(bucket: &Bucket<MemStore>, ready: &ReadySet, stop: &AtomicBool) -> u64 {
    let nothing = SnapshotRange::default();
    let ask = StreamAsk {
        position: Position {
            uuid: VbUuid(0),
            seqno: Seqno::ZERO,
            snapshot: nothing,
            purge_seqno: Seqno::ZERO,
        },
        end: Seqno(u64::MAX),
        options: StreamOptions::default(),
    };
    let opened = bucket.with_vbucket(VB, |vbucket| Stream::open(vbucket, NAME, ask));
    let (mut stream, garbage) = opened.expect("it is there").expect("from nothing");
    drop(garbage);
    let mut seen = 0;
    let mut bytes = 0;
    while !stop.load(Ordering::Relaxed) {
        if ready.next(VB).is_none() {
            std::thread::yield_now();
            continue;
        }
        loop {
            while let Some(event) = stream.next_event() {
                if let Event::Change(document) = event {
                    seen += 1;
                    bytes += std::hint::black_box(document.value()).len();
                }
            }
            let filled = bucket.with_vbucket(VB, |vbucket| stream.fill(vbucket, NAME));
            match filled {
                Some((Filled::Ready, garbage)) => drop(garbage),
                _ => break,
            }
        }
    }
    std::hint::black_box(bytes);
    seen
}

fn streamed() -> (Passes, u64) {
    let bucket = open();
    let ready = set();
    bucket.subscribe(VB, &ready);
    let stop = Arc::new(AtomicBool::new(false));
    let follower = {
        let (bucket, ready, stop) = (Arc::clone(&bucket), Arc::clone(&ready), Arc::clone(&stop));
        Builder::new().spawn(move || follow(&bucket, &ready, &stop))
    };
    let follower = follower.expect("a thread starts");
    let passes = passes(&bucket);
    stop.store(true, Ordering::Relaxed);
    (passes, follower.join().expect("the follower ends"))
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn latency() {
    for round in 0..3 {
        let alone = passes(&open());
        let (with, seen) = streamed();
        for (side, passes) in [("alone", &alone), ("streamed", &with)] {
            for (operation, times) in passes {
                let at = |share: usize| times[times.len() * share / 1000] as f64;
                let name = format!("perf_latency_core/{side}/{operation}/{round}");
                let figures = [
                    ("median_ns", at(500)),
                    ("p95_ns", at(950)),
                    ("p99_ns", at(990)),
                ];
                report(&name, &figures);
            }
        }
        let seen = [("changes", seen as f64)];
        report(&format!("perf_latency_core/streamed/seen/{round}"), &seen);
    }
}

fn main() {
    ready_queue();
    latency();
}
