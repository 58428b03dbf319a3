//! A request that waits: it stays unconsumed in the input, and is run again when woken.

/// What is remembered of a parked request between its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Park {
    /// When it was first run, monotonic nanoseconds.
    pub(crate) since_ns: u64,
    /// How often it has been run.
    pub(crate) runs: u32,
}
