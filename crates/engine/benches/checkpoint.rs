//! Benchmarks of the checkpoint log: cost of a flush under the vBucket's lock and outside it, and
//! changes that replace queued ones.

#[expect(dead_code, reason = "some of it is for other benchmarks")]
mod common;

use std::hint::black_box;

use common::{key, set, vbucket};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::{FlushBudget, VBucket};

fn dirty(documents: u64) -> VBucket {
    let mut vbucket = vbucket();
    (0..documents).for_each(|index| set(&mut vbucket, &key(index), b"v"));
    vbucket
}

const SIZES: [u64; 3] = [100, 10_000, 100_000];

/// Measures both lock holds of a flush; detached changes are freed outside.
fn flush_locked(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checkpoint");
    group.sample_size(20);
    for documents in SIZES {
        group.bench_function(BenchmarkId::new("flush_locked", documents), |bencher| {
            let visits = |mut vbucket: VBucket| {
                let batch = vbucket
                    .begin_flush(FlushBudget::ALL, &mut engine::SpareBuffers::default())
                    .expect("something is dirty");
                let rows = black_box(&batch).len();
                let garbage = vbucket.finish_flush(batch.done(true));
                (vbucket, garbage, rows)
            };
            bencher.iter_batched(|| dirty(documents), visits, BatchSize::PerIteration);
        });
    }
    group.finish();
}

/// Measures the walk over a batch, without a store.
fn batch_walk(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("checkpoint");
    for documents in SIZES {
        group.throughput(Throughput::Elements(documents));
        group.bench_function(BenchmarkId::new("batch_walk", documents), |bencher| {
            let mut vbucket = dirty(documents);
            let batch = vbucket
                .begin_flush(FlushBudget::ALL, &mut engine::SpareBuffers::default())
                .expect("something is dirty");
            bencher.iter(|| {
                let mut rows = 0;
                batch.for_each(&mut |item| {
                    black_box(item);
                    rows += 1;
                });
                rows
            });
        });
    }
    group.finish();
}

fn replace_queued(criterion: &mut Criterion) {
    const CHANGES: u64 = 10_000;
    let mut group = criterion.benchmark_group("checkpoint");
    group
        .throughput(Throughput::Elements(CHANGES))
        .sample_size(20);
    for keys in [1, 1_000] {
        group.bench_function(BenchmarkId::new("deduplicate", keys), |bencher| {
            let change = |mut vbucket: VBucket| {
                (0..CHANGES).for_each(|index| set(&mut vbucket, &key(index % keys), b"v"));
                vbucket
            };
            bencher.iter_batched(|| dirty(keys), change, BatchSize::PerIteration);
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    // Short enough to run all benchmarks of the workspace in one go.
    config = Criterion::default()
        .warm_up_time(std::time::Duration::from_millis(500))
        .measurement_time(std::time::Duration::from_secs(2));
    targets = flush_locked, batch_walk, replace_queued
}
criterion_main!(benches);
