//! Log of connections that the system or the node refuses.

use std::fmt::Display;
use std::time::{Duration, Instant};

/// Shortest interval between two log lines.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// Log of refused connections. It limits the rate of log lines: there may be many refusals.
#[derive(Debug, Default)]
pub struct Refusals {
    unlogged: u64,
    logged: Option<Instant>,
}

impl Refusals {
    /// Logs a refusal, with the number of those since the last line.
    pub fn note(&mut self, error: &dyn Display) {
        self.unlogged += 1;
        if self.logged.is_none_or(|at| at.elapsed() >= LOG_PAUSE) {
            tracing::warn!(%error, times = self.unlogged, "a connection could not be accepted");
            *self = Self {
                unlogged: 0,
                logged: Some(Instant::now()),
            };
        }
    }
}
