//! How long workers, streams and statistics hold a vBucket's lock.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why a vBucket's lock is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Hold {
    /// A stream takes changes.
    Pull = 0,
    /// The flusher takes changes, or tells that they are durable.
    Flush = 1,
    /// Changes or checkpoints are let go of, a cursor is dropped.
    Expel = 2,
    /// Documents leave memory.
    Evict = 3,
    /// Documents whose time has come become tombstones.
    Expire = 4,
    /// Documents come back from the store.
    Restore = 5,
    /// Statistics look at figures.
    Stat = 6,
    /// Collections come and go; documents of those that went are erased.
    Collections = 7,
}

/// All reasons.
pub const HOLDS: [Hold; 8] = [
    Hold::Pull,
    Hold::Flush,
    Hold::Expel,
    Hold::Evict,
    Hold::Expire,
    Hold::Restore,
    Hold::Stat,
    Hold::Collections,
];

impl Hold {
    /// The name that statistics show.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pull => "pull",
            Self::Flush => "flush",
            Self::Expel => "expel",
            Self::Evict => "evict",
            Self::Expire => "expire",
            Self::Restore => "restore",
            Self::Stat => "stat",
            Self::Collections => "collections",
        }
    }
}

const SUB_BITS: u32 = 3;
const SUBS: usize = 1 << SUB_BITS;
/// Up to 2^36 ns, eight steps to each power of two.
const STEPS: usize = 37 * SUBS;

/// One hold of so many is also measured in processor time, which costs two calls of the system.
const CPU_SAMPLED: u64 = 64;

/// Two histograms of nanoseconds for each reason: how long the lock was held, and how long the
/// holder's thread ran meanwhile. Where the first is much longer, the system had let others run.
/// Recording costs one relaxed addition.
#[derive(Debug)]
pub struct Holds {
    counts: Box<[AtomicU64]>,
    cpu: Box<[AtomicU64]>,
    begun: AtomicU64,
}

impl Default for Holds {
    fn default() -> Self {
        let cells = || {
            (0..HOLDS.len() * STEPS)
                .map(|_| AtomicU64::new(0))
                .collect()
        };
        Self {
            counts: cells(),
            cpu: cells(),
            begun: AtomicU64::new(0),
        }
    }
}

fn step_of(ns: u64) -> usize {
    let ns = ns.max(SUBS as u64);
    let top = ns.ilog2();
    let sub = (ns >> (top - SUB_BITS)) as usize & (SUBS - 1);
    ((top as usize) * SUBS + sub).min(STEPS - 1)
}

/// Upper edge of a step, inclusive.
fn upper_ns(step: usize) -> u64 {
    let (top, sub) = ((step / SUBS) as u32, (step % SUBS) as u64);
    if top < SUB_BITS {
        return SUBS as u64 - 1;
    }
    ((SUBS as u64 + sub + 1) << (top - SUB_BITS)) - 1
}

impl Holds {
    pub(crate) fn record(&self, hold: Hold, ns: u64) {
        let cell = hold as usize * STEPS + step_of(ns);
        self.counts[cell].fetch_add(1, Ordering::Relaxed);
    }

    /// Whether the hold that begins now is to be measured in processor time.
    pub(crate) fn samples_cpu(&self) -> bool {
        let begun = self.begun.fetch_add(1, Ordering::Relaxed);
        begun.is_multiple_of(CPU_SAMPLED)
    }

    pub(crate) fn record_cpu(&self, hold: Hold, ns: u64) {
        let cell = hold as usize * STEPS + step_of(ns);
        self.cpu[cell].fetch_add(1, Ordering::Relaxed);
    }

    /// How often the lock was held for this reason.
    #[must_use]
    pub fn count(&self, hold: Hold) -> u64 {
        steps(&self.counts, hold).sum()
    }

    /// The time, in nanoseconds, below which `per_mille` of all holds stayed: 999 for p99.9,
    /// 1,000 for the longest. At most an eighth above the true one; 0 when there was none.
    #[must_use]
    pub fn quantile_ns(&self, hold: Hold, per_mille: u64) -> u64 {
        quantile_ns(&self.counts, hold, per_mille)
    }

    /// The same of the processor time that holders took, from one hold in 64.
    #[must_use]
    pub fn cpu_quantile_ns(&self, hold: Hold, per_mille: u64) -> u64 {
        quantile_ns(&self.cpu, hold, per_mille)
    }
}

fn steps(counts: &[AtomicU64], hold: Hold) -> impl DoubleEndedIterator<Item = u64> {
    let first = hold as usize * STEPS;
    counts[first..first + STEPS]
        .iter()
        .map(|count| count.load(Ordering::Relaxed))
}

fn quantile_ns(counts: &[AtomicU64], hold: Hold, per_mille: u64) -> u64 {
    let total: u64 = steps(counts, hold).sum();
    let rank = (total * per_mille).div_ceil(1000).max(1);
    let mut seen = 0;
    for (step, count) in steps(counts, hold).enumerate() {
        seen += count;
        if total > 0 && seen >= rank {
            return upper_ns(step);
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_at_most_an_eighth_too_high() {
        let holds = Holds::default();
        assert_eq!(holds.quantile_ns(Hold::Flush, 999), 0);
        for ns in 1..=1000 {
            holds.record(Hold::Flush, ns * 100);
        }
        holds.record(Hold::Stat, u64::MAX);
        for (per_mille, exact) in [(500, 50_000), (999, 99_900), (1000, 100_000)] {
            let seen = holds.quantile_ns(Hold::Flush, per_mille);
            assert!(
                (exact..=exact * 9 / 8).contains(&seen),
                "{per_mille}: {seen}"
            );
        }
        assert_eq!(holds.count(Hold::Flush), 1000);
        assert_eq!(holds.count(Hold::Stat), 1);
        assert_eq!(holds.count(Hold::Pull), 0);
        assert!(holds.quantile_ns(Hold::Stat, 1000) >= 1 << 36);
        assert_eq!(holds.cpu_quantile_ns(Hold::Stat, 999), 0, "kept apart");
        let sampled = (0..6400).filter(|_| holds.samples_cpu()).count();
        assert_eq!(sampled, 100);
        holds.record_cpu(Hold::Evict, 1_000);
        assert!((1_000..=1_125).contains(&holds.cpu_quantile_ns(Hold::Evict, 999)));
    }
}
