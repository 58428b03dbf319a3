//! Send times in values.

use std::time::Instant;

/// Size of the times in a value, in bytes.
pub(crate) const TIMES_BYTES: usize = 16;

/// The times in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// Time of sending, in nanoseconds since the start.
    pub(crate) sent_ns: u64,
    /// Delay against the schedule, in nanoseconds.
    pub(crate) late_ns: u64,
}

impl Times {
    /// Creates the times of a value that is sent at this moment.
    pub(crate) fn now(since: Instant, late_ns: u64) -> Self {
        Self {
            sent_ns: u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX),
            late_ns,
        }
    }

    /// Appends a value that begins with the times.
    pub(crate) fn append_value(self, filler: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(&self.sent_ns.to_be_bytes());
        out.extend_from_slice(&self.late_ns.to_be_bytes());
        out.extend_from_slice(filler);
    }

    /// Parses the times at the start of a value; `None` if it is too short.
    pub(crate) fn of_value(value: &[u8]) -> Option<Self> {
        let (sent, rest) = value.split_first_chunk()?;
        Some(Self {
            sent_ns: u64::from_be_bytes(*sent),
            late_ns: u64::from_be_bytes(*rest.first_chunk()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn value_holds_its_times() {
        let times = Times::now(Instant::now(), 7);
        let mut value = Vec::new();
        times.append_value(b"filler", &mut value);
        assert_eq!(Times::of_value(&value), Some(times));
        assert_eq!(value.len(), TIMES_BYTES + 6);
        assert_eq!(Times::of_value(&value[..TIMES_BYTES - 1]), None);
    }
}
