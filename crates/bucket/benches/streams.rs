//! What change streams cost those who write: one JSON object a line.
//!
//! `VBReadyQueueBench/*` marks and takes ready vBuckets. `DcpProducerStreamsMapBench/find/N` looks
//! for the streams of the next of N vBuckets in a tree like a producer's. `perf_latency_core/SIDE/*` times every
//! Add, Get, Replace and Delete of one vBucket, 100,000 documents with values of 100 bytes, in
//! one thread: `alone`, `streamed` (another thread streams the same vBucket, woken, driven and
//! sending over loopback as a node's connection does), `unsent` (the same, throwing away what it
//! would send, so that it comes back all the time); all in one run, taking turns, or one of them
//! (`-- perf_latency_core/SIDE`). The wake of the other thread is part of the write. The first round
//! touches most of the memory for the first time, which the ones after it use again if the
//! allocator keeps it (`MIMALLOC_PURGE_DELAY=-1`): `faults` counts these touches. Times in
//! nanoseconds.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock and starts threads"
)]

use std::collections::BTreeMap;
use std::io::{self, Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{Builder, Thread};
use std::time::Instant;

use bucket::{Bucket, BucketOptions, Clock, Eviction, Flushed, Pace, ReadySet, Wake};
use engine::dcp::{Event, Filled, Position, Stream, StreamAsk, StreamOptions};
use engine::{Outcome, StoreMode, VBucket, VbConfig, Write};
use model::{Cas, Draft, Meta, Now, Seqno, SnapshotRange, VbId, VbUuid};
use storage::MemStore;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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

/// The streams of a vBucket, found as a producer finds them.
fn streams_map() {
    /// As large as what a producer keeps of a stream.
    struct Entry([u64; 28]);
    for count in (128..=1024_u16).step_by(128) {
        let streams: BTreeMap<(VbId, u16), Box<Entry>> = (0..count)
            .map(|vb| ((VbId(vb), 0), Box::new(Entry([vb.into(); 28]))))
            .collect();
        let mut median: Vec<f64> = (0..9)
            .map(|_| {
                each(1_000_000, |round| {
                    let vb = VbId((round % u32::from(count)) as u16);
                    let mut found = streams.range((vb, 0)..=(vb, u16::MAX));
                    std::hint::black_box(found.next().map(|(_, entry)| entry.0[0]));
                })
            })
            .collect();
        median.sort_by(f64::total_cmp);
        let name = format!("DcpProducerStreamsMapBench/find/{count}");
        report(&name, &[("median_ns", median[4])]);
    }
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
        history: bucket::HistoryRetention::default(),
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

/// One pass over all documents; the time of every operation. What it changed is flushed after it,
/// as a node does twenty times a second.
fn pass(bucket: &Bucket<MemStore>, mut operation: impl FnMut(&[u8])) -> Times {
    let faults = page_faults();
    let mut times = Vec::with_capacity(DOCUMENTS as usize);
    for number in 0..DOCUMENTS {
        let key = key(number);
        let start = Instant::now();
        operation(&key);
        times.push(start.elapsed().as_nanos() as u64);
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean, "into memory");
    let faults = page_faults() - faults;
    times.sort_unstable();
    Times { times, faults }
}

/// Times of a pass, sorted, and first touches of pages by its thread.
struct Times {
    times: Vec<u64>,
    faults: u64,
}

/// Pages that the calling thread has touched for the first time, so far.
fn page_faults() -> u64 {
    let stat = std::fs::read_to_string("/proc/thread-self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let minor = after_name.split_whitespace().nth(7);
    minor.and_then(|count| count.parse().ok()).unwrap_or(0)
}

type Passes = [(&'static str, Times); 4];

fn passes(bucket: &Bucket<MemStore>) -> Passes {
    let now = Fixed.now();
    let add = pass(bucket, |key| store(bucket, key, StoreMode::Add));
    let get = pass(bucket, |key| {
        let got = bucket.run(VB, |vbucket| vbucket.get(key, now));
        std::hint::black_box(&got);
    });
    let replace = pass(bucket, |key| store(bucket, key, StoreMode::Replace));
    let delete = pass(bucket, |key| {
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

/// Bytes that a connection sends in one turn, and one stream in one visit.
const TURN_BYTES: usize = 128 << 10;
const SHARE_BYTES: usize = 64 << 10;

/// Wakes the follower's thread, as a connection's waker wakes its worker.
#[derive(Default)]
struct Unpark {
    thread: OnceLock<Thread>,
    wakes: AtomicU64,
}

impl Wake for Unpark {
    fn wake(&self) {
        self.wakes.fetch_add(1, Ordering::Relaxed);
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }
}

/// A socket and its peer, which reads what was sent at once: what sending costs a node, and the
/// time that it takes.
struct Loopback {
    near: TcpStream,
    far: TcpStream,
    read: Vec<u8>,
}

impl Loopback {
    fn new() -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let near = TcpStream::connect(listener.local_addr()?)?;
        let (far, _) = listener.accept()?;
        near.set_nonblocking(true)?;
        near.set_nodelay(true)?;
        far.set_nonblocking(true)?;
        Ok(Self {
            near,
            far,
            read: vec![0; TURN_BYTES],
        })
    }

    /// A connection looks for requests between two turns, and its worker for other connections.
    fn look_for_input(&mut self) {
        let nothing = self.near.read(&mut self.read);
        assert!(nothing.is_err(), "the peer says nothing");
        std::thread::yield_now();
    }

    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let moved = |result: io::Result<usize>| match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
            other => other,
        };
        let (mut sent, mut read) = (0, 0);
        while read < bytes.len() {
            if sent < bytes.len() {
                sent += moved(self.near.write(&bytes[sent..]))?;
            }
            read += moved(self.far.read(&mut self.read))?;
        }
        Ok(())
    }
}

/// What a follower did.
#[derive(Default)]
struct Followed {
    changes: u64,
    pulls: u64,
    turns: u64,
}

/// One stream, driven as a node drives those of a connection.
struct Follower {
    bucket: Arc<Bucket<MemStore>>,
    ready: Arc<ReadySet>,
    stream: Stream,
    pace: Pace,
    started: Instant,
    output: Vec<u8>,
    peer: Option<Loopback>,
    followed: Followed,
}

impl Follower {
    fn new(bucket: &Arc<Bucket<MemStore>>, ready: &Arc<ReadySet>, sends: bool) -> Self {
        let ask = StreamAsk {
            position: Position {
                uuid: VbUuid(0),
                seqno: Seqno::ZERO,
                snapshot: SnapshotRange::default(),
                purge_seqno: Seqno::ZERO,
            },
            end: Seqno(u64::MAX),
            options: StreamOptions::default(),
        };
        let opened = bucket.with_vbucket(VB, |vbucket| Stream::open(vbucket, NAME, ask));
        let (stream, garbage) = opened.expect("it is there").expect("from nothing");
        drop(garbage);
        Self {
            bucket: Arc::clone(bucket),
            ready: Arc::clone(ready),
            stream,
            pace: Pace::default(),
            started: Instant::now(),
            output: Vec::new(),
            peer: sends.then(|| Loopback::new().expect("loopback")),
            followed: Followed::default(),
        }
    }

    /// Sends what is held, up to the stream's share.
    fn encode(&mut self, limit: usize) {
        while self.output.len() < limit {
            let Some(event) = self.stream.next_event() else {
                return;
            };
            if let Event::Change(document) = event {
                self.followed.changes += 1;
                self.output.extend_from_slice(&[0; 24]);
                self.output
                    .extend_from_slice(&document.seqno().0.to_be_bytes());
                self.output
                    .extend_from_slice(&document.cas().0.to_be_bytes());
                self.output.extend_from_slice(&[0; 15]);
                self.output.extend_from_slice(document.key_and_value());
            }
        }
    }

    /// One visit of the vBucket; whether it has more.
    fn visit(&mut self) -> bool {
        let limit = TURN_BYTES.min(self.output.len() + SHARE_BYTES);
        let mut latest = false;
        loop {
            self.encode(limit);
            if self.output.len() >= limit {
                return true;
            }
            if latest {
                return false;
            }
            let stream = &mut self.stream;
            let fill = |vbucket: &mut VBucket| stream.fill(vbucket, NAME);
            let filled = self.bucket.with_vbucket_patiently(VB, fill);
            let (filled, garbage) = filled.expect("it is there");
            drop(garbage);
            self.followed.pulls += 1;
            latest = filled != Filled::Ready;
        }
    }

    /// What a connection does when it is woken; whether there is more to do at once.
    fn turn(&mut self) -> bool {
        self.followed.turns += 1;
        let now_ns = self.started.elapsed().as_nanos() as u64;
        let mut seen = false;
        while self.output.len() < TURN_BYTES {
            let Some(vb) = self.ready.next(VB) else {
                break;
            };
            if seen || !self.pace.is_due(|| self.bucket.newest(vb), now_ns) {
                self.ready.mark_quietly(vb);
                break;
            }
            if self.visit() {
                self.ready.mark_quietly(vb);
            } else {
                seen = true;
            }
        }
        if let Some(peer) = &mut self.peer {
            peer.send(&self.output).expect("loopback");
            peer.look_for_input();
        } else {
            std::thread::yield_now();
        }
        std::hint::black_box(&self.output);
        self.output.clear();
        !self.ready.is_empty()
    }

    fn follow(mut self, stop: &AtomicBool) -> Followed {
        while !stop.load(Ordering::Relaxed) {
            if !self.turn() {
                std::thread::park();
            }
        }
        while self.turn() {}
        self.followed
    }
}

fn streamed(sends: bool) -> (Passes, Followed, u64) {
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
    let passes = passes(&bucket);
    let wakes = wake.wakes.load(Ordering::Relaxed);
    stop.store(true, Ordering::Relaxed);
    wake.wake();
    (passes, thread.join().expect("the follower ends"), wakes)
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn latency() {
    let only = std::env::args().find_map(|name| {
        let side = name.strip_prefix("perf_latency_core/");
        side.map(str::to_owned)
    });
    let wanted = |side: &str| {
        let only = only.as_deref().and_then(|only| only.split('/').next());
        only.is_none_or(|only| side.contains(only))
    };
    for round in ["first", "1", "2", "3"] {
        let mut sides = Vec::new();
        if wanted("alone") {
            sides.push(("alone", passes(&open())));
        }
        for (side, sends) in [("streamed", true), ("unsent", false)] {
            if !wanted(side) {
                continue;
            }
            let (passes, followed, wakes) = streamed(sends);
            sides.push((side, passes));
            let figures = [
                ("changes", followed.changes as f64),
                ("pulls", followed.pulls as f64),
                ("turns", followed.turns as f64),
                ("wakes", wakes as f64),
            ];
            report(&format!("perf_latency_core/{side}/seen/{round}"), &figures);
        }
        for (side, passes) in &sides {
            for (operation, Times { times, faults }) in passes {
                let at = |share: usize| times[times.len() * share / 1000] as f64;
                let name = format!("perf_latency_core/{side}/{operation}/{round}");
                let figures = [
                    ("median_ns", at(500)),
                    ("p95_ns", at(950)),
                    ("p99_ns", at(990)),
                    ("faults", *faults as f64),
                ];
                report(&name, &figures);
            }
        }
    }
}

fn main() {
    let asked = |part: &str| {
        let mut names = std::env::args()
            .skip(1)
            .filter(|name| !name.starts_with('-'));
        // A part runs for each row of it.
        names.all(|name| part.contains(&*name) || name.starts_with(&format!("{part}/")))
    };
    if asked("VBReadyQueueBench") {
        ready_queue();
    }
    if asked("DcpProducerStreamsMapBench") {
        streams_map();
    }
    if asked("perf_latency_core") {
        latency();
    }
}
