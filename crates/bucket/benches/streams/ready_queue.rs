//! Marking, taking and finding ready vBuckets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::Builder;
use std::time::Instant;

use bucket::{ReadySet, Wake};
use model::VbId;

use crate::{VB, report};

struct Quiet(AtomicU64);

impl Wake for Quiet {
    fn wake(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

fn set() -> Arc<ReadySet> {
    Arc::new(ReadySet::new(Arc::new(Quiet(AtomicU64::new(0)))))
}

/// Returns the nanoseconds of each of `count` runs of `f`, which are timed together.
#[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
fn each(count: u32, mut f: impl FnMut(u32)) -> f64 {
    let start = Instant::now();
    for number in 0..count {
        f(number);
    }
    start.elapsed().as_nanos() as f64 / f64::from(count)
}

pub(crate) fn ready_queue() {
    const ROUNDS: u32 = 1_000_000;
    let queue = set();
    queue.mark(VB);
    let again = each(ROUNDS, |_| queue.mark(std::hint::black_box(VB)));
    report("VBReadyQueueBench/PushNotEmpty", &[("median_ns", again)]);
    let queue = set();
    let all = each(1000, |_| {
        for vb in 0..1024 {
            queue.mark(VbId(vb));
        }
        let mut from = VB;
        while let Some(vb) = queue.next(from) {
            from = VbId(vb.0 + 1);
        }
    });
    report("VBReadyQueueBench/PopAllSanity", &[("median_ns", all)]);
    let mut pushed = f64::MAX;
    let mut popped = f64::MAX;
    for _ in 0..100 {
        let queue = set();
        pushed = pushed.min(each(1024, |vb| queue.mark(VbId(vb as u16))));
        popped = popped.min(each(1024, |vb| {
            std::hint::black_box(queue.next(VbId(vb as u16)));
        }));
    }
    report("VBReadyQueueBench/PushEmpty", &[("median_ns", pushed)]);
    report("VBReadyQueueBench/PopFront", &[("median_ns", popped)]);
    crowd();
}

/// Measures lookups of the streams of a vBucket, as a producer does them.
pub(crate) fn streams_map() {
    /// As large as a producer's state of a stream.
    struct Entry([u64; 28]);
    for count in (128..=1024_u16).step_by(128) {
        let streams: BTreeMap<(VbId, u16), Box<Entry>> = (0..count)
            .map(|vb| ((VbId(vb), 0), Box::new(Entry([vb.into(); 28]))))
            .collect();
        let mut median: Vec<f64> = (0..9)
            .map(|_| {
                each(1_000_000, |round| {
                    let vb = VbId((round % u32::from(count)) as u16);
                    let mut found = streams.range((vb, 0)..=(vb, u16::MAX));
                    std::hint::black_box(found.next().map(|(_, entry)| entry.0[0]));
                })
            })
            .collect();
        median.sort_by(f64::total_cmp);
        let name = format!("DcpProducerStreamsMapBench/find/{count}");
        report(&name, &[("median_ns", median[4])]);
    }
}

/// 64 writers mark vBuckets at random, one reader takes them.
fn crowd() {
    const WRITERS: u64 = 64;
    const MARKS: u64 = 200_000;
    let queue = set();
    let busy_ns = Arc::new(AtomicU64::new(0));
    let done = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    for writer in 0..WRITERS {
        let (queue, busy_ns, done) = (Arc::clone(&queue), Arc::clone(&busy_ns), Arc::clone(&done));
        let run = move || {
            let mut random = writer.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let start = cpu_ns();
            for _ in 0..MARKS {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                queue.mark(VbId((random % 1024) as u16));
            }
            busy_ns.fetch_add(cpu_ns() - start, Ordering::Relaxed);
            done.fetch_add(1, Ordering::Release);
        };
        threads.push(Builder::new().spawn(run).expect("a thread starts"));
    }
    let mut from = VB;
    while done.load(Ordering::Acquire) < WRITERS {
        match queue.next(from) {
            Some(vb) => from = VbId(vb.0 + 1),
            None => std::thread::yield_now(),
        }
    }
    for thread in threads {
        thread.join().expect("no writer panics");
    }
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    let mark = busy_ns.load(Ordering::Relaxed) as f64 / (WRITERS * MARKS) as f64;
    report("VBReadyQueueBench/MPSCRandom/64", &[("cpu_ns", mark)]);
}

/// Returns the CPU time of the calling thread.
fn cpu_ns() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        u64::try_from(time.tv_sec * 1_000_000_000 + time.tv_nsec).unwrap_or(0)
    }
    #[cfg(not(target_os = "linux"))]
    0
}
