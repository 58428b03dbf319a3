//! Signals as values. A second request to end ends the process at once.

use std::io;
use std::process::exit;
use std::thread;

use rustix::process;
use tokio::runtime;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::exit::{Failure, Sysexit};

/// The meaning of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// SIGTERM or SIGINT: drain, flush, exit.
    Terminate,
    /// SIGHUP: reload the configuration.
    Reload,
}

/// The signals that arrived, in order.
pub(crate) struct Signals {
    arrived: UnboundedReceiver<Signal>,
}

impl Signals {
    /// Waits for the next signal.
    pub(crate) async fn next(&mut self) -> Signal {
        // The sending thread never ends. If it did, no signal could end the node gracefully, so the node ends at once.
        self.arrived.recv().await.unwrap_or(Signal::Terminate)
    }
}

/// Starts to receive signals in an own thread: start-up and shutdown may block, and a second signal must end the
/// process even then.
pub(crate) fn watch() -> Result<Signals, Failure> {
    let (sender, arrived) = mpsc::unbounded_channel();
    let failed = |error: io::Error| {
        let hint = "look at ulimit -u and ulimit -v";
        Failure::new(Sysexit::Os, format!("signals: {error} ({hint})"))
    };
    start(sender).map_err(failed)?;
    Ok(Signals { arrived })
}

fn start(sender: UnboundedSender<Signal>) -> io::Result<()> {
    let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
    let streams = {
        let _guard = runtime.enter();
        let stream = |kind| unix::signal(kind);
        // A write beyond the limit of file sizes (ulimit -f) then fails, as on a full disk, and does not end the process.
        let file_size = SignalKind::from_raw(process::Signal::XFSZ.as_raw());
        drop(stream(file_size)?);
        (
            stream(SignalKind::terminate())?,
            stream(SignalKind::interrupt())?,
            stream(SignalKind::hangup())?,
        )
    };
    let forward = move || runtime.block_on(forward(streams, &sender));
    thread::Builder::new()
        .name("signals".into())
        .spawn(forward)
        .map(drop)
}

async fn forward(
    streams: (unix::Signal, unix::Signal, unix::Signal),
    sender: &UnboundedSender<Signal>,
) {
    let (mut terminate, mut interrupt, mut hangup) = streams;
    let mut ending = false;
    loop {
        let (signal, number) = tokio::select! {
            _ = terminate.recv() => (Signal::Terminate, SignalKind::terminate().as_raw_value()),
            _ = interrupt.recv() => (Signal::Terminate, SignalKind::interrupt().as_raw_value()),
            _ = hangup.recv() => (Signal::Reload, SignalKind::hangup().as_raw_value()),
        };
        if signal == Signal::Terminate && ending {
            exit(128 + number);
        }
        ending |= signal == Signal::Terminate;
        if sender.send(signal).is_err() {
            // The receiver is gone: the process is about to end.
            return;
        }
    }
}
