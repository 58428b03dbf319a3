//! What readers and writers notice of a connection that streams all changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::scene::{Scene, join};
use super::sheet::Sheet;
use crate::error::Error;
use crate::measure::Counts;
use crate::numbers::{median, to_f64};
use crate::side::Side;

/// What was measured without the stream, or with it.
#[derive(Default)]
struct Half {
    counts: Counts,
    rates: Vec<f64>,
    cpu_us: Vec<f64>,
}

impl Half {
    fn measure(&mut self, side: &mut Side, scene: &Scene) -> Result<(), Error> {
        let slice = side.measure(&scene.plan)?;
        self.counts.merge(&slice.counts);
        self.rates.push(slice.ops_per_second());
        self.cpu_us.extend(slice.cpu_us_per_op());
        Ok(())
    }
}

/// Slices without and with the stream in turn.
pub(super) fn run(scene: &mut Scene) -> Result<Sheet, Error> {
    let mut side = scene.side()?;
    scene.load(&mut side)?;
    side.warm_up(&scene.plan)?;
    let (mut without, mut with) = (Half::default(), Half::default());
    let mut changes = 0;
    for slice in 1..=scene.plan.slices {
        scene.show_slice(slice);
        without.measure(&mut side, scene)?;
        changes += streamed(scene, |scene| with.measure(&mut side, scene))?;
    }
    let mut sheet = Sheet::new("front end", &["without", "with", "ratio"]);
    let pair = |of: &dyn Fn(&Half) -> f64| {
        let (without, with) = (of(&without), of(&with));
        [without, with, with / without.max(1e-9)]
    };
    let rates = pair(&|half| median(half.rates.iter().copied()));
    sheet.row("ops_per_second", "ops/s, median of slices", 0, &rates);
    let sets = [&without, &with].map(|half| &half.counts.set_latencies);
    let gets =
        [&without, &with].map(|half| half.counts.latencies.without(&half.counts.set_latencies));
    sheet.latencies("get", "get", &[&gets[0], &gets[1]]);
    sheet.latencies("set", "set", &sets);
    if !without.cpu_us.is_empty() {
        let cpu = pair(&|half| median(half.cpu_us.iter().copied()));
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
