//! Log of connections that the system or the node refuses.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Shortest interval between two log lines of a port.
const LOG_PAUSE: Duration = Duration::from_mins(1);

/// Log of refused connections of a port. It limits the rate of log lines: there may be many refusals.
#[derive(Debug)]
pub struct Refusals {
    port: u16,
    unlogged: u64,
    logged: Option<Instant>,
}

impl Refusals {
    /// Creates the log of a port.
    pub fn of(port: u16) -> Self {
        Self {
            port,
            unlogged: 0,
            logged: None,
        }
    }

    /// Logs a refusal, with the number of those since the last line.
    pub fn note(&mut self, error: &dyn Display) {
        self.unlogged += 1;
        if self.logged.is_none_or(|at| at.elapsed() >= LOG_PAUSE) {
            let (port, times) = (self.port, self.unlogged);
            tracing::warn!(port, %error, times, "connections could not be accepted");
            self.unlogged = 0;
            self.logged = Some(Instant::now());
        }
    }
}
