//! Measures the effect of a connection that streams all changes on readers and writers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::scene::{Scene, join};
use super::sheet::Sheet;
use crate::error::Error;
use crate::measure::Summary;
use crate::numbers::to_f64;

/// Measures slices without and with the stream in turn.
pub(super) fn run(scene: &mut Scene) -> Result<Sheet, Error> {
    let mut side = scene.side()?;
    scene.load(&mut side)?;
    side.warm_up(&scene.plan)?;
    let (mut without, mut with) = (Summary::default(), Summary::default());
    let mut changes = 0;
    for slice in 1..=scene.plan.slices {
        scene.show_slice(slice);
        without.add(side.measure(&scene.plan)?);
        changes += streamed(scene, |scene| {
            with.add(side.measure(&scene.plan)?);
            Ok(())
        })?;
    }
    let mut sheet = Sheet::new("front end", &["without", "with", "ratio"]);
    let pair = |of: &dyn Fn(&Summary) -> f64| {
        let (without, with) = (of(&without), of(&with));
        [without, with, with / without.max(1e-9)]
    };
    let rates = pair(&Summary::rate);
    sheet.row("ops_per_second", "ops/s, median of slices", 0, &rates);
    let sets = [&without, &with].map(|half| &half.counts.set_latencies);
    let gets =
        [&without, &with].map(|half| half.counts.latencies.without(&half.counts.set_latencies));
    sheet.latencies("get", "get", &[&gets[0], &gets[1]]);
    sheet.latencies("set", "set", &sets);
    if without.cpu_us().is_some() {
        let cpu = pair(&|half| half.cpu_us().unwrap_or(0.0));
        sheet.row("server_cpu_us_per_op", "server CPU, us/op", 2, &cpu);
    }
    let refused = pair(&|half| to_f64(half.counts.errors_total()));
    sheet.row("refused", "refused", 0, &refused[..2]);
    sheet.row("changes", "changes streamed", 0, &[0.0, to_f64(changes)]);
    Ok(sheet)
}

/// Runs `work` while a connection reads all changes; returns their number.
fn streamed(
    scene: &mut Scene,
    work: impl FnOnce(&Scene) -> Result<(), Error>,
) -> Result<u64, Error> {
    let mut follower = scene.caught_up()?;
    let before = follower.figures().changes;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                follower.read(&mut |_, _| {})?;
            }
            Ok(follower.figures().changes)
        });
        let worked = work(scene);
        over.store(true, Ordering::SeqCst);
        let read = join(reading);
        worked?;
        Ok(read? - before)
    })
}
