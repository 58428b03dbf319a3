//! CPU time and memory of another process, if the kernel reports them.

use std::time::Duration;

/// Clock ticks per second in `/proc/PID/stat`; fixed by the interface of Linux.
const TICKS_PER_SECOND: u64 = 100;

/// Returns the user and system CPU time of a process, to 10 ms; `None` if it cannot be read.
pub(crate) fn process_cpu(pid: u32) -> Option<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    parse_stat(&stat)
}

/// Returns the CPU time of the process's live threads with this name.
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

/// Field with the resident memory in the status file of a process.
pub(crate) const RESIDENT: &str = "VmRSS:";
/// Field with the peak of the resident memory.
pub(crate) const RESIDENT_PEAK: &str = "VmHWM:";

/// Returns an amount of memory in the status file of a process, in bytes; `None` if it cannot be read.
pub(crate) fn status_bytes(pid: u32, field: &str) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    parse_status(&status, field)
}

fn parse_status(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find(|line| line.starts_with(field))?;
    let kib: u64 = line.split_ascii_whitespace().nth(1)?.parse().ok()?;
    Some(kib * 1024)
}

/// Parses fields 14 and 15 (`utime`, `stime`). The name in field 2 may contain spaces and parentheses.
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
    fn stat_parser_accepts_any_process_name() {
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
