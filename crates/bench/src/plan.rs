//! The plan of a run, for workers, scenarios and reports.

use std::str::FromStr;
use std::time::{Duration, Instant};

use model::DurabilityLevel;

use crate::distribution::Distribution;
use crate::protocol::Protocol;
use crate::sizes::Sizes;

/// Size of a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Amount {
    /// The operations that fit into this time.
    Time(Duration),
    /// This number of operations over all connections.
    Ops(u64),
}

/// The plan of a run; the same for both servers.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Connections to each server.
    pub(crate) connections: u32,
    /// Threads per server; never more than connections.
    pub(crate) threads: u32,
    /// Outstanding requests per connection.
    pub(crate) depth: usize,
    /// Number of keys.
    pub(crate) keys: u64,
    /// Distribution of keys over operations.
    pub(crate) distribution: Distribution,
    /// Ratio of writes to reads.
    pub(crate) ratio: Ratio,
    /// Sizes of values.
    pub(crate) sizes: Sizes,
    /// Percentage of writes that delete a document instead.
    pub(crate) deletes_percent: u32,
    /// Size of one slice.
    pub(crate) slice: Amount,
    /// Number of slices.
    pub(crate) slices: u32,
    /// Duration of the load before the measurement.
    pub(crate) warmup: Duration,
    /// Operations per second in an open loop; `None` for a closed loop.
    pub(crate) rate: Option<f64>,
    /// Whether values are verified.
    pub(crate) verify: bool,
    /// Protocol of requests.
    pub(crate) protocol: Protocol,
    /// Durability level of writes, if any.
    pub(crate) durability: Option<DurabilityLevel>,
    /// Whether all keys are written first.
    pub(crate) load_first: bool,
    /// Seed of the random choices.
    pub(crate) seed: u64,
    /// Longest time without an answer.
    pub(crate) timeout: Duration,
    /// Start time of the stamps in values, if values have stamps: each begins with the time at which it was sent,
    /// so that a reader of a stream can compute its age.
    pub(crate) stamped_since: Option<Instant>,
}

/// The ratio of writes to reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ratio {
    /// Writes.
    pub(crate) sets: u32,
    /// Reads.
    pub(crate) gets: u32,
}

impl FromStr for Ratio {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| {
            text.parse::<u32>()
                .ok()
                .filter(|&number| number <= 1_000_000)
        };
        text.split_once(':')
            .and_then(|(sets, gets)| {
                Some(Self {
                    sets: number(sets)?,
                    gets: number(gets)?,
                })
            })
            .filter(|ratio| ratio.sets + ratio.gets > 0)
            .ok_or_else(|| "use SET:GET, two numbers of 0..1000000, not both 0".to_owned())
    }
}

impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.sets, self.gets)
    }
}
