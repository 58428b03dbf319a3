//! Costs of change streams for writers: one JSON object a line.
//!
//! `VBReadyQueueBench/*` marks and takes ready vBuckets. `DcpProducerStreamsMapBench/find/N` looks
//! up the streams of the next of N vBuckets in a tree like a producer's. `perf_latency_core/SIDE/*`
//! times every Add, Get, Replace and Delete of one vBucket, 100,000 documents with values of 100
//! bytes, in one thread. Sides: `alone`; `streamed` (another thread streams the same vBucket,
//! woken, driven and sending over loopback like a connection of a node); `unsent` (the same without
//! sending, so that it returns all the time). All sides take turns in one run, or one is selected
//! (`-- perf_latency_core/SIDE`). The wake of the other thread is part of the write. The first
//! round touches most of the memory for the first time; later rounds use it again if the allocator
//! keeps it (`MIMALLOC_PURGE_DELAY=-1`): `faults` counts these touches. Times are in nanoseconds.
//!
//! `perf_latency_*/SIDE/*` are the same with other documents, more threads, or concurrent work of
//! the node, `alone` and `streamed` (`variants`); `evicted` counts evicted values, `away` the reads
//! of them.

#![expect(
    clippy::disallowed_methods,
    reason = "a benchmark reads the clock and starts threads"
)]

mod follower;
mod latency;
mod ready_queue;
mod variants;

use bucket::Clock;
use model::{Now, VbId};

use variants::VARIANTS;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const VB: VbId = VbId(0);
const NAME: &str = "bench";

struct Fixed;

impl Clock for Fixed {
    fn now(&self) -> Now {
        now()
    }
}

/// A fixed time.
const fn now() -> Now {
    Now {
        unix_ns: 1_700_000_000_000_000_000,
        mono_ns: 1,
    }
}

fn key(number: u32) -> Vec<u8> {
    format!("\0key{number}").into_bytes()
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

fn main() {
    let names: Vec<String> = std::env::args()
        .skip(1)
        .filter(|name| !name.starts_with('-'))
        .collect();
    // A part runs for each of its rows that is named.
    let asked = |part: &str| {
        let of_it = |name: &String| name.starts_with(&format!("{part}/"));
        names
            .iter()
            .all(|name| part.contains(&**name) || of_it(name))
    };
    if asked("VBReadyQueueBench") {
        ready_queue::ready_queue();
    }
    if asked("DcpProducerStreamsMapBench") {
        ready_queue::streams_map();
    }
    for variant in VARIANTS.iter().filter(|variant| asked(variant.name)) {
        let rows = |name: &String| {
            let rows = name.strip_prefix(variant.name)?.strip_prefix('/')?;
            Some(rows.to_owned())
        };
        let only = names.iter().find_map(rows);
        let only = only.as_deref().and_then(|only| only.split('/').next());
        latency::measure(variant, |side| match only {
            Some(only) => side.contains(only),
            None => variant.name == "perf_latency_core" || side != "unsent",
        });
    }
}
