//! Drift between the clocks of other nodes and the local clock, measured by their CAS values.

use model::{Cas, Now};

/// Treatment of a write with metadata if its CAS is too far in the future.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FutureCas {
    /// The CAS is accepted; every later CAS of the vBucket is above it.
    #[default]
    Ignore,
    /// The write is refused with `InvalidCas`.
    Refuse,
    /// The document gets a CAS of this node instead.
    Replace,
}

impl FutureCas {
    const ALL: [Self; 3] = [Self::Ignore, Self::Refuse, Self::Replace];

    /// Name in settings.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ignore => "ignore",
            Self::Refuse => "error",
            Self::Replace => "replace",
        }
    }

    /// Returns the variant with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.name() == name)
    }
}

/// Limits for the distance between a foreign CAS and the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriftLimits {
    /// Distance ahead of the clock above which a CAS counts as an exception, in microseconds.
    pub ahead_us: u64,
    /// Distance behind the clock above which a CAS counts as an exception, in microseconds.
    pub behind_us: u64,
    /// Distance ahead of the clock above which a CAS is in the future, in microseconds.
    pub future_us: u64,
    /// Treatment of a CAS in the future.
    pub future: FutureCas,
}

impl Default for DriftLimits {
    fn default() -> Self {
        Self {
            ahead_us: 5_000_000,
            behind_us: 5_000_000,
            future_us: 3_900_000_000,
            future: FutureCas::Ignore,
        }
    }
}

impl DriftLimits {
    /// Whether the CAS is too far in the future.
    pub(crate) fn is_future(&self, cas: Cas, now: Now) -> bool {
        cas.0.saturating_sub(now.unix_ns) / 1000 > self.future_us
    }
}

/// Counts of changes from other nodes. Allocated with the first such change, to keep a vBucket
/// small.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ForeignCounts {
    pub(crate) sets_lost: u64,
    pub(crate) deletes_lost: u64,
    pub(crate) drift: Drift,
}

/// Sums of the distances between foreign CAS values and the clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Drift {
    pub(crate) total_us: u64,
    pub(crate) count: u64,
    pub(crate) ahead: u64,
    pub(crate) behind: u64,
}

impl Drift {
    /// Counts one CAS.
    pub(crate) fn note(&mut self, cas: Cas, now: Now, limits: &DriftLimits) {
        let off_us = cas.0.abs_diff(now.unix_ns) / 1000;
        self.total_us = self.total_us.saturating_add(off_us);
        self.count += 1;
        if cas.0 > now.unix_ns {
            self.ahead += u64::from(off_us > limits.ahead_us);
        } else {
            self.behind += u64::from(off_us > limits.behind_us);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Now = Now {
        unix_ns: 1_700_000_000_000_000_000,
        mono_ns: 0,
    };

    fn ahead(us: u64) -> Cas {
        Cas(NOW.unix_ns + us * 1000)
    }

    #[test]
    fn cas_beyond_limit_counts_as_exception() {
        let limits = DriftLimits::default();
        let mut drift = Drift::default();
        drift.note(ahead(5_000_000), NOW, &limits);
        drift.note(Cas(NOW.unix_ns - 5_000_000_000), NOW, &limits);
        assert_eq!((drift.ahead, drift.behind), (0, 0), "at the limit");
        drift.note(ahead(5_000_001), NOW, &limits);
        drift.note(Cas(NOW.unix_ns - 5_000_001_000), NOW, &limits);
        drift.note(Cas(1), NOW, &limits);
        assert_eq!((drift.ahead, drift.behind), (1, 2));
        assert_eq!(drift.count, 5);
        assert_eq!(drift.total_us, 20_000_002 + NOW.unix_ns / 1000 - 1);
    }

    #[test]
    fn the_future_begins_above_its_limit() {
        let limits = DriftLimits::default();
        assert!(!limits.is_future(ahead(3_900_000_000), NOW));
        assert!(limits.is_future(ahead(3_900_000_001), NOW));
        assert!(!limits.is_future(Cas(1), NOW));
    }

    #[test]
    fn names_round_trip() {
        for one in FutureCas::ALL {
            assert_eq!(FutureCas::from_name(one.name()), Some(one));
        }
        assert_eq!(FutureCas::from_name("refuse"), None);
    }
}
