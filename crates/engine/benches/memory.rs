//! Bytes requested from the allocator: one JSON object a line.
//!
//! `CheckpointBench/FreeExpelled/N` and `FreeRemoved/N` are not benchmarks of the reference. They
//! measure freeing of changes that left the log, N of one checkpoint and N checkpoints of one
//! change, by another thread than the one that made them. Their documents (values of 1 KiB) have
//! left the table before, so that they are freed, too. Times include the counting of bytes: two
//! atomic additions for each block.

mod common;

use std::alloc::GlobalAlloc;
use std::sync::Arc;

use benchkit::{Figures, REPETITIONS, Rows, Summary, per, timed};
use common::{FIRST, NOW, filled, flush, key, set, vbucket};
use engine::{Garbage, VBucket, VbConfig};
use mimalloc::MiMalloc;
use model::{Seqno, VbId, VbState};
use stats_alloc::{Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: StatsAlloc<MiMalloc> = StatsAlloc::new(MiMalloc);

const VALUE: [u8; 100] = [b'v'; 100];

/// Bytes allocated and not freed since `region` began.
fn held(region: &Region<'_, impl GlobalAlloc>) -> usize {
    let change = region.change();
    change.bytes_allocated - change.bytes_deallocated
}

fn mean(samples: &[usize], documents: &[u64]) -> f64 {
    let each = samples.iter().zip(documents);
    let each: Vec<f64> = each
        .map(|(&bytes, &count)| per(bytes as u64, count))
        .collect();
    Summary::of(&each).mean
}

/// Measures bytes beyond key and value per document, averaged over a doubling of their number, so
/// that the table's growth does not matter; and the same as counted by the vBucket.
fn overhead_per_document() -> Figures {
    let (first, last) = (131_072u64, 262_144u64);
    let region = Region::new(&ALLOCATOR);
    let mut vbucket = vbucket();
    let (mut samples, mut counts, mut counted) = (Vec::new(), Vec::new(), Vec::new());
    let mut next = 0;
    for step in 1..=16 {
        let count = first + (last - first) * step / 16;
        (next..count).for_each(|index| set(&mut vbucket, &key(index), &VALUE));
        next = count;
        flush(&mut vbucket);
        let payload = count as usize * (11 + VALUE.len());
        samples.push(held(&region) - payload);
        counted.push(vbucket.memory_bytes() - payload);
        counts.push(count);
    }
    Figures::default()
        .and("bytes_per_item", mean(&samples, &counts))
        .and("counted_bytes_per_item", mean(&counted, &counts))
}

/// Measures the additional bytes of a document that waits to be flushed.
fn queued_document() -> Figures {
    const COUNT: u64 = 100_000;
    let mut vbucket = filled(COUNT, &VALUE);
    let region = Region::new(&ALLOCATOR);
    (0..COUNT).for_each(|index| set(&mut vbucket, &key(index), &VALUE));
    Figures::default().and("bytes_per_item", per(held(&region) as u64, COUNT))
}

/// `MemTrackingVBucketBench/QueueDirty`: the peak of memory after any change, per change; it
/// includes the documents and the growing table.
fn queue_dirty(count: u64) -> Figures {
    let mut vbucket = vbucket();
    let region = Region::new(&ALLOCATOR);
    let mut peak = 0;
    for index in 0..count {
        // As in the reference: one in ten keys is an older one.
        let number = if index % 10 == 9 {
            u64::div_ceil(index, 2)
        } else {
            index
        };
        set(&mut vbucket, format!("\0key{number}").as_bytes(), b"1");
        peak = held(&region).max(peak);
    }
    Figures::default().and("bytes_per_item", per(peak as u64, count))
}

/// Measures a vBucket without documents, and the size of the `VBucket` value.
fn idle_vbucket() -> Figures {
    const COUNT: usize = 1024;
    let region = Region::new(&ALLOCATOR);
    let mut vbuckets: Vec<VBucket> = (0..COUNT).map(|_| vbucket()).collect();
    vbuckets.iter_mut().for_each(flush);
    Figures::default()
        .and("bytes_per_vbucket", per(held(&region) as u64, COUNT as u64))
        .and("value_bytes", per(size_of::<VBucket>() as u64, 1))
}

/// Returns `count` durable changes that only the log held, in one checkpoint or in checkpoints of
/// one change, after their last reader left.
fn garbage(count: u64, expelled: bool) -> Garbage {
    let config = VbConfig {
        checkpoint_bytes_max: if expelled { 1_000_000_000 } else { 1 },
        evicts_keys: true,
        ..VbConfig::default()
    };
    let mut vbucket = VBucket::new(VbId(0), VbState::Active, FIRST, Arc::new(config));
    let reader = vbucket.register_cursor("reader", Seqno(0)).cursor;
    (0..count).for_each(|index| set(&mut vbucket, &key(index), &[b'v'; 1024]));
    flush(&mut vbucket);
    (0..count).for_each(|index| assert!(vbucket.evict(&key(index), NOW)));
    vbucket.remove_cursor(reader)
}

/// Measures the time in which another thread frees them, and the bytes freed.
fn freeing(count: u64, expelled: bool) -> Figures {
    let mut freed = 0;
    let free = |_| {
        let garbage = garbage(count, expelled);
        let drop_it = move || {
            let before = ALLOCATOR.stats().bytes_deallocated;
            let ((), took_ns) = timed(|| drop(garbage));
            (ALLOCATOR.stats().bytes_deallocated - before, took_ns)
        };
        let (bytes, took_ns) =
            std::thread::scope(|scope| scope.spawn(drop_it).join().expect("it frees"));
        freed = bytes;
        took_ns
    };
    let samples: Vec<f64> = (0..REPETITIONS).map(free).collect();
    Figures::of_times(&samples)
        .and("ns_per_item", Summary::of(&samples).median * per(1, count))
        .and("bytes_freed", per(freed as u64, 1))
}

fn main() {
    let mut rows = Rows::default();
    rows.add("memory/document_overhead", overhead_per_document);
    rows.add("memory/queued_change", queued_document);
    for count in [1, 100, 10_000, 1_000_000] {
        let name = format!("MemTrackingVBucketBench/QueueDirty/0/{count}/PeakBytesPerItem");
        rows.add(name, move || queue_dirty(count));
    }
    rows.add("memory/idle_vbucket", idle_vbucket);
    for count in [1, 10, 100, 1_000, 10_000, 100_000] {
        for (what, expelled) in [("FreeExpelled", true), ("FreeRemoved", false)] {
            let name = format!("CheckpointBench/{what}/{count}");
            rows.add(name, move || freeing(count, expelled));
        }
    }
    rows.run();
}
