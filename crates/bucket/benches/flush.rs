//! What it costs to make changes durable and to load them again: one JSON object a line.
//!
//! `MemTrackingVBucketBench/FlushVBucket/0/N/{0,1}` is the reference's: flushes N changes of one vBucket, new documents
//! (0) or changed ones (1), with values of one byte, into a store on disk, with real syncs.
//! `FlushVBucket/{insert,replace}/N` is the same with values of 100 bytes. `PeakFlushBytes` is the most that was held during the
//! flush beyond what was held before it, so without the documents themselves. `FlushNode/replace/N` replaces N documents at
//! random among 100,000 in 1,024 vBuckets and flushes them: most vBuckets have one change, which
//! is what a node that answers many clients one at a time has. `Warmup/N` loads N keys with their
//! values.
//! `cpu_items_per_second` counts the processor time of all threads (Linux). Ten repetitions, of which times are told as mean,
//! median, standard deviation and coefficient of variation; rates are of the median.

use std::alloc::System;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bucket::{Bucket, BucketOptions, Clock, Eviction, Flushed};
use engine::{Outcome, StoreMode, VbConfig, Write};
use model::{Cas, Datatype, Document, Draft, Meta, Now, Seqno, VbId, VbRecord, VbState, VbUuid};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use storage::{
    Change, Changes, CommitInfo, Compacted, DiskOptions, DiskStore, DiskUsage, HistoryKept,
    HistoryLimits, Keep, KvStore, LoadedVb, Snapshot, StoreError, VbBatch, Want,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const VALUE: [u8; 100] = [b'1'; 100];
const REPETITIONS: u64 = 10;
const VB: VbId = VbId(0);
const NODE_DOCUMENTS: u64 = 100_000;

/// Bytes held now.
fn held() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// The store, with a look at the memory while it walks over changes.
struct Watched {
    inner: DiskStore,
    peak: AtomicUsize,
}

impl Watched {
    fn look(&self) {
        self.peak.fetch_max(held(), Ordering::Relaxed);
    }
}

struct WatchedChanges<'a>(&'a dyn Changes, &'a Watched);

impl Changes for WatchedChanges<'_> {
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>)) {
        let mut walked = 0_u32;
        self.0.for_each(&mut |change| {
            f(change);
            walked += 1;
            if walked.is_multiple_of(1024) {
                self.1.look();
            }
        });
        self.1.look();
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

type Answer<T> = Result<T, StoreError>;

impl KvStore for Watched {
    fn load(&self) -> Answer<Vec<LoadedVb>> {
        self.inner.load()
    }

    fn commit(&self, batches: &[VbBatch<'_>]) -> Answer<CommitInfo> {
        let watched: Vec<_> = batches
            .iter()
            .map(|batch| WatchedChanges(batch.changes, self))
            .collect();
        let batches: Vec<_> = batches
            .iter()
            .zip(&watched)
            .map(|(batch, changes)| VbBatch { changes, ..*batch })
            .collect();
        let info = self.inner.commit(&batches);
        self.look();
        info
    }

    fn fetch(&self, vb: VbId, wants: &[Want<'_>]) -> Answer<Vec<Option<Document>>> {
        self.inner.fetch(vb, wants)
    }

    fn snapshot(&self, vb: VbId) -> Answer<Box<dyn Snapshot>> {
        self.inner.snapshot(vb)
    }

    fn rollback(&self, vb: VbId, to: Seqno) -> Answer<VbRecord> {
        self.inner.rollback(vb, to)
    }

    fn compact(&self, vb: VbId, keep: &mut dyn FnMut(&Meta, &[u8]) -> Keep) -> Answer<Compacted> {
        self.inner.compact(vb, keep)
    }

    fn trim_history(
        &self,
        vb: VbId,
        limits: HistoryLimits,
        dead: &mut dyn FnMut(&Meta, &[u8]) -> bool,
    ) -> Answer<HistoryKept> {
        self.inner.trim_history(vb, limits, dead)
    }

    fn may_have_history(&self) -> Answer<bool> {
        self.inner.may_have_history()
    }

    fn remove(&self, vbs: &[VbId]) -> Answer<()> {
        self.inner.remove(vbs)
    }

    fn manifest(&self) -> Answer<Option<Vec<u8>>> {
        self.inner.manifest()
    }

    fn set_manifest(&self, text: &[u8]) -> Answer<()> {
        self.inner.set_manifest(text)
    }

    fn disk_usage(&self) -> Answer<DiskUsage> {
        self.inner.disk_usage()
    }

    fn close(&self) -> Answer<()> {
        self.inner.close()
    }
}

/// Time stands still: nothing here expires, and the counters' times are not looked at.
struct Standstill;

impl Clock for Standstill {
    fn now(&self) -> Now {
        Now {
            unix_ns: 1_700_000_000_000_000_000,
            mono_ns: 1,
        }
    }
}

fn open(path: &Path, vbuckets: u16) -> Arc<Bucket<Watched>> {
    let (inner, opened) = DiskStore::open(path, DiskOptions::default()).expect("it opens");
    let store = Watched {
        inner,
        peak: AtomicUsize::new(0),
    };
    let options = BucketOptions {
        name: "bench".into(),
        vbuckets,
        quota_bytes: 8 << 30,
        vb: Arc::new(VbConfig::default()),
        clean: opened.clean,
        eviction: Eviction::Values,
        expiry_pass_s: 0,
        history: bucket::HistoryRetention::default(),
        purge_age_s: 259_200,
        flush_interval_ms: 0,
    };
    let mut uuid = || VbUuid(1);
    Bucket::open(options, store, Arc::new(Standstill), &mut uuid).expect("its records are sound")
}

fn warm_up(bucket: &Bucket<Watched>) {
    bucket.warm_up(&mut || VbUuid(2));
}

/// Sets these keys to values of so many bytes, which are JSON.
fn write(bucket: &Bucket<Watched>, value_bytes: usize, keys: impl Iterator<Item = u64>) {
    let meta = Meta {
        datatype: Datatype::JSON,
        ..Meta::default()
    };
    for key in keys {
        let key = format!("\0key{key}");
        let mut write = Write {
            mode: StoreMode::Set,
            draft: Some(Draft::new(key.as_bytes(), &VALUE[..value_bytes], &meta)),
            cas: Cas::ANY,
            preserve_expiry: false,
            durability: None,
        };
        let now = bucket.clock().now();
        let stored = bucket.run(VbId::of_key(key.as_bytes(), bucket.vbuckets()), |vbucket| {
            vbucket.store(&mut write, now)
        });
        assert!(matches!(stored, Ok(Outcome::Done(_))), "a plain set");
    }
}

fn flush(bucket: &Bucket<Watched>) {
    let is_dirty = |vb| bucket.with_vbucket(VbId(vb), |vbucket| vbucket.is_dirty()) == Some(true);
    let dirty = || bucket.vbuckets() == 1 && is_dirty(0);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    while dirty() {
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
}

/// Processor time of all threads, nanoseconds; 0 where it is not known.
fn cpu_ns() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
    }
    #[cfg(not(target_os = "linux"))]
    0
}

/// One measurement.
#[derive(Clone, Copy)]
struct Sample {
    wall_ns: u64,
    cpu_ns: u64,
    bytes: usize,
}

fn measure(bucket: &Bucket<Watched>, work: impl FnOnce()) -> Sample {
    let before = held();
    bucket.store().peak.store(before, Ordering::Relaxed);
    let cpu = cpu_ns();
    #[expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
    let start = std::time::Instant::now();
    work();
    Sample {
        wall_ns: u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX),
        cpu_ns: cpu_ns() - cpu,
        bytes: bucket.store().peak.load(Ordering::Relaxed) - before,
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn report(name: &str, items: u64, mut samples: Vec<Sample>) {
    samples.sort_by_key(|sample| sample.wall_ns);
    let median = samples[samples.len() / 2];
    let times = samples.iter().map(|sample| sample.wall_ns as f64);
    let mean = times.clone().sum::<f64>() / samples.len() as f64;
    let squares = times.map(|time| (time - mean).powi(2)).sum::<f64>();
    let deviation = (squares / (samples.len().max(2) - 1) as f64).sqrt();
    let per_second = |ns: u64| items as f64 * 1e9 / ns.max(1) as f64;
    let most = samples.iter().map(|sample| sample.bytes).max().unwrap_or(0);
    let line = format!(
        "{{\"name\":\"{name}\",\"mean_ns\":{mean:.0},\"median_ns\":{},\"stddev_ns\":{deviation:.0},\
         \"cv\":{:.3},\"items_per_second\":{:.0},\"cpu_items_per_second\":{:.0},\
         \"PeakFlushBytes\":{most},\"PeakBytesPerItem\":{:.2}}}",
        median.wall_ns,
        deviation / mean,
        per_second(median.wall_ns),
        per_second(median.cpu_ns),
        most as f64 / items as f64,
    );
    #[expect(clippy::print_stdout, reason = "this is its purpose")]
    {
        println!("{line}");
    }
}

/// Flushes `items` new documents into a vBucket that was made anew for each repetition.
fn inserts(items: u64, value_bytes: usize) -> Vec<Sample> {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = open(dir.path(), 1);
    warm_up(&bucket);
    let sample = |repetition| {
        bucket.delete_vbucket(VB).expect("it goes");
        let made = bucket.set_vbucket(VB, VbState::Active, None, VbUuid(repetition));
        made.expect("it comes");
        flush(&bucket);
        write(&bucket, value_bytes, 0..items);
        measure(&bucket, || flush(&bucket))
    };
    (1..=REPETITIONS).map(sample).collect()
}

/// Flushes changes of `items` documents that were flushed before.
fn replacements(items: u64, value_bytes: usize) -> Vec<Sample> {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = open(dir.path(), 1);
    warm_up(&bucket);
    write(&bucket, value_bytes, 0..items);
    flush(&bucket);
    let sample = |_| {
        write(&bucket, value_bytes, 0..items);
        measure(&bucket, || flush(&bucket))
    };
    (0..REPETITIONS).map(sample).collect()
}

/// Replaces `items` random documents of a node's worth of them, and flushes, `rounds` times.
fn node(items: u64, rounds: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = open(dir.path(), 1024);
    warm_up(&bucket);
    write(&bucket, VALUE.len(), 0..NODE_DOCUMENTS);
    flush(&bucket);
    let sample = |round: u64| {
        let mut number = round;
        let mut next = || {
            number = (number ^ (number >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
            (number >> 20) % NODE_DOCUMENTS
        };
        write(&bucket, VALUE.len(), (0..items).map(|_| next()));
        // What clients do between two flushes leaves little in the processor's caches.
        std::hint::black_box(vec![round; 1 << 20]);
        measure(&bucket, || {
            assert_eq!(bucket.flush_step(), Flushed::Clean);
        })
    };
    let samples = (1..=rounds).map(sample).collect();
    report(&format!("FlushNode/replace/{items}"), items, samples);
}

fn warmup(items: u64) {
    let dir = tempfile::tempdir().expect("a directory");
    {
        let bucket = open(dir.path(), 1);
        warm_up(&bucket);
        write(&bucket, VALUE.len(), 0..items);
        flush(&bucket);
        bucket.store().close().expect("it closes");
    }
    let sample = |_| {
        let bucket = open(dir.path(), 1);
        let sample = measure(&bucket, || warm_up(&bucket));
        bucket.store().close().expect("it closes");
        let keys = bucket.with_vbucket(VB, |vbucket| vbucket.items());
        assert_eq!(keys, Some(items));
        sample
    };
    report(
        &format!("Warmup/{items}"),
        items,
        (0..5).map(sample).collect(),
    );
}

fn main() {
    let filter = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let wants = |name: &str| filter.as_ref().is_none_or(|filter| name.contains(filter));
    for items in [1, 100, 10_000, 1_000_000] {
        for (kind, what) in ["insert", "replace"].into_iter().enumerate() {
            let rows = [
                (
                    format!("MemTrackingVBucketBench/FlushVBucket/0/{items}/{kind}"),
                    1,
                ),
                (format!("FlushVBucket/{what}/{items}"), VALUE.len()),
            ];
            for (name, value_bytes) in rows.into_iter().filter(|row| wants(&row.0)) {
                let samples = match what {
                    "insert" => inserts(items, value_bytes),
                    _ => replacements(items, value_bytes),
                };
                report(&name, items, samples);
            }
        }
    }
    for items in [100, 500, 2_000] {
        if wants(&format!("FlushNode/replace/{items}")) {
            node(items, 100);
        }
    }
    if wants("Warmup/100000") {
        warmup(100_000);
    }
}
