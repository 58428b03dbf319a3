//! Work that goes on in the background, in steps: a worker owns its state, and a pool of threads
//! that it knows nothing of calls its steps.

/// When the next step of a worker is due. A signal that came during the step makes it due at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At once; other workers have their turn in between.
    Again,
    /// At this time of the pool's clock, or on a signal before.
    At(u64),
    /// On a signal.
    OnSignal,
    /// Never: the worker is dropped.
    Done,
}

/// A worker. Its steps are called one at a time, by threads that may differ.
pub trait Worker: Send {
    /// Does a bounded amount of work. `now_ns` is monotonic, of the pool's clock.
    fn step(&mut self, now_ns: u64) -> Next;
}
