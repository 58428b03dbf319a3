//! Processor time of a thread: what a busy machine does not change much.

/// Processor time of this thread so far, nanoseconds. Costs a call of the system.
#[cfg(target_os = "linux")]
pub(crate) fn cpu_ns() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// Elsewhere, time as it goes by.
#[cfg(not(target_os = "linux"))]
pub(crate) fn cpu_ns() -> u64 {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    let start = START.get_or_init(std::time::Instant::now);
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
