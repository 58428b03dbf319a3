//! SIGINT and SIGTERM: end in order.

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

/// How long an orderly end may take. It is held up only by a reader of standard output that does
/// not read, and what is not written is not in the state either.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether the user wants an end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Begins to watch for signals. A second one, or a first one that shows no effect, ends the
    /// process at once.
    ///
    /// # Errors
    /// The system has no signals left to give.
    pub(crate) fn watch() -> Result<Self, Failure> {
        let asked = Arc::new(AtomicBool::new(false));
        let failed = |error: io::Error| Failure::new(Sysexit::Os, format!("signals: {error}"));
        start(Arc::clone(&asked)).map_err(failed)?;
        Ok(Self(asked))
    }

    /// Whether an end was asked for.
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
