//! Benchmarks of operations on one vBucket of 100,000 documents of 100 bytes, including the drafts.

mod common;

use std::hint::black_box;

use common::{NOW, filled, flush, key, set, vbucket};
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use model::Cas;

const DOCUMENTS: u64 = 100_000;
const OPERATIONS: u64 = 10_000;
const VALUE: [u8; 100] = [b'v'; 100];

/// Keys of `OPERATIONS` documents, spread over all.
fn keys() -> Vec<[u8; 11]> {
    (0..OPERATIONS)
        .map(|index| key(index * 7919 % DOCUMENTS))
        .collect()
}

fn get(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("vbucket");
    group.throughput(Throughput::Elements(OPERATIONS));
    let (mut vbucket, keys) = (filled(DOCUMENTS, &VALUE), keys());
    group.bench_function("get", |bencher| {
        bencher.iter(|| {
            for key in &keys {
                black_box(vbucket.get(key, NOW).is_ok());
            }
        });
    });
    group.finish();
}

fn store(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("vbucket");
    group
        .throughput(Throughput::Elements(OPERATIONS))
        .sample_size(20);
    group.bench_function("set_insert", |bencher| {
        let keys: Vec<_> = (0..OPERATIONS).map(key).collect();
        let insert = |mut vbucket| {
            for key in &keys {
                set(&mut vbucket, key, &VALUE);
            }
            vbucket
        };
        bencher.iter_batched(vbucket, insert, BatchSize::PerIteration);
    });
    let (mut full, keys) = (filled(DOCUMENTS, &VALUE), keys());
    group.bench_function("set_replace", |bencher| {
        bencher.iter(|| {
            for key in &keys {
                set(&mut full, key, &VALUE);
            }
            flush(&mut full);
        });
    });
    group.bench_function("delete", |bencher| {
        let build = || filled(OPERATIONS, &VALUE);
        let delete = |mut vbucket: engine::VBucket| {
            for index in 0..OPERATIONS {
                black_box(vbucket.delete(&key(index), Cas::ANY, None, NOW).is_ok());
            }
            vbucket
        };
        bencher.iter_batched(build, delete, BatchSize::PerIteration);
    });
    group.finish();
}

criterion_group! {
    name = benches;
    // Short enough to run all benchmarks of the workspace in one go.
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(500))
        .measurement_time(std::time::Duration::from_secs(2));
    targets = get, store
}
criterion_main!(benches);
