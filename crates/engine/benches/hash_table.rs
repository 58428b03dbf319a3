//! Benchmarks of the table as used by operations: hits and misses at several sizes, and passes.

mod common;

use std::hint::black_box;

use common::{NOW, filled, key};
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};

const LOOKUPS: u64 = 1_000;

fn lookups(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hash_table");
    group.throughput(Throughput::Elements(LOOKUPS));
    for documents in [1_000, 10_000, 1_000_000] {
        let mut vbucket = filled(documents, b"v");
        let present: Vec<_> = (0..LOOKUPS)
            .map(|index| key(index * 7_654_321 % documents))
            .collect();
        let absent: Vec<_> = (0..LOOKUPS).map(|index| key(documents + index)).collect();
        for (name, keys) in [("hit", present), ("miss", absent)] {
            group.bench_function(BenchmarkId::new(name, documents), |bencher| {
                bencher.iter(|| {
                    for key in &keys {
                        black_box(vbucket.get_meta(key, NOW).is_ok());
                    }
                });
            });
        }
    }
    group.finish();
}

fn passes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("hash_table");
    let mut vbucket = filled(100_000, b"v");
    let slots = vbucket.hash_stats().slots;
    group.throughput(Throughput::Elements(slots as u64));
    group.bench_function("expiry_pass", |bencher| {
        bencher.iter(|| black_box(vbucket.expire_due(slots, NOW)));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    // Short enough to run all benchmarks of the workspace in one go.
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(500))
        .measurement_time(std::time::Duration::from_secs(2));
    targets = lookups, passes
}
criterion_main!(benches);
