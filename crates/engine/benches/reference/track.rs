//! `MemTrackingVBucketBench/QueueDirty`: rate, and distribution of the times of single changes.
//! `benches/memory.rs` counts the bytes, since counting takes time.

use std::time::Instant;

use benchkit::{Figures, REPETITIONS, Rows, Summary, per, thread_cpu_ns};
use engine::{Outcome, StoreMode, Write};
use model::{Cas, Datatype, Draft, Meta};

use crate::common::{NOW, vbucket};

/// Workload of the reference: one in ten keys is an older one.
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

/// Creates the documents, then stores them; returns the CPU time of a change. Calls `look` before
/// the first change and after each.
fn queue(items: u64, mut look: impl FnMut()) -> f64 {
    let mut writes: Vec<Write> = (0..items).map(write).collect();
    let mut vbucket = vbucket();
    let started = thread_cpu_ns();
    look();
    for write in &mut writes {
        assert!(matches!(vbucket.store(write, NOW), Ok(Outcome::Done(_))));
        look();
    }
    per(thread_cpu_ns() - started, items)
}

fn measure(items: u64) -> Figures {
    let mut times: Vec<f64> = Vec::new();
    for _ in 0..REPETITIONS {
        let mut last: Option<Instant> = None;
        queue(items, || {
            let now = Instant::now();
            let before = last.replace(now);
            times.extend(before.map(|before| (now - before).as_secs_f64() * 1e9));
        });
    }
    let each: Vec<f64> = if items < 1_000 {
        // Too short for the clock of CPU time.
        let repetitions = times.chunks(items as usize);
        repetitions.map(|times| Summary::of(times).mean).collect()
    } else {
        (0..REPETITIONS).map(|_| queue(items, || ())).collect()
    };
    times.sort_by(f64::total_cmp);
    Figures::of_times(&each)
        .and("items_per_second", 1e9 / Summary::of(&each).median)
        .and("p999_ns", times[times.len() - 1 - times.len() / 1000])
}

pub(crate) fn add(rows: &mut Rows<'_>) {
    for items in [1, 100, 10_000, 1_000_000] {
        let name = format!("MemTrackingVBucketBench/QueueDirty/0/{items}");
        rows.add(name, move || measure(items));
    }
}
