//! The real clocks.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use model::Now;

/// Reads the operating system's clocks; monotonic time starts when the clock is made.
#[derive(Debug)]
pub(crate) struct SystemClock {
    start: Instant,
}

impl SystemClock {
    pub(crate) fn new() -> Self {
        Self {
            start: Instant::now(),
        }
    }

    /// Monotonic nanoseconds since the clock was made.
    pub(crate) fn mono_ns(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Both clocks.
    pub(crate) fn now(&self) -> Now {
        let unix = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Now {
            unix_ns: u64::try_from(unix.as_nanos()).unwrap_or(u64::MAX),
            mono_ns: self.mono_ns(),
        }
    }
}

impl bucket::Clock for SystemClock {
    fn now(&self) -> Now {
        Self::now(self)
    }

    #[cfg(target_os = "linux")]
    fn thread_cpu_ns(&self) -> Option<u64> {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let (seconds, ns) = (time.tv_sec.try_into().ok(), time.tv_nsec.try_into().ok());
        let seconds: u64 = seconds?;
        seconds.checked_mul(1_000_000_000)?.checked_add(ns?)
    }
}
