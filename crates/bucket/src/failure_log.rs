//! Log of failures of which there may be many, for example one for each vBucket or for each request of a client.

use parking_lot::Mutex;

/// Shortest interval between two lines.
const PAUSE_NS: u64 = 60_000_000_000;

/// Limits the rate of log lines about one kind of failure.
#[derive(Debug, Default)]
pub(crate) struct FailureLog(Mutex<FailuresNoted>);

#[derive(Debug, Default)]
struct FailuresNoted {
    /// Number of failures since the last line.
    unlogged: u64,
    /// Time of the last line, monotonic.
    logged_ns: Option<u64>,
}

impl FailureLog {
    /// Notes a failure. Returns the number of failures to log, including this one, if it is time for a line.
    pub(crate) fn note(&self, now_ns: u64) -> Option<u64> {
        let mut noted = self.0.lock();
        noted.unlogged += 1;
        let logged_ns = noted.logged_ns;
        if logged_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < PAUSE_NS) {
            return None;
        }
        noted.logged_ns = Some(now_ns);
        Some(std::mem::take(&mut noted.unlogged))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_counted_between_lines() {
        let log = FailureLog::default();
        assert_eq!(log.note(5), Some(1));
        assert_eq!([6, 7, PAUSE_NS].map(|at_ns| log.note(at_ns)), [None; 3]);
        assert_eq!(log.note(PAUSE_NS + 5), Some(4));
        assert_eq!(log.note(PAUSE_NS + 6), None);
    }
}
