//! The log on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use super::config::LogFormat;

/// The running log, whose level can change.
pub(super) struct Logging {
    level: reload::Handle<LevelFilter, Registry>,
}

impl Logging {
    /// Starts the log of this process. Lines for humans are coloured on a terminal only.
    pub(super) fn start(level: LevelFilter, format: LogFormat) -> Self {
        let (filter, handle) = reload::Layer::new(level);
        let lines = match format {
            LogFormat::Human => fmt::layer()
                .with_writer(io::stderr)
                .with_ansi(may_colour())
                .boxed(),
            LogFormat::Json => fmt::layer().json().with_writer(io::stderr).boxed(),
        };
        let started = tracing_subscriber::registry()
            .with(filter)
            .with(lines)
            .try_init();
        started.expect("the log is started once in a process");
        Self { level: handle }
    }

    pub(super) fn set_level(&self, level: LevelFilter) {
        let changed = self.level.modify(|current| *current = level);
        changed.expect("the log lives as long as the process");
    }
}

fn may_colour() -> bool {
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !forbidden
}
