//! Work that goes on in the background, in steps: a worker owns its state, and threads that it knows
//! nothing of call its steps.

use std::io;

/// When the next step of a worker is due. A signal that came during the step makes it due at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once; other workers have their turn in between.
    Again,
    /// At this time of the threads' clock, or on a signal before.
    At(u64),
    /// On a signal.
    OnSignal,
    /// Never: the worker is dropped.
    Done,
}

/// A worker. Its steps are called one at a time, by threads that may differ.
pub trait Worker: Send {
    /// Does a bounded amount of work. `now_ns` is monotonic, of the threads' clock.
    fn step(&mut self, now_ns: u64) -> Next;
}

/// What a store does in the background. A commit may wait for a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Makes runs of a log.
    Drain,
    /// Merges runs.
    Merge,
}

/// Runs the workers of stores.
pub trait Threads: Send + Sync {
    /// Takes over a worker; its first step is due at once.
    ///
    /// # Errors
    /// There is no thread to be had.
    fn start(&self, duty: Duty, worker: Box<dyn Worker>) -> io::Result<Box<dyn Running>>;
}

/// A worker that runs.
pub trait Running: Send + Sync {
    /// Makes its next step due.
    fn ring(&self);

    /// Waits until it is done and dropped.
    fn join(&self);
}
