//! How fast all documents come over one connection.

use std::time::{Duration, Instant};

use super::follower::CLOSED_WINDOW;
use super::{Bench, Origin, Sheet};
use crate::bench::cpu::process_cpu;
use crate::bench::to_f64;
use crate::exit::Failure;

/// Writes all documents, then drains them from where they were told to be.
pub(super) fn run(bench: &mut Bench, from: Origin) -> Result<Sheet, Failure> {
    if from == Origin::Memory && !bench.plan.load_first {
        let reason = "--from memory: documents are in the log only if they are written first";
        return Err(Failure::usage(reason));
    }
    let mut early = None;
    if from == Origin::Memory {
        let mut follower = bench.follower(CLOSED_WINDOW)?;
        follower.request_all()?;
        follower.follow_to_grants()?;
        early = Some(follower);
    }
    if bench.plan.load_first {
        bench
            .progress
            .show(&format!("loading {} keys", bench.plan.keys));
        bench.side()?.load()?;
    }
    if from == Origin::Disk {
        bench.persisted()?;
    }
    let high = bench.high_seqnos()?;
    bench.progress.show("draining");
    let before = Cpu::now(bench.target.pid);
    let started = Instant::now();
    let follower = if let Some(mut follower) = early {
        follower.open_window()?;
        follower.follow_to(&high)?;
        follower
    } else {
        let mut follower = bench.follower(0)?;
        follower.request_all()?;
        follower.follow_to(&high)?;
        follower
    };
    let elapsed = started.elapsed();
    let spent = Cpu::now(bench.target.pid).since(before);
    let figures = follower.figures();
    let mut sheet = Sheet::new(format!("drain from {}", from.name()), &[]);
    let seconds = elapsed.as_secs_f64().max(1e-9);
    let changes = to_f64(figures.changes.max(1));
    sheet.row("changes", "changes", 0, &[changes]);
    sheet.row(
        "changes_from_disk",
        "of them in disk snapshots",
        0,
        &[to_f64(figures.from_disk)],
    );
    sheet.row("snapshots", "snapshots", 0, &[to_f64(figures.snapshots)]);
    sheet.row("seconds", "seconds", 3, &[seconds]);
    sheet.row("changes_per_second", "changes/s", 0, &[changes / seconds]);
    sheet.row(
        "mb_per_second",
        "MB/s",
        1,
        &[to_f64(figures.bytes) / seconds / 1e6],
    );
    spent.rows(&mut sheet, changes, "change");
    Ok(sheet)
}

impl Origin {
    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Disk => "disk",
        }
    }
}

/// CPU time of the server, where it is known, and of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu {
    server: Option<Duration>,
    client: Option<Duration>,
}

impl Cpu {
    /// What was spent so far.
    pub(super) fn now(server: Option<u32>) -> Self {
        Self {
            server: server.and_then(process_cpu),
            client: process_cpu(std::process::id()),
        }
    }

    /// What was spent since then.
    pub(super) fn since(self, before: Self) -> Self {
        let spent =
            |now: Option<Duration>, before: Option<Duration>| Some(now?.saturating_sub(before?));
        Self {
            server: spent(self.server, before.server),
            client: spent(self.client, before.client),
        }
    }

    /// Adds a row for each that is known: microseconds for each of `count` things.
    pub(super) fn rows(self, sheet: &mut Sheet, count: f64, each: &str) {
        for (who, spent) in [("server", self.server), ("client", self.client)] {
            if let Some(spent) = spent {
                let us = spent.as_secs_f64() * 1e6 / count;
                let name = format!("{who}_cpu_us_per_{each}");
                sheet.row(&name, &format!("{who} CPU, us/{each}"), 3, &[us]);
            }
        }
    }
}
