//! Measures a consumer whose cursors are dropped. It stops reading; memory pressure makes the node drop the
//! cursors of its streams; it reads again, first from disk, then from memory.

use std::time::Instant;

use super::cpu::Cpu;
use super::follower::{Follower, FollowerFigures};
use super::scene::Scene;
use super::sheet::Sheet;
use crate::error::{Cause, Error};
use crate::numbers::to_f64;
use crate::workload::number_of;

/// Number of changes for which the catch-up time is reported.
const CHANGES_UNIT: f64 = 100_000.0;

/// Keys that arrived, by number.
struct SeenKeys {
    keys: Vec<bool>,
}

impl SeenKeys {
    fn new(keys: u64) -> Self {
        let keys = usize::try_from(keys).unwrap_or(usize::MAX);
        Self {
            keys: vec![false; keys],
        }
    }

    /// Records a key, which has a collection prefix.
    fn note(&mut self, key: &[u8]) {
        let number = key.get(1..).and_then(number_of);
        let seen = number.and_then(|number| self.keys.get_mut(usize::try_from(number).ok()?));
        if let Some(seen) = seen {
            *seen = true;
        }
    }

    fn missing(&self) -> u64 {
        self.keys.iter().filter(|seen| !**seen).count() as u64
    }
}

/// Stops reading, writes more than memory holds, and catches up.
pub(super) fn run(scene: &mut Scene) -> Result<Sheet, Error> {
    if !scene.plan.load_first {
        let reason = "--dcp dropped: without documents to write no cursor is dropped";
        return Err(Error::usage(reason));
    }
    let (mut follower, dropped) = pinned_and_dropped(scene)?;
    scene.show("catching up");
    let keys = scene.plan.keys;
    let high = scene.high_seqnos()?;
    let mut seen = SeenKeys::new(keys);
    let before = Cpu::now(scene.target.pid);
    let started = Instant::now();
    follower.set_window(0)?;
    follower.follow_to_with(&high, &mut |key, _| seen.note(key))?;
    let seconds = started.elapsed().as_secs_f64().max(1e-9);
    let spent = Cpu::now(scene.target.pid).since(before);
    let caught_up = follower.figures();
    let started = Instant::now();
    scene.touch_every_vbucket()?;
    let high = scene.high_seqnos()?;
    follower.follow_to(&high)?;
    let live_ms = started.elapsed().as_secs_f64() * 1e3;
    let live = follower.figures();
    if seen.missing() > 0 {
        let reason = format!("{} of {keys} documents never came", seen.missing());
        return Err(Error::new(Cause::WrongData, reason));
    }
    let mut sheet = Sheet::new("dropped cursors", &[]);
    let changes = to_f64(caught_up.changes.max(1));
    sheet.count("cursors_dropped", "cursors dropped", dropped);
    change_rows(&mut sheet, "changes", "changes", caught_up);
    sheet.count("missing", "documents that never came", 0);
    sheet.change_rate(changes, "seconds until all are there", seconds);
    let unit_ms = seconds * 1e3 * CHANGES_UNIT / changes;
    sheet.figure("ms_per_100000_changes", "ms/100,000 changes", 1, unit_ms);
    spent.rows(&mut sheet, changes, "change");
    let after_that = FollowerFigures {
        changes: live.changes - caught_up.changes,
        from_disk: live.from_disk - caught_up.from_disk,
        ..live
    };
    change_rows(&mut sheet, "live_changes", "changes after that", after_that);
    sheet.figure("live_ms", "ms to write and to see them", 1, live_ms);
    Ok(sheet)
}

fn change_rows(sheet: &mut Sheet, name: &str, label: &str, figures: FollowerFigures) {
    sheet.count(name, label, figures.changes);
    let name = format!("{name}_from_disk");
    sheet.count(&name, "of them in disk snapshots", figures.from_disk);
}

/// Opens a connection that does not read, and writes more than memory holds. Returns the connection and the
/// number of cursors dropped meanwhile.
fn pinned_and_dropped(scene: &mut Scene) -> Result<(Follower, u64), Error> {
    let follower = scene.pinned()?;
    let dropped_before = cursors_dropped(scene)?;
    let keys = scene.plan.keys;
    scene.load(&mut scene.side()?)?;
    scene.persisted()?;
    let dropped = cursors_dropped(scene)?.saturating_sub(dropped_before);
    if dropped == 0 {
        let reason = format!(
            "--keys {keys}: no cursor was dropped; use more keys or a bucket with less memory"
        );
        return Err(Error::usage(reason));
    }
    Ok((follower, dropped))
}

/// Returns the number of cursors that the bucket has dropped since it was opened.
fn cursors_dropped(scene: &mut Scene) -> Result<u64, Error> {
    let mut dropped = None;
    scene.client()?.stat_numbers("memory", |name, number| {
        if name == b"ep_cursors_dropped" {
            dropped = Some(number);
        }
    })?;
    let reason = "the server has no statistic ep_cursors_dropped";
    dropped.ok_or_else(|| Error::new(Cause::Unavailable, reason))
}

#[cfg(test)]
mod tests {
    use super::SeenKeys;
    use crate::workload::key_of;

    #[test]
    fn seen_keys_counts_missing_keys() {
        let mut seen = SeenKeys::new(3);
        for number in [0, 2, 2, 3] {
            seen.note(&[&[0][..], &key_of(number)].concat());
        }
        seen.note(b"");
        assert_eq!(seen.missing(), 1);
    }
}
