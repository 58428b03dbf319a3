//! Background work in steps: a worker owns its state, and threads unknown to it call its steps.

use std::io;

/// Time of a worker's next step. A signal during a step makes the next one due at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once, after other workers had their turn.
    Again,
    /// At this time of the threads' clock, or earlier on a signal.
    At(u64),
    /// On a signal.
    OnSignal,
    /// Never: the worker is dropped.
    Done,
}

/// A worker. Its steps are called one at a time, possibly by different threads.
pub trait Worker: Send {
    /// Does a bounded amount of work. `now_ns` is monotonic, of the threads' clock.
    fn step(&mut self, now_ns: u64) -> Next;
}

/// Kind of a store's background work. A commit may wait for a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WorkKind {
    /// Write a log's content to runs.
    Drain,
    /// Merges runs.
    Merge,
}

/// Threads for the workers of stores.
pub trait Threads: Send + Sync {
    /// Adds a worker; its first step is due at once.
    ///
    /// # Errors
    /// No thread could be started.
    fn start(&self, duty: WorkKind, worker: Box<dyn Worker>) -> io::Result<Box<dyn RunningWorker>>;
}

/// A running worker.
pub trait RunningWorker: Send + Sync {
    /// Makes its next step due.
    fn ring(&self);

    /// Waits until it has ended and is dropped.
    fn join(&self);
}
