//! The log on standard error.

use std::io::{self, IsTerminal};

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{Layer, Registry, fmt, reload};

use super::config::{LogFormat, LogLevel};

/// The running log, to change its level.
pub(super) struct Logging {
    level: reload::Handle<LevelFilter, Registry>,
}

impl Logging {
    /// Starts the log of this process. Lines for humans are coloured on a terminal only.
    pub(super) fn start(level: LogLevel, format: LogFormat) -> Self {
        let (filter, handle) = reload::Layer::new(filter(level));
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

    pub(super) fn set_level(&self, level: LogLevel) {
        let changed = self.level.modify(|current| *current = filter(level));
        changed.expect("the log lives as long as the process");
    }
}

fn filter(level: LogLevel) -> LevelFilter {
    match level {
        LogLevel::Error => LevelFilter::ERROR,
        LogLevel::Warn => LevelFilter::WARN,
        LogLevel::Info => LevelFilter::INFO,
        LogLevel::Debug => LevelFilter::DEBUG,
        LogLevel::Trace => LevelFilter::TRACE,
    }
}

fn may_colour() -> bool {
    let forbidden = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    io::stderr().is_terminal() && !forbidden
}
