//! The benchmarks by which the reference engine is measured, under their names and with their
//! set-up: one JSON object a line. Arguments after `--` filter by name.
//!
//! What is measured is the time for which the vBucket's lock would be held. Where the mechanism
//! differs, the functions say what stands for what.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "benchmarks read clocks, run threads and share a vBucket between them"
)]

mod checkpoint;
mod cpu;
mod table;
mod track;
mod vbucket;

#[expect(dead_code, reason = "some of it is for other benchmarks")]
#[path = "../common/mod.rs"]
mod common;

use std::time::{Duration, Instant};

/// The allocator of the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// What there is to run, and what was asked for.
struct Run {
    filter: Option<String>,
}

impl Run {
    fn wants(&self, name: &str) -> bool {
        self.filter
            .as_ref()
            .is_none_or(|filter| name.contains(filter))
    }

    /// Median of `repetitions` single runs of `measured`, each on a state of its own. What it
    /// returns is dropped outside of the measured time.
    fn single<S, R>(
        &self,
        name: &str,
        repetitions: usize,
        build: impl Fn() -> S,
        measured: impl Fn(&mut S) -> R,
    ) {
        if !self.wants(name) {
            return;
        }
        let mut times: Vec<Duration> = (0..repetitions)
            .map(|_| {
                let mut state = build();
                let started = Instant::now();
                let result = measured(&mut state);
                let took = started.elapsed();
                drop(result);
                took
            })
            .collect();
        times.sort_unstable();
        report(name, nanoseconds(times[repetitions / 2]), &[]);
    }
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn nanoseconds(time: Duration) -> f64 {
    time.as_nanos() as f64
}

fn report(name: &str, median_ns: f64, counters: &[(&str, f64)]) {
    let mut line = format!("{{\"name\":\"{name}\",\"median_ns\":{median_ns:.1}");
    for (counter, value) in counters {
        line = format!("{line},\"{counter}\":{value:.1}");
    }
    line.push('}');
    #[expect(
        clippy::print_stdout,
        clippy::disallowed_macros,
        reason = "this is its purpose"
    )]
    {
        println!("{line}");
    }
}

fn main() {
    let filter = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    let run = Run { filter };
    checkpoint::run(&run);
    track::run(&run);
    table::run(&run);
    vbucket::run(&run);
}
