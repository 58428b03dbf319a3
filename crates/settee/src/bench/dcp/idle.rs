//! What streams cost that have nothing to say.

use std::thread;
use std::time::Duration;

use client::Message;
use model::VbId;
use wire::Opcode;

use super::drain::Cpu;
use super::{Bench, Sheet};
use crate::bench::options::Amount;
use crate::bench::to_f64;
use crate::exit::{Failure, Sysexit};

/// Opens streams on many connections and looks at the server's memory.
pub(super) fn run(bench: &mut Bench) -> Result<Sheet, Failure> {
    let Some(pid) = bench.target.pid else {
        return Err(Failure::usage("--dcp idle: --server-pid is needed"));
    };
    // Whatever the first connection alone makes the server set up does not count.
    drop(bench.caught_up()?);
    let high = bench.high_seqnos()?;
    let empty = status_bytes(pid, RESIDENT)?;
    let mut followers = Vec::new();
    for number in 1..=bench.plan.connections {
        bench
            .progress
            .show(&format!("connection {number}/{}", bench.plan.connections));
        let mut follower = bench.follower(0)?;
        follower.request_all()?;
        follower.follow_to_grants()?;
        follower.follow_to(&high)?;
        followers.push(follower);
    }
    let streams: usize = followers.iter().map(super::Follower::streams).sum();
    let opened = status_bytes(pid, RESIDENT)?;
    let before = Cpu::now(Some(pid));
    let watched = match bench.plan.slice {
        Amount::Time(time) => time * bench.plan.slices,
        Amount::Ops(_) => Duration::from_secs(1),
    };
    thread::sleep(watched);
    let spent = Cpu::now(Some(pid)).since(before);
    touch_every_vbucket(bench)?;
    let high = bench.high_seqnos()?;
    for follower in &mut followers {
        follower.follow_to(&high)?;
    }
    let touched = status_bytes(pid, RESIDENT)?;
    let streams = to_f64(streams as u64);
    let grown = |now: u64| to_f64(now.saturating_sub(empty));
    let mut sheet = Sheet::new("idle streams", &[]);
    sheet.row(
        "connections",
        "connections",
        0,
        &[f64::from(bench.plan.connections)],
    );
    sheet.row("streams", "streams", 0, &[streams]);
    for (name, label, now) in [
        ("opened", "opened", opened),
        ("touched", "after a change of each vBucket", touched),
    ] {
        let (bytes, mib) = (grown(now) / streams.max(1.0), grown(now) / 1_048_576.0);
        sheet.row(
            &format!("{name}_bytes_per_stream"),
            &format!("{label}: bytes/stream"),
            0,
            &[bytes],
        );
        sheet.row(&format!("{name}_mib"), &format!("{label}: MiB"), 1, &[mib]);
    }
    spent.rows(&mut sheet, watched.as_secs_f64(), "idle_second");
    Ok(sheet)
}

/// Writes one document of every vBucket.
pub(super) fn touch_every_vbucket(bench: &mut Bench) -> Result<(), Failure> {
    let mut client = bench.client()?;
    let vbuckets = client.key_form().vbuckets.unwrap_or(0);
    let mut untouched = vec![true; usize::from(vbuckets)];
    let mut left = untouched.len();
    for number in 0_u64.. {
        if left == 0 {
            break;
        }
        let key = format!("touch:{number}");
        let VbId(vb) = client.key_form().vbucket(key.as_bytes());
        if std::mem::take(&mut untouched[usize::from(vb)]) {
            left -= 1;
            client.document_request(&Message {
                extras: &[0; 8],
                ..Message::with(Opcode::SET, key.as_bytes(), b"touched")
            })?;
        }
    }
    Ok(())
}

/// Field of a process's status file with its resident memory.
pub(super) const RESIDENT: &str = "VmRSS:";
/// The same for the most that it ever was.
pub(super) const RESIDENT_PEAK: &str = "VmHWM:";

/// An amount of memory in a process's status file, in bytes.
pub(super) fn status_bytes(pid: u32, field: &str) -> Result<u64, Failure> {
    let told = std::fs::read_to_string(format!("/proc/{pid}/status"));
    let found = told.ok().and_then(|text| parse_status(&text, field));
    found.ok_or_else(|| {
        let reason = format!("cannot read how much memory process {pid} has");
        Failure::new(Sysexit::Os, reason)
    })
}

fn parse_status(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::{RESIDENT, RESIDENT_PEAK, parse_status};

    #[test]
    fn resident_memory_is_in_the_status_file() {
        let status = "Name:\tx\nVmHWM:\t 9 kB\nVmRSS:\t    2048 kB\nRssAnon:\t 1 kB\n";
        assert_eq!(parse_status(status, RESIDENT), Some(2 << 20));
        assert_eq!(parse_status(status, RESIDENT_PEAK), Some(9 << 10));
        assert_eq!(parse_status("Name:\tx\n", RESIDENT), None);
    }
}
