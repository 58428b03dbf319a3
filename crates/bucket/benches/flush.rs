//! Costs of persisting changes and of loading them: one JSON object a line.
//!
//! `MemTrackingVBucketBench/FlushVBucket/0/N/{0,1}` is the reference's benchmark: it flushes N
//! changes of one vBucket, new documents (0) or changed ones (1), with values of one byte, into a
//! store on disk, with real syncs. `FlushVBucket/{insert,replace}/N` is the same with values of 100
//! bytes. `PeakFlushBytes` is the peak memory of the flush beyond the memory before it, so without
//! the documents themselves. `FlushNode/replace/N` replaces N documents at random among 100,000 in
//! 1,024 vBuckets and flushes them: most vBuckets have one change, as in a node that answers many
//! clients one at a time. `Warmup/N` loads N keys with their values. With keys in
//! `SETTEE_ENCRYPTION_KEYS`, all data is encrypted. `cpu_items_per_second` counts the processor
//! time of all threads (Linux). Rates are of the median.

#[path = "../tests/it/hooked.rs"]
mod hooked;

use std::alloc::System;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use benchkit::{Figures, REPETITIONS, Rows, Summary, per, process_cpu_ns, timed};
use bucket::{Bucket, BucketOptions, Clock, Eviction, Flushed};
use engine::{Outcome, StoreMode, VbConfig, Write};
use hooked::{Answer, Hooked, Hooks};
use model::{Cas, Datatype, Draft, Meta, Now, VbId, VbState, VbUuid};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use storage::{
    Change, Changes, CommitInfo, DiskOptions, DiskStore, EncryptionKeys, KvStore, VbBatch,
};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const VALUE: [u8; 100] = [b'1'; 100];
const VB: VbId = VbId(0);
const NODE_DOCUMENTS: u64 = 100_000;

/// Allocated bytes.
fn held() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

/// The store, with measurements of memory while it reads changes.
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
}

impl Hooks for Watched {
    type Inner = DiskStore;

