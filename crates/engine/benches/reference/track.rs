//! `MemTrackingVBucketBench/QueueDirty`: rate, and how the time of single changes is spread. The
//! bytes are counted in `benches/memory.rs`, since counting takes time.

use std::time::{Duration, Instant};

use engine::{Outcome, StoreMode, Write};
use model::{Cas, Datatype, Draft, Meta};

use crate::common::{NOW, vbucket};
use crate::cpu::cpu_ns;
use crate::{Run, nanoseconds, report};

/// The reference's workload: one in ten keys is an older one.
pub(crate) fn write(index: u64) -> Write {
    let number = if index % 10 == 9 {
        index.div_ceil(2)
    } else {
        index
    };
    let meta = Meta {
        datatype: Datatype::JSON,
        ..Meta::default()
    };
    Write {
        mode: StoreMode::Set,
        draft: Some(Draft::new(format!("\0key{number}").as_bytes(), b"1", &meta)),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
    }
}

/// Makes the documents first, then stores them: CPU time of that, and of each if `times` is given.
fn queue(items: u64, times: Option<&mut Vec<Duration>>) -> u64 {
    let mut writes: Vec<Write> = (0..items).map(write).collect();
    let mut vbucket = vbucket();
    let started = cpu_ns();
    if let Some(times) = times {
        let mut before = Instant::now();
        for write in &mut writes {
            assert!(matches!(vbucket.store(write, NOW), Ok(Outcome::Done(_))));
            let now = Instant::now();
            times.push(now - before);
            before = now;
        }
    } else {
        for write in &mut writes {
            assert!(matches!(vbucket.store(write, NOW), Ok(Outcome::Done(_))));
        }
    }
    cpu_ns() - started
}

#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
pub(crate) fn run(run: &Run) {
    for items in [1, 100, 10_000, 1_000_000] {
        let name = format!("MemTrackingVBucketBench/QueueDirty/0/{items}");
        if !run.wants(&name) {
            continue;
        }
        // Many enough that the clock's steps do not matter; the sum of all, thus a mean.
        let repetitions = (1_000_000 / items).clamp(3, 100);
        let mut times = Vec::new();
        for _ in 0..repetitions {
            queue(items, Some(&mut times));
        }
        times.sort_unstable();
        let each = if items < 1_000 {
            // Too short for the clock of CPU time.
            nanoseconds(times[times.len() / 2])
        } else {
            let total: u64 = (0..repetitions).map(|_| queue(items, None)).sum();
            total as f64 / (repetitions * items) as f64
        };
        let tail = times[times.len() - 1 - times.len() / 1000];
        let counters = [
            ("items_per_second", 1e9 / each.max(1.0)),
            ("p999_ns", nanoseconds(tail)),
        ];
        report(&name, each, &counters);
    }
}
