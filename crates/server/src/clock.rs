//! The real clocks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use model::Now;

/// Time for which the time of day is derived from the monotonic clock, ns. Each request needs both times, and one
/// reading costs half of two. A change of the system's time takes effect this much later.
const FRESH_NS: u64 = 1_000_000;

/// Returns the time since the machine started. It continues while the machine sleeps: leases of a cluster are measured
/// with it.
#[cfg(target_os = "linux")]
fn boot_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        time.tv_sec.unsigned_abs(),
        time.tv_nsec.unsigned_abs() as u32,
    )
}

/// Returns an approximation: the time since the first call, without sleep of the machine.
#[cfg(not(target_os = "linux"))]
fn boot_time() -> Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}

/// A clock that reads the operating system's clocks. Monotonic time starts when the clock is created.
#[derive(Debug)]
pub(crate) struct SystemClock {
    start: Duration,
    /// Time of day at which monotonic time started, ns since 1970.
    started_unix_ns: AtomicU64,
    /// Monotonic time until which `started_unix_ns` is fresh, ns.
    fresh_until_ns: AtomicU64,
}

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self {
            start: boot_time(),
            started_unix_ns: AtomicU64::new(0),
            fresh_until_ns: AtomicU64::new(0),
        }
    }
}

fn unix_ns() -> u64 {
    let unix = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX)
}

impl bucket::Clock for SystemClock {
    fn now(&self) -> Now {
        let mono_ns = self.mono_ns();
        // Threads that run this at the same time store nearly the same value.
        if mono_ns >= self.fresh_until_ns.load(Ordering::Acquire) {
            let started_unix_ns = unix_ns().saturating_sub(mono_ns);
            self.started_unix_ns
                .store(started_unix_ns, Ordering::Relaxed);
            // A thread that sees this store also sees the one above.
            self.fresh_until_ns
                .store(mono_ns + FRESH_NS, Ordering::Release);
        }
        Now {
            unix_ns: self.started_unix_ns.load(Ordering::Relaxed) + mono_ns,
            mono_ns,
        }
    }

    fn mono_ns(&self) -> u64 {
        let since = boot_time().saturating_sub(self.start);
        u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
    }

    #[cfg(target_os = "linux")]
    fn thread_cpu_ns(&self) -> Option<u64> {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let (seconds, ns) = (time.tv_sec.try_into().ok(), time.tv_nsec.try_into().ok());
        let seconds: u64 = seconds?;
        seconds.checked_mul(1_000_000_000)?.checked_add(ns?)
    }
}

#[cfg(test)]
mod tests {
    use bucket::Clock as _;

    use super::*;

    #[test]
    fn the_time_of_day_matches_the_system_on_every_read() {
        const SLACK_NS: u64 = 5_000_000_000; // this thread may have to wait for a processor
        let clock = SystemClock::new();
        let (mut fresh, mut last) = (0, 0);
        while fresh < 5 {
            let now = clock.now();
            let system = unix_ns();
            assert!(now.mono_ns >= last, "monotonic");
            assert!(now.unix_ns.abs_diff(system) < SLACK_NS, "{now:?} {system}");
            fresh += u32::from(now.mono_ns / FRESH_NS > last / FRESH_NS);
            last = now.mono_ns;
        }
    }
}