    fn inner(&self) -> &DiskStore {
        &self.inner
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
}

type Store = Hooked<Watched>;

/// A stopped clock: nothing expires here, and the counters' times are not used.
struct Standstill;

impl Clock for Standstill {
    fn now(&self) -> Now {
        Now {
            unix_ns: 1_700_000_000_000_000_000,
            mono_ns: 1,
        }
    }
}

fn open(path: &Path, vbuckets: u16) -> Arc<Bucket<Store>> {
    let keys = std::env::var("SETTEE_ENCRYPTION_KEYS").ok();
    let keys = keys.map(|text| EncryptionKeys::parse(&text, || 1).expect("they are keys"));
    let keys = keys.map(Arc::new);
    let opened = DiskStore::open_with_keys(path, DiskOptions::default(), keys.as_ref());
    let (inner, opened) = opened.expect("it opens");
    let store = Hooked(Watched {
        inner,
        peak: AtomicUsize::new(0),
    });
    let options = BucketOptions {
        name: "bench".into(),
        vbuckets,
        quota_bytes: 8 << 30,
        vb: Arc::new(VbConfig::default()),
        clean: opened.clean,
        eviction: Eviction::Values,
        compression: model::CompressionMode::Passive,
        compress: |_| None,
        expiry_pass_s: 0,
        history: bucket::HistoryRetention::default(),
        purge_age_s: 259_200,
        flush_interval_ms: 0,
        member: false,
        buffers: Arc::default(),
    };
    let mut uuid = || VbUuid(1);
    Bucket::open(options, store, Arc::new(Standstill), &mut uuid).expect("its records are sound")
}

fn warm_up(bucket: &Bucket<Store>) {
    bucket.warm_up(&mut || VbUuid(2));
}

/// Sets these keys to JSON values of so many bytes.
fn write(bucket: &Bucket<Store>, value_bytes: usize, keys: impl Iterator<Item = u64>) {
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

fn flush(bucket: &Bucket<Store>) {
    let is_dirty = |vb| bucket.with_vbucket(VbId(vb), |vbucket| vbucket.is_dirty()) == Some(true);
    let dirty = || bucket.vbuckets() == 1 && is_dirty(0);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    while dirty() {
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
}

/// One measurement: its bytes are the peak above the start.
#[derive(Clone, Copy)]
struct Sample {
    wall_ns: f64,
    cpu_ns: u64,
    bytes: usize,
}

fn measure(bucket: &Bucket<Store>, work: impl FnOnce()) -> Sample {
    let before = held();
    bucket.store().peak.store(before, Ordering::Relaxed);
    let cpu = process_cpu_ns();
    let ((), wall_ns) = timed(work);
    Sample {
        wall_ns,
        cpu_ns: process_cpu_ns() - cpu,
        bytes: bucket.store().peak.load(Ordering::Relaxed) - before,
    }
}

fn figures(items: u64, samples: &[Sample]) -> Figures {
    let wall: Vec<f64> = samples.iter().map(|sample| sample.wall_ns).collect();
    let cpu: Vec<f64> = samples.iter().map(|sample| per(sample.cpu_ns, 1)).collect();
    let per_second = |times: &[f64]| per(items, 1) * 1e9 / Summary::of(times).median.max(1.0);
    let most = samples.iter().map(|sample| sample.bytes).max().unwrap_or(0) as u64;
    Figures::of_times(&wall)
        .and("items_per_second", per_second(&wall))
        .and("cpu_items_per_second", per_second(&cpu))
        .and("PeakFlushBytes", per(most, 1))
        .and("PeakBytesPerItem", per(most, items))
}

/// Flushes `items` new documents into a vBucket that is created anew for each repetition.
fn inserts(items: u64, value_bytes: usize) -> Figures {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = open(dir.path(), 1);
    warm_up(&bucket);
    let sample = |repetition: usize| {
        bucket.delete_vbucket(VB).expect("it goes");
        let made = bucket.set_vbucket(VB, VbState::Active, None, VbUuid(repetition as u64));
        made.expect("it comes");
        flush(&bucket);
        write(&bucket, value_bytes, 0..items);
        measure(&bucket, || flush(&bucket))
    };
    let samples: Vec<_> = (1..=REPETITIONS).map(sample).collect();
    figures(items, &samples)
}

/// Flushes changes of `items` documents that are in the store.
fn replacements(items: u64, value_bytes: usize) -> Figures {
    let dir = tempfile::tempdir().expect("a directory");
    let bucket = open(dir.path(), 1);
    warm_up(&bucket);
    write(&bucket, value_bytes, 0..items);
    flush(&bucket);
    let sample = |_| {
        write(&bucket, value_bytes, 0..items);
        measure(&bucket, || flush(&bucket))
    };
    let samples: Vec<_> = (0..REPETITIONS).map(sample).collect();
    figures(items, &samples)
}

/// Replaces `items` random documents of a node, and flushes, `rounds` times.
fn node(items: u64, rounds: u64) -> Figures {
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
        // Evicts the processor's caches, as the work of clients between two flushes does.
        std::hint::black_box(vec![round; 1 << 20]);
        measure(&bucket, || {
            assert_eq!(bucket.flush_step(), Flushed::Clean);
        })
    };
    let samples: Vec<_> = (1..=rounds).map(sample).collect();
    figures(items, &samples)
}

fn warmup(items: u64) -> Figures {
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
    let samples: Vec<_> = (0..REPETITIONS).map(sample).collect();
    figures(items, &samples)
}

fn main() {
    let mut rows = Rows::default();
    for items in [1, 100, 10_000, 1_000_000] {
        for (kind, what) in ["insert", "replace"].into_iter().enumerate() {
            for (name, value_bytes) in [
                (
                    format!("MemTrackingVBucketBench/FlushVBucket/0/{items}/{kind}"),
                    1,
                ),
                (format!("FlushVBucket/{what}/{items}"), VALUE.len()),
            ] {
                let measure = if kind == 0 { inserts } else { replacements };
                rows.add(name, move || measure(items, value_bytes));
            }
        }
    }
    for items in [100, 500, 2_000] {
        rows.add(format!("FlushNode/replace/{items}"), move || {
            node(items, 100)
        });
    }
    rows.add("Warmup/100000", || warmup(100_000));
    rows.run();
}
