//! CPU time of server and client during a measurement.

use std::time::Duration;

use super::sheet::Sheet;
use crate::process::process_cpu;

/// CPU time of the server, if known, and of this process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu {
    server: Option<Duration>,
    client: Option<Duration>,
}

impl Cpu {
    /// Returns the CPU time used so far.
    pub(super) fn now(server: Option<u32>) -> Self {
        Self {
            server: server.and_then(process_cpu),
            client: process_cpu(std::process::id()),
        }
    }

    /// Returns the CPU time used since `before`.
    pub(super) fn since(self, before: Self) -> Self {
        let spent =
            |now: Option<Duration>, before: Option<Duration>| Some(now?.saturating_sub(before?));
        Self {
            server: spent(self.server, before.server),
            client: spent(self.client, before.client),
        }
    }

    /// Adds a row for each known process: microseconds per item of `count`.
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
