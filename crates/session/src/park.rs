//! Parking: a request that waits stays unconsumed in the input, and runs again after a wake.

/// State of a parked request between its runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Park {
    /// Time of the first run, monotonic nanoseconds.
    pub(crate) since_ns: u64,
    /// Number of runs.
    pub(crate) runs: u32,
    /// Whether memory was granted to fetch a document for the request. A write needs no other grant then: while it
    /// waited for one, the document would leave memory again.
    pub(crate) fetches: bool,
}

impl Park {
    /// Parks a request at its first run.
    pub(crate) fn since(since_ns: u64) -> Self {
        Self {
            since_ns,
            runs: 0,
            fetches: false,
        }
    }
}
