//! Measures the memory of idle streams.

use std::thread;
use std::time::Duration;

use super::cpu::Cpu;
use super::follower::Follower;
use super::scene::Scene;
use super::sheet::Sheet;
use crate::error::{Cause, Error};
use crate::numbers::{BYTES_PER_MIB, to_f64};
use crate::plan::Amount;
use crate::process::{RESIDENT, status_bytes};

/// Opens streams on many connections and measures the server's memory.
pub(super) fn run(scene: &mut Scene) -> Result<Sheet, Error> {
    let Some(pid) = scene.target.pid else {
        return Err(Error::usage("--dcp idle: --server-pid is needed"));
    };
    // Memory that the server allocates once, for its first connection, does not count.
    drop(scene.caught_up()?);
    let high = scene.high_seqnos()?;
    let empty = resident(pid)?;
    let mut followers = Vec::new();
    for number in 1..=scene.plan.connections {
        scene.show(&format!("connection {number}/{}", scene.plan.connections));
        let mut follower = scene.follower(0)?;
        follower.follow_to_grants()?;
        follower.follow_to(&high)?;
        followers.push(follower);
    }
    let streams: usize = followers.iter().map(Follower::streams).sum();
    let opened = resident(pid)?;
    let before = Cpu::now(Some(pid));
    let watched = match scene.plan.slice {
        Amount::Time(time) => time * scene.plan.slices,
        Amount::Ops(_) => Duration::from_secs(1),
    };
    thread::sleep(watched);
    let spent = Cpu::now(Some(pid)).since(before);
    scene.touch_every_vbucket()?;
    let high = scene.high_seqnos()?;
    for follower in &mut followers {
        follower.follow_to(&high)?;
    }
    let touched = resident(pid)?;
    let streams = to_f64(streams as u64);
    let grown = |now: u64| to_f64(now.saturating_sub(empty));
    let mut sheet = Sheet::new("idle streams", &[]);
    sheet.count("connections", "connections", scene.plan.connections.into());
    sheet.figure("streams", "streams", 0, streams);
    for (name, label, now) in [
        ("opened", "opened", opened),
        ("touched", "after a change of each vBucket", touched),
    ] {
        let (bytes, mib) = (grown(now) / streams.max(1.0), grown(now) / BYTES_PER_MIB);
        let per_stream = format!("{label}: bytes/stream");
        sheet.figure(&format!("{name}_bytes_per_stream"), &per_stream, 0, bytes);
        sheet.figure(&format!("{name}_mib"), &format!("{label}: MiB"), 1, mib);
    }
    spent.rows(&mut sheet, watched.as_secs_f64(), "idle_second");
    Ok(sheet)
}

fn resident(pid: u32) -> Result<u64, Error> {
    status_bytes(pid, RESIDENT).ok_or_else(|| {
        let reason = format!("cannot read how much memory process {pid} has");
        Error::new(Cause::Machine, reason)
    })
}
