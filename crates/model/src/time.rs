//! Time as a parameter: nothing below the server and the workers reads a clock.

/// The time of an operation; its caller has read the clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// Wall clock, nanoseconds since the Unix epoch; feeds CAS values and expiry.
    pub unix_ns: u64,
    /// Monotonic clock, nanoseconds since an arbitrary start; feeds locks and timeouts.
    pub mono_ns: u64,
}

impl Now {
    /// Wall clock in whole seconds, saturating in the year 2106.
    pub fn unix_s(self) -> u32 {
        u32::try_from(self.unix_ns / 1_000_000_000).unwrap_or(u32::MAX)
    }

    /// Returns the first whole second of the wall clock at which `seconds` have passed: an expiry
    /// that is never too early. `None` beyond the year 2106.
    pub fn expiry_after(self, seconds: u32) -> Option<u32> {
        let whole_s = self.unix_ns.div_ceil(1_000_000_000);
        u32::try_from(whole_s).ok()?.checked_add(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expiry_after_never_expires_early() {
        for nanos in [0, 1, 500_000_000, 999_999_999] {
            let now = Now {
                unix_ns: 1_700_000_000_000_000_000 + nanos,
                mono_ns: 0,
            };
            let expiry_ns = u64::from(now.expiry_after(1).unwrap()) * 1_000_000_000;
            let lives_ns = expiry_ns - now.unix_ns;
            assert!(
                (1_000_000_000..2_000_000_000).contains(&lives_ns),
                "{nanos}"
            );
        }
        let late = Now {
            unix_ns: u64::from(u32::MAX) * 1_000_000_000,
            mono_ns: 0,
        };
        assert_eq!(late.expiry_after(0), Some(u32::MAX));
        assert_eq!(late.expiry_after(1), None);
    }
}
