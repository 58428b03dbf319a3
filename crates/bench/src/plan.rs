//! The load as workers, scenarios and reports need it.

use std::str::FromStr;
use std::time::{Duration, Instant};

use model::DurabilityLevel;

use crate::distribution::Distribution;
use crate::protocol::Protocol;
use crate::sizes::Sizes;

/// How much one slice does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Amount {
    /// As much as fits this time.
    Time(Duration),
    /// This many operations over all connections.
    Ops(u64),
}

/// What every connection and worker needs to know; the same for both servers.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Connections to each server.
    pub(crate) connections: u32,
    /// Threads for each server; never more than connections.
    pub(crate) threads: u32,
    /// Requests outstanding on a connection.
    pub(crate) depth: usize,
    /// Number of keys.
    pub(crate) keys: u64,
    /// Which keys are used how often.
    pub(crate) distribution: Distribution,
    /// Writes and reads.
    pub(crate) ratio: Ratio,
    /// Bytes of values.
    pub(crate) sizes: Sizes,
    /// How many of 100 writes delete.
    pub(crate) deletes_percent: u32,
    /// What one slice does.
    pub(crate) slice: Amount,
    /// Number of slices.
    pub(crate) slices: u32,
    /// Load before measuring.
    pub(crate) warmup: Duration,
    /// Operations a second in open loop; `None` for closed loop.
    pub(crate) rate: Option<f64>,
    /// Whether values are checked.
    pub(crate) verify: bool,
    /// How requests are written.
    pub(crate) protocol: Protocol,
    /// How durable writes must be, if at all.
    pub(crate) durability: Option<DurabilityLevel>,
    /// Whether all keys are written first.
    pub(crate) load_first: bool,
    /// Seed of the random choices.
    pub(crate) seed: u64,
    /// Longest time without any answer.
    pub(crate) timeout: Duration,
    /// Values begin with the time since this moment at which they were sent, so that a stream
    /// tells how old they are.
    pub(crate) stamped_since: Option<Instant>,
}

/// How many writes there are to how many reads.
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
