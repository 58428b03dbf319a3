//! Handles SIGINT and SIGTERM: an orderly end.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::runtime;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time;

use crate::exit::{Failure, Sysexit};

/// Time limit of an orderly end. Only a reader of standard output that does not read delays it; then the missing
/// lines are not in the state either.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the user requested an end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Starts to watch for signals. A second signal, or a first one without effect, ends the process at once.
    ///
    /// # Errors
    /// The system cannot provide signals.
    pub(crate) fn watch() -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        let failed = |error: io::Error| Failure::new(Sysexit::Os, format!("signals: {error}"));
        start(Arc::clone(&asked)).map_err(failed)?;
        Ok(Self(asked))
    }

    /// Whether an end was requested.
    pub(crate) fn is_asked(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

fn start(asked: Arc<AtomicBool>) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let (mut interrupt, mut terminate) = {
        let _guard = runtime.enter();
        (
            signal(SignalKind::interrupt())?,
            signal(SignalKind::terminate())?,
        )
    };
    let wait = move || {
        runtime.block_on(async {
            let mut any = async || {
                tokio::select! {
                    _ = interrupt.recv() => SignalKind::interrupt(),
                    _ = terminate.recv() => SignalKind::terminate(),
                }
            };
            let mut last = any().await;
            asked.store(true, Ordering::Relaxed);
            if let Ok(second) = time::timeout(PATIENCE, any()).await {
                last = second;
            }
            process::exit(128 + last.as_raw_value());
        });
    };
    thread::Builder::new()
        .name("signals".into())
        .spawn(wait)
        .map(drop)
}
