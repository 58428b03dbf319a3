//! Milliseconds to plan the maps of 100 nodes in 4 zones, with 30 buckets of 1,024 vBuckets with 2 replicas.
//!
//! `planner/plan/fresh`: there are no copies yet; `unchanged`: the maps are as wanted; `removed`, `added`:
//! one node less, one node more.

use std::hint::black_box;

use cluster::{BucketChains, Chain, Member, NodeId, plan};
use criterion::{Criterion, criterion_group, criterion_main};

const NODES: u16 = 100;
const ZONES: u16 = 4;
const BUCKETS: usize = 30;
const VBUCKETS: usize = 1024;
const COPIES: usize = 3;

fn members(nodes: impl Iterator<Item = u16>) -> Vec<Member> {
    let member = |number| Member {
        node: NodeId(number),
        zone: number % ZONES,
    };
    nodes.map(member).collect()
}

fn planning(criterion: &mut Criterion) {
    let empty = Chain::new(&[]).into_iter().cycle().take(VBUCKETS).collect();
    let bucket = |chains| BucketChains {
        chains,
        copies: COPIES,
    };
    let empty = vec![bucket(empty); BUCKETS];
    let all = members(0..NODES);
    let balanced: Vec<BucketChains> = plan(&all, &empty).into_iter().map(bucket).collect();
    let mut group = criterion.benchmark_group("planner/plan");
    group.sample_size(10);
    for (name, members, present) in [
        ("fresh", all.clone(), &empty),
        ("unchanged", all.clone(), &balanced),
        ("removed", members(1..NODES), &balanced),
        ("added", members(0..=NODES), &balanced),
    ] {
        group.bench_function(name, |bencher| {
            bencher.iter(|| plan(black_box(&members), black_box(present)));
        });
    }
    group.finish();
}

criterion_group!(benches, planning);
criterion_main!(benches);
