//! CPU time and memory of another process, where the kernel tells them.

use std::time::Duration;

/// Clock ticks a second in `/proc/PID/stat`: fixed by Linux's interface to programs.
const TICKS_PER_SECOND: u64 = 100;

/// User and system CPU time that a process has taken, to 10 ms; `None` where it cannot be read.
pub(crate) fn process_cpu(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&stat)
}

/// The same of all its threads with this name that are running now.
pub(crate) fn threads_cpu(pid: u32, name: &str) -> Option<Duration> {
    let mut sum = Duration::ZERO;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task")).ok()? {
        let path = thread.ok()?.path();
        // A thread may end meanwhile.
        let read = |file: &str| std::fs::read_to_string(path.join(file)).unwrap_or_default();
        if read("comm").trim_end() == name {
            sum += parse_stat(&read("stat")).unwrap_or_default();
        }
    }
    Some(sum)
}

/// Field of a process's status file with its resident memory.
pub(crate) const RESIDENT: &str = "VmRSS:";
/// The same for the most that it ever was.
pub(crate) const RESIDENT_PEAK: &str = "VmHWM:";

/// An amount of memory in a process's status file, in bytes; `None` where it cannot be read.
pub(crate) fn status_bytes(pid: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    parse_status(&status, field)
}

fn parse_status(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Fields 14 and 15 (`utime`, `stime`); the name in field 2 may hold spaces and parentheses.
fn parse_stat(stat: &str) -> Option<Duration> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_ascii_whitespace().skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let system: u64 = fields.next()?.parse().ok()?;
    let ticks = user.checked_add(system)?;
    Some(Duration::from_millis(
        ticks.checked_mul(1_000 / TICKS_PER_SECOND)?,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_may_hold_anything() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 100 0 0 0 150 25 7 8 20 0 4 0 99";
        assert_eq!(parse_stat(stat), Some(Duration::from_millis(1_750)));
        assert_eq!(parse_stat("42 (a) S 1"), None);
        assert_eq!(parse_stat(""), None);
    }

    #[test]
    fn resident_memory_is_in_the_status_file() {
        let status = "Name:\tx\nVmHWM:\t 9 kB\nVmRSS:\t    2048 kB\nRssAnon:\t 1 kB\n";
        assert_eq!(parse_status(status, RESIDENT), Some(2 << 20));
        assert_eq!(parse_status(status, RESIDENT_PEAK), Some(9 << 10));
        assert_eq!(parse_status("Name:\tx\n", RESIDENT), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_has_a_cpu_time() {
        assert!(process_cpu(std::process::id()).is_some());
        assert_eq!(process_cpu(u32::MAX), None);
        assert!(threads_cpu(std::process::id(), "no such name").is_some());
        assert_eq!(threads_cpu(u32::MAX, "x"), None);
    }
}
