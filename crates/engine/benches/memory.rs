//! Bytes, as the program asks its allocator for them: one JSON object a line.

mod common;

use std::alloc::System;

use common::{filled, flush, key, set, vbucket};
use engine::VBucket;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

const VALUE: [u8; 100] = [b'v'; 100];

/// Bytes allocated and not freed since `region` began.
fn held(region: &Region<'_, System>) -> usize {
    let change = region.change();
    change.bytes_allocated - change.bytes_deallocated
}

fn report(name: &str, counter: &str, value: f64) {
    let line = format!("{{\"name\":\"{name}\",\"median_ns\":null,\"{counter}\":{value:.2}}}");
    #[expect(
        clippy::print_stdout,
        clippy::disallowed_macros,
        reason = "this is its purpose"
    )]
    {
        println!("{line}");
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn mean(samples: &[usize], documents: &[u64]) -> f64 {
    let each = samples
        .iter()
        .zip(documents)
        .map(|(&bytes, &count)| bytes as f64 / count as f64);
    each.sum::<f64>() / samples.len() as f64
}

/// Bytes beyond key and value per document, averaged over a doubling of their number, so that
/// it does not matter where in its growth the table is caught.
fn overhead_per_document() {
    let (first, last) = (131_072u64, 262_144u64);
    let region = Region::new(ALLOCATOR);
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
    report(
        "memory/document_overhead",
        "bytes_per_item",
        mean(&samples, &counts),
    );
    report(
        "memory/document_overhead_counted",
        "bytes_per_item",
        mean(&counted, &counts),
    );
}

/// What a document that waits to be flushed takes more than one that is durable.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn queued_document() {
    const COUNT: u64 = 100_000;
    let mut vbucket = filled(COUNT, &VALUE);
    let region = Region::new(ALLOCATOR);
    (0..COUNT).for_each(|index| set(&mut vbucket, &key(index), &VALUE));
    report(
        "memory/queued_change",
        "bytes_per_item",
        held(&region) as f64 / COUNT as f64,
    );
}

/// `MemTrackingVBucketBench/QueueDirty`: the most that was held after any of the changes, for each
/// of them; the documents are in it, and the table, which grows meanwhile.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn queue_dirty() {
    for count in [1, 100, 10_000, 1_000_000] {
        let mut vbucket = vbucket();
        let region = Region::new(ALLOCATOR);
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
        report(
            &format!("MemTrackingVBucketBench/QueueDirty/0/{count}/PeakBytesPerItem"),
            "bytes_per_item",
            peak as f64 / count as f64,
        );
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn idle_vbucket() {
    const COUNT: usize = 1024;
    let region = Region::new(ALLOCATOR);
    let mut vbuckets: Vec<VBucket> = (0..COUNT).map(|_| vbucket()).collect();
    vbuckets.iter_mut().for_each(flush);
    let bytes = held(&region);
    report(
        "memory/idle_vbucket",
        "bytes_per_vbucket",
        bytes as f64 / COUNT as f64,
    );
    report(
        "memory/vbucket_value",
        "bytes_per_vbucket",
        size_of::<VBucket>() as f64,
    );
}

fn main() {
    overhead_per_document();
    queued_document();
    queue_dirty();
    idle_vbucket();
}
