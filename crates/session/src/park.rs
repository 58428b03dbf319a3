//! Parking: a request that waits stays unconsumed in the input, and runs again after a wake.

/// State of a parked request between its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Park {
    /// Time of the first run, monotonic nanoseconds.
    pub(crate) since_ns: u64,
    /// Number of runs.
    pub(crate) runs: u32,
}
