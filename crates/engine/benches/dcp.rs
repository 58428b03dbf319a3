//! Benchmark of a stream that reads its vBucket: the cursor's read, and every change returned.

#[expect(dead_code, reason = "some of it is for other benchmarks")]
mod common;

use std::hint::black_box;
use std::time::Duration;

use common::{key, set, vbucket};
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use engine::VBucket;
use engine::dcp::{ClaimedPosition, Event, FillResult, Stream, StreamAsk, StreamOptions};
use model::Seqno;

const NAME: &str = "bench";

fn stream(vbucket: &mut VBucket) -> Stream {
    let ask = StreamAsk {
        position: ClaimedPosition::default(),
        end: Seqno(u64::MAX),
        options: StreamOptions::default(),
    };
    let opened = Stream::open(vbucket, NAME, ask);
    opened.expect("from nothing").stream
}

/// Returns a stream with `items` unread changes in `checkpoints` checkpoints.
fn behind(items: u64, checkpoints: u64) -> (VBucket, Stream) {
    let mut vbucket = vbucket();
    let stream = stream(&mut vbucket);
    for checkpoint in 0..checkpoints {
        let share = items / checkpoints + u64::from(checkpoint < items % checkpoints);
        // The first change closes the open checkpoint; the others join the new one.
        vbucket.set_checkpoint_bytes_max(1);
        for index in 0..share {
            set(&mut vbucket, &key(checkpoint * items + index), &[b'v'; 16]);
            vbucket.set_checkpoint_bytes_max(usize::MAX);
        }
    }
    (vbucket, stream)
}

fn drain((mut vbucket, mut stream): (VBucket, Stream)) -> (VBucket, Stream, u64) {
    let mut seen = 0;
    loop {
        while let Some(event) = stream.next_event() {
            if let Event::Change(document) = event {
                seen += 1;
                black_box(document.value().len());
            }
        }
        let (filled, garbage) = stream.fill(&mut vbucket, NAME);
        drop(garbage);
        if !matches!(filled, FillResult::Ready | FillResult::Latest) {
            return (vbucket, stream, seen);
        }
    }
}

fn next_inline(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("ActiveStreamNextBench");
    group.sample_size(20);
    group.warm_up_time(Duration::from_millis(200));
    group.measurement_time(Duration::from_millis(600));
    let reference = [1, 5, 10, 20, 50, 75, 100].map(|items| [1, 2, 4, 8].map(|of| (items, of)));
    let possible = |&(items, checkpoints): &(u64, u64)| checkpoints <= items;
    let reference = reference.into_iter().flatten().filter(possible);
    for (items, checkpoints) in reference.chain([(10_000, 1)]) {
        group.throughput(Throughput::Elements(items));
        let id = BenchmarkId::new("NextInline", format!("{items}/{checkpoints}"));
        group.bench_function(id, |bencher| {
            bencher.iter_batched(|| behind(items, checkpoints), drain, BatchSize::SmallInput);
        });
    }
    group.finish();
}

criterion_group!(benches, next_inline);
criterion_main!(benches);
