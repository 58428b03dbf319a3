//! The schedule of an open loop, and an alarm that is more precise than the timeout of a poll.

use std::io;
use std::time::Duration;

use crate::numbers::to_f64;

/// A schedule: operation `n` of a worker is due at `n / rate` and belongs to connection `n % connections`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    interval_ns: f64,
    connections: u64,
}

impl Pace {
    /// Creates a schedule of `rate` operations per second over `connections` connections.
    pub(crate) fn new(rate: f64, connections: usize) -> Self {
        Self {
            interval_ns: 1e9 / rate,
            connections: connections as u64,
        }
    }

    /// Returns the due time of the worker's operation `nth`, in nanoseconds since the start.
    #[expect(clippy::cast_sign_loss, reason = "both factors are positive")]
    pub(crate) fn due_ns(&self, nth: u64) -> u64 {
        (to_f64(nth) * self.interval_ns) as u64
    }

    /// Returns the due time of operation `nth` on one connection.
    pub(crate) fn due_on_connection_ns(&self, connection: usize, nth: u64) -> u64 {
        self.due_ns(nth * self.connections + connection as u64)
    }

    /// Returns the connection of the worker's operation `nth`.
    pub(crate) fn connection_of(&self, nth: u64) -> usize {
        (nth % self.connections) as usize
    }
}

/// Wakes a poll with sub-millisecond precision.
///
/// Poll timeouts have a resolution of milliseconds, which is coarser than most schedules. Linux has a timer that
/// is an event source. Elsewhere the poll's timeout must suffice.
#[derive(Debug)]
pub(crate) struct Alarm {
    #[cfg(target_os = "linux")]
    timer: std::os::fd::OwnedFd,
}

#[cfg(target_os = "linux")]
impl Alarm {
    /// Creates an alarm that reports to `registry` with `token`.
    pub(crate) fn new(registry: &mio::Registry, token: mio::Token) -> io::Result<Self> {
        use rustix::time::{TimerfdClockId, TimerfdFlags, timerfd_create};
        use std::os::fd::AsRawFd;

        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        let mut source = mio::unix::SourceFd(&timer.as_raw_fd());
        registry.register(&mut source, token, mio::Interest::READABLE)?;
        Ok(Self { timer })
    }

    /// Sets the alarm to `delay`; replaces an earlier setting.
    pub(crate) fn set(&self, delay: Duration) -> io::Result<()> {
        use rustix::time::{Itimerspec, TimerfdTimerFlags, Timespec, timerfd_settime};

        let never = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        let delay = delay.max(Duration::from_nanos(1));
        let it_value = Timespec::try_from(delay).map_err(io::Error::other)?;
        let spec = Itimerspec {
            it_interval: never,
            it_value,
        };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &spec)?;
        Ok(())
    }
}

#[cfg(not(target_os = "linux"))]
impl Alarm {
    /// Creates an alarm that never rings.
    pub(crate) fn new(_: &mio::Registry, _: mio::Token) -> io::Result<Self> {
        Ok(Self {})
    }

    /// Does nothing: the poll's timeout must suffice.
    pub(crate) fn set(&self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operations_go_round_the_connections() {
        let pace = Pace::new(1_000.0, 3);
        assert_eq!(pace.due_ns(0), 0);
        assert_eq!(pace.due_ns(5), 5_000_000);
        for nth in 0..30 {
            let connection = pace.connection_of(nth);
            assert_eq!(
                pace.due_on_connection_ns(connection, nth / 3),
                pace.due_ns(nth)
            );
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_alarm_wakes_a_poll() {
        let mut poll = mio::Poll::new().unwrap();
        let alarm = Alarm::new(poll.registry(), mio::Token(9)).unwrap();
        let mut events = mio::Events::with_capacity(4);
        for _ in 0..2 {
            alarm.set(Duration::from_micros(100)).unwrap();
            poll.poll(&mut events, Some(Duration::from_secs(10)))
                .unwrap();
            assert!(events.iter().any(|event| event.token() == mio::Token(9)));
        }
    }
}
