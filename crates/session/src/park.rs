//! Parking: a request that waits stays unconsumed in the input, and runs again after a wake.

use std::sync::Arc;

use bucket::Fetch;

/// State of a parked request between its runs.
#[derive(Clone)]
pub(crate) struct Park {
    /// Time of the first run, monotonic nanoseconds.
    pub(crate) since_ns: u64,
    /// Number of runs.
    pub(crate) runs: u32,
    /// Documents that are fetched for the request. A write needs no other grant of memory then: while it waited for
    /// one, they would leave memory again.
    pub(crate) fetches: Vec<Arc<Fetch>>,
    /// Whether its answer is large, and waited for memory. The document may leave meanwhile, and is not fetched for the
    /// next look.
    pub(crate) is_large: bool,
}

impl Park {
    /// Parks a request at its first run.
    pub(crate) fn since(since_ns: u64) -> Self {
        Self {
            since_ns,
            runs: 0,
            fetches: Vec::new(),
            is_large: false,
        }
    }
}
