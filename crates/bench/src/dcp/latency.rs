//! Measures the time from a write to the arrival of its change on another connection.
//!
//! Each value holds the time at which it was sent, and its delay against the schedule. So delays of the load
//! generator are visible, and counted where needed: a stall of the server delays the writes that are due
//! meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Instant;

use super::cpu::Cpu;
use super::follower::Follower;
use super::scene::{Scene, join};
use super::sheet::Sheet;
use crate::error::Error;
use crate::measure::Latencies;
use crate::numbers::to_f64;
use crate::plan::Ratio;
use crate::times::{TIMES_BYTES, Times};

/// Writes per second by default.
const RATE: f64 = 20_000.0;
/// Smallest limit of outstanding writes: the schedule must be kept at any latency.
const DEPTH_MIN: usize = 1_024;

/// Latencies of changes, counted from two start times.
#[derive(Default)]
struct SeenLatencies {
    since_sent: Latencies,
    since_due: Latencies,
}

/// Writes at a fixed rate and reads a stream meanwhile.
pub(super) fn run(scene: &mut Scene) -> Result<Sheet, Error> {
    if scene.plan.sizes.least < TIMES_BYTES {
        let reason = format!("--value-size: with --dcp latency at least {TIMES_BYTES} bytes");
        return Err(Error::usage(reason));
    }
    let started = Instant::now();
    let rate = scene.plan.rate.unwrap_or(RATE);
    scene.plan.rate = Some(rate);
    scene.plan.depth = scene.plan.depth.max(DEPTH_MIN);
    scene.plan.ratio = Ratio { sets: 1, gets: 0 };
    scene.plan.stamped_since = Some(started);
    let mut side = scene.side()?;
    scene.load(&mut side)?;
    let mut follower = scene.caught_up()?;
    side.warm_up(&scene.plan)?;
    follower.follow_to(&scene.high_seqnos()?)?;
    let over = AtomicBool::new(false);
    let before = Cpu::now(scene.target.pid);
    let (measured, seen) = thread::scope(|scope| {
        let watching = scope.spawn(|| watch(&mut follower, started, &over));
        let measured = (1..=scene.plan.slices).try_for_each(|slice| {
            scene.show_slice(slice);
            side.measure(&scene.plan).map(drop)
        });
        over.store(true, Ordering::SeqCst);
        (measured, join(watching))
    });
    measured?;
    let seen = seen?;
    let spent = Cpu::now(scene.target.pid).since(before);
    let (mut answered, mut seconds) = (Latencies::default(), 0.0);
    for slice in &side.slices {
        answered.merge(&slice.counts.latencies);
        seconds += slice.elapsed.as_secs_f64();
    }
    let title = format!("latency at {rate:.0} writes a second");
    let mut sheet = Sheet::new(title, &[]);
    let (sets, changes) = (answered.count().max(1), seen.since_sent.count());
    sheet.count("sets", "writes", sets);
    let rate = to_f64(sets) / f64::max(seconds, 1e-9);
    sheet.figure("sets_per_second", "writes/s", 0, rate);
    sheet.count("changes", "changes seen", changes);
    sheet.latencies("sent_to_seen", "sent to seen", &[&seen.since_sent]);
    sheet.latencies("due_to_seen", "due to seen", &[&seen.since_due]);
    sheet.latencies("due_to_answered", "due to answered", &[&answered]);
    spent.rows(&mut sheet, to_f64(sets), "write");
    Ok(sheet)
}

fn watch(
    follower: &mut Follower,
    started: Instant,
    over: &AtomicBool,
) -> Result<SeenLatencies, Error> {
    let mut seen = SeenLatencies::default();
    let mut came = true;
    while came || !over.load(Ordering::SeqCst) {
        let mut now_ns = None;
        came = follower.read(&mut |_, value| {
            // All values of one read have the same arrival time.
            let now = || u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            let now_ns: u64 = *now_ns.get_or_insert_with(now);
            if let Some(times) = Times::of_value(value) {
                let since_sent = now_ns.saturating_sub(times.sent_ns);
                seen.since_sent.record(since_sent);
                seen.since_due
                    .record(since_sent.saturating_add(times.late_ns));
            }
        })?;
    }
    Ok(seen)
}
