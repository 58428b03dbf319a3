//! Measures how fast one connection receives all documents.

use std::time::Instant;

use super::cpu::Cpu;
use super::scene::Scene;
use super::sheet::Sheet;
use crate::error::Error;
use crate::numbers::to_f64;
use crate::scenario::DrainSource;

/// Writes all documents, then streams them from memory or from disk.
pub(super) fn run(scene: &mut Scene, from: DrainSource) -> Result<Sheet, Error> {
    if from == DrainSource::Memory && !scene.plan.load_first {
        let reason = "--from memory: documents are in the log only if they are written first";
        return Err(Error::usage(reason));
    }
    let early = match from {
        DrainSource::Memory => Some(scene.pinned()?),
        DrainSource::Disk => None,
    };
    scene.load(&mut scene.side()?)?;
    if from == DrainSource::Disk {
        scene.persisted()?;
    }
    let high = scene.high_seqnos()?;
    scene.show("draining");
    let before = Cpu::now(scene.target.pid);
    let started = Instant::now();
    let mut follower = match early {
        Some(mut follower) => {
            follower.set_window(0)?;
            follower
        }
        None => scene.follower(0)?,
    };
    follower.follow_to(&high)?;
    let elapsed = started.elapsed();
    let spent = Cpu::now(scene.target.pid).since(before);
    let figures = follower.figures();
    let mut sheet = Sheet::new(format!("drain from {}", from.name()), &[]);
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let changes = to_f64(figures.changes.max(1));
    sheet.figure("changes", "changes", 0, changes);
    let label = "of them in disk snapshots";
    sheet.count("changes_from_disk", label, figures.from_disk);
    sheet.count("snapshots", "snapshots", figures.snapshots);
    sheet.change_rate(changes, "seconds", seconds);
    let rate = to_f64(figures.bytes) / seconds / 1e6;
    sheet.figure("mb_per_second", "MB/s", 1, rate);
    spent.rows(&mut sheet, changes, "change");
    Ok(sheet)
}
