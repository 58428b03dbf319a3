//! Settings of the memory marks: the quota, its shares, and the maximum waits of clients for memory.

use std::time::Duration;

/// A share in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    const WHOLE: u32 = 1_000_000;

    /// Returns a share in percent; values above 100 count as 100.
    pub const fn percent(percent: u32) -> Self {
        Self(if percent > 100 { 100 } else { percent } * (Self::WHOLE / 100))
    }

    /// Returns a share from a ratio of 0 to 1; `None` for other values.
    #[expect(clippy::cast_sign_loss, reason = "it is no less than 0")]
    pub fn ratio(ratio: f64) -> Option<Self> {
        let in_range = (0.0..=1.0).contains(&ratio);
        in_range.then(|| Self((ratio * f64::from(Self::WHOLE)).round() as u32))
    }

    /// Returns the share of `part` in `whole`; `None` if `part` is larger.
    pub fn of_bytes(part: u64, whole: u64) -> Option<Self> {
        if part > whole || whole == 0 {
            return None;
        }
        let millionths = u128::from(part) * u128::from(Self::WHOLE) / u128::from(whole);
        u32::try_from(millionths).ok().map(Self)
    }

    /// Returns the ratio, 0 to 1.
    pub fn as_ratio(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }

    /// Returns this share of `whole`, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        let part = u128::from(whole) * u128::from(self.0) / u128::from(Self::WHOLE);
        u64::try_from(part).unwrap_or(whole)
    }
}

/// Limits that can be changed while a bucket runs. Shares are of the quota unless stated otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The quota in bytes.
    pub quota_bytes: u64,
    /// Low mark, at which eviction stops.
    pub low: Share,
    /// High mark, at which eviction starts.
    pub high: Share,
    /// Limit above which writes are refused.
    pub mutation: Share,
    /// Limit at which fetches and backfills no longer read into memory.
    pub backfill: Share,
    /// Share for checkpoints.
    pub checkpoints: Share,
    /// Share of `checkpoints` above which they are relieved.
    pub checkpoint_upper: Share,
    /// Share of `checkpoints` down to which they are relieved.
    pub checkpoint_lower: Share,
}

impl Limits {
    /// Returns the limits with the shares of the reference.
    pub fn new(quota_bytes: u64) -> Self {
        Self {
            quota_bytes: quota_bytes.min(i64::MAX as u64),
            low: Share::percent(75),
            high: Share::percent(85),
            mutation: Share::percent(93),
            backfill: Share::percent(96),
            checkpoints: Share::percent(20),
            checkpoint_upper: Share::percent(90),
            checkpoint_lower: Share::percent(60),
        }
    }

    /// Checks that the limits are consistent.
    ///
    /// # Errors
    /// One line about the fault.
    pub fn check(&self) -> Result<(), &'static str> {
        let none = Share(0);
        if self.quota_bytes == 0 || self.quota_bytes > i64::MAX as u64 {
            Err("the quota must be above 0")
        } else if self.low > self.high {
            Err("the low mark must not be above the high one")
        } else if self.checkpoint_lower > self.checkpoint_upper {
            Err("the lower mark of checkpoints must not be above the upper one")
        } else if [self.low, self.mutation, self.backfill, self.checkpoints].contains(&none) {
            Err("a share must be above 0")
        } else {
            Ok(())
        }
    }
}

/// Maximum waits of clients for memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryWaits {
    /// For a write.
    pub write: Duration,
    /// For a write while the store commits changes: each commit frees memory, and refused clients
    /// would retry and take processor time from the flusher.
    pub write_storing: Duration,
    /// For eviction before a read from the store, while there is still memory for the read.
    pub relief: Duration,
    /// For a large request, a large write and a read from the store that wait for memory of their bucket. Less
    /// than the timeout of most clients.
    pub large: Duration,
    /// For large requests and responses, until other connections hold less.
    pub congestion: Duration,
}

impl Default for MemoryWaits {
    fn default() -> Self {
        Self {
            write: Duration::from_millis(10),
            write_storing: Duration::from_millis(250),
            relief: Duration::from_millis(50),
            large: Duration::from_millis(1500),
            congestion: Duration::from_secs(5),
        }
    }
}
