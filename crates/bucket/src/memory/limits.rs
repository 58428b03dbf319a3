//! The settings behind the marks: the quota, its shares, and the waits of clients for memory.

use std::time::Duration;

/// A share in millionths.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Share(u32);

impl Share {
    const WHOLE: u32 = 1_000_000;

    /// So many percent; more than a hundred are a hundred.
    pub const fn percent(percent: u32) -> Self {
        Self(if percent > 100 { 100 } else { percent } * (Self::WHOLE / 100))
    }

    /// A ratio of 0 to 1; `None` for anything else.
    #[expect(clippy::cast_sign_loss, reason = "it is no less than 0")]
    pub fn ratio(ratio: f64) -> Option<Self> {
        let in_range = (0.0..=1.0).contains(&ratio);
        in_range.then(|| Self((ratio * f64::from(Self::WHOLE)).round() as u32))
    }

    /// What `part` is of `whole`; `None` where it is more than all of it.
    pub fn of_bytes(part: u64, whole: u64) -> Option<Self> {
        if part > whole || whole == 0 {
            return None;
        }
        let millionths = u128::from(part) * u128::from(Self::WHOLE) / u128::from(whole);
        u32::try_from(millionths).ok().map(Self)
    }

    /// The ratio, 0 to 1.
    pub fn as_ratio(self) -> f64 {
        f64::from(self.0) / f64::from(Self::WHOLE)
    }

    /// This share of `whole`, rounded down.
    pub fn of(self, whole: u64) -> u64 {
        let part = u128::from(whole) * u128::from(self.0) / u128::from(Self::WHOLE);
        u64::try_from(part).unwrap_or(whole)
    }
}

/// What can be changed while a bucket runs. Shares are of the quota unless they say otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The quota in bytes.
    pub quota_bytes: u64,
    /// Where eviction stops.
    pub low: Share,
    /// Where it starts.
    pub high: Share,
    /// Above this writes are refused.
    pub mutation: Share,
    /// At this nothing is read back into memory: neither fetches nor backfills.
    pub backfill: Share,
    /// What checkpoints may take for themselves.
    pub checkpoints: Share,
    /// Of the checkpoints' part: above this they are relieved.
    pub checkpoint_upper: Share,
    /// Of the checkpoints' part: down to this.
    pub checkpoint_lower: Share,
}

impl Limits {
    /// The shares of the reference.
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

    /// Whether a bucket can live with them.
    ///
    /// # Errors
    /// What is wrong, in one line.
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

/// The longest waits of clients for memory.
#[derive(Clone, Copy, Debug)]
pub struct MemoryWaits {
    /// Of a write.
    pub write: Duration,
    /// Of a write while the store takes changes: each commit frees memory, and clients that are refused
    /// retry and take processor time from the flusher.
    pub write_storing: Duration,
    /// Of a read from the store.
    pub fetch: Duration,
    /// Of a read from the store for eviction, while there is still memory for it.
    pub relief: Duration,
    /// Of a large request for memory of its bucket. Less than the timeout of most clients.
    pub request: Duration,
    /// Of large requests and responses for other connections to hold less.
    pub congestion: Duration,
}

impl Default for MemoryWaits {
    fn default() -> Self {
        Self {
            write: Duration::from_millis(10),
            write_storing: Duration::from_millis(250),
            fetch: Duration::from_millis(500),
            relief: Duration::from_millis(50),
            request: Duration::from_millis(1500),
            congestion: Duration::from_secs(5),
        }
    }
}
