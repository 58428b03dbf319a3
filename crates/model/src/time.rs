//! Time as a parameter: nothing below the server and the workers reads a clock.

/// The moment at which an operation runs, as its caller read the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Wall clock, nanoseconds since the Unix epoch; feeds CAS values and expiry.
    pub unix_ns: u64,
    /// Monotonic clock, nanoseconds since an arbitrary start; feeds locks and timeouts.
    pub mono_ns: u64,
}

impl Now {
    /// Wall clock in whole seconds, saturating in the year 2106.
    #[must_use]
    pub fn unix_s(self) -> u32 {
        u32::try_from(self.unix_ns / 1_000_000_000).unwrap_or(u32::MAX)
    }
}
