//! CPU time of both sides of a measurement.

use std::time::Duration;

use super::sheet::Sheet;
use crate::process::process_cpu;

/// CPU time of the server, where it is known, and of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu {
    server: Option<Duration>,
    client: Option<Duration>,
}

impl Cpu {
    /// What was spent so far.
    pub(super) fn now(server: Option<u32>) -> Self {
        Self {
            server: server.and_then(process_cpu),
            client: process_cpu(std::process::id()),
        }
    }

    /// What was spent since then.
    pub(super) fn since(self, before: Self) -> Self {
        let spent =
            |now: Option<Duration>, before: Option<Duration>| Some(now?.saturating_sub(before?));
        Self {
            server: spent(self.server, before.server),
            client: spent(self.client, before.client),
        }
    }

    /// Adds a row for each that is known: microseconds for each of `count` things.
    pub(super) fn rows(self, sheet: &mut Sheet, count: f64, each: &str) {
        for (process, spent) in [("server", self.server), ("client", self.client)] {
            if let Some(spent) = spent {
                let us = spent.as_secs_f64() * 1e6 / count;
                let name = format!("{process}_cpu_us_per_{each}");
                sheet.figure(&name, &format!("{process} CPU, us/{each}"), 3, us);
            }
        }
    }
}
