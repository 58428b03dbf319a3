//! A sampler of another process's resident memory.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::process::{RESIDENT, status_bytes};

/// Interval between two samples.
const PERIOD: Duration = Duration::from_millis(100);

/// Median and maximum of samples, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Spread {
    /// The median.
    pub(super) median: u64,
    /// The maximum.
    pub(super) most: u64,
}

impl Spread {
    /// Returns median and maximum of some samples; `None` without samples.
    pub(super) fn of(mut bytes: Vec<u64>) -> Option<Self> {
        bytes.sort_unstable();
        Some(Self {
            median: *bytes.get(bytes.len() / 2)?,
            most: *bytes.last()?,
        })
    }
}

/// A thread that samples a process ten times per second until this value is dropped.
#[derive(Debug)]
pub(super) struct MemorySampler {
    seen: Arc<Mutex<Vec<u64>>>,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MemorySampler {
    /// Starts the thread.
    pub(super) fn start(pid: u32) -> std::io::Result<Self> {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let mine = Arc::clone(&seen);
        let (stop, stopped) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("resident".to_owned())
            .spawn(move || {
                loop {
                    if let Some(bytes) = status_bytes(pid, RESIDENT) {
                        mine.lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(bytes);
                    }
                    if stopped.recv_timeout(PERIOD) != Err(RecvTimeoutError::Timeout) {
                        return;
                    }
                }
            })?;
        Ok(Self {
            seen,
            stop: Some(stop),
            thread: Some(thread),
        })
    }

    /// Returns the samples since the last call.
    pub(super) fn take(&self) -> Vec<u64> {
        std::mem::take(&mut *self.seen.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for MemorySampler {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            thread.join().expect("a panic aborts the process before");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spread_has_median_and_maximum() {
        assert_eq!(Spread::of(Vec::new()), None);
        let spread = Spread { median: 5, most: 9 };
        assert_eq!(Spread::of(vec![9, 1, 5]), Some(spread));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn sampler_sees_own_process() {
        let sampler = MemorySampler::start(std::process::id()).unwrap();
        let deadline = std::time::Instant::now() + Duration::from_secs(30);
        let mut seen = Vec::new();
        while seen.is_empty() && std::time::Instant::now() < deadline {
            seen = sampler.take();
            std::thread::yield_now();
        }
        assert!(seen[0] > 1 << 20, "{seen:?}");
        assert_eq!(status_bytes(u32::MAX, RESIDENT), None);
    }
}
