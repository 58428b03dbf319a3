//! Policy: the runs to merge, and the files of values to empty meanwhile. Pure functions.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// Maximum share of dead data, as one of so many, before all runs are merged: while commits arrive, and while none do.
const DEAD_PART: u64 = 2;
const DEAD_PART_QUIET: u64 = 5;

/// Percentage of live bytes below which a file of values is emptied: while commits arrive, and while none do.
const LIVE_PERCENT: u64 = 35;
const LIVE_PERCENT_QUIET: u64 = 80;

/// Maximum share of values that one merge moves, as one of so many: the disk has the old and the new ones until it ends.
const MOVED_PART: u64 = 8;

/// Size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunSize {
    pub(super) bytes: u64,
    /// Whether the run has damage: it stays as it is, and nothing is merged across it.
    pub(super) damaged: bool,
}

/// Sizes of the store.
#[derive(Clone, Debug, Default)]
pub(super) struct Sizes {
    /// The runs, the youngest first.
    pub(super) runs: Vec<RunSize>,
    pub(super) rows: u64,
    /// Approximate number of superseded rows and removals.
    pub(super) dead_rows: u64,
    /// Total bytes and referenced bytes of each file of values.
    pub(super) values: BTreeMap<u64, (u64, u64)>,
}

/// Limits of the policy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of the log, from which the smallest runs are made.
    pub(super) log_bytes: u64,
    /// Number of runs of one class that are merged into the next class.
    pub(super) runs_max: usize,
    pub(super) dead_bytes_min: u64,
}

/// A planned merge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    /// Range of runs, counted from the youngest.
    pub(super) runs: Range<usize>,
    /// Files from which values move.
    pub(super) emptied: BTreeSet<u64>,
    /// Whether other files are left for a later merge.
    pub(super) leaves_files: bool,
}

impl Sizes {
    /// Returns the next merge; `quiet` is true while no commits arrive, `goes_on` if the last merge of all runs left
    /// files that are to be emptied.
    pub(super) fn plan(&self, limits: Limits, quiet: bool, goes_on: bool) -> Option<Plan> {
        let files = self.mostly_dead(quiet);
        let all = || {
            let goes_on = goes_on && !files.is_empty();
            let worth = goes_on || self.is_dead(&files, limits, quiet);
            Some(self.usable()).filter(|runs| worth && !runs.is_empty())
        };
        let runs = self.full_class(limits).or_else(all)?;
        let emptied = self.deadest(&files);
        Some(Plan {
            runs,
            leaves_files: emptied.len() < files.len(),
            emptied,
        })
    }

    /// Returns a merge of all mergeable runs that empties these files of values.
    pub(super) fn all(&self, emptied: BTreeSet<u64>) -> Plan {
        Plan {
            runs: self.usable(),
            emptied,
            leaves_files: false,
        }
    }

    /// Returns the runs of the lowest full class, and all younger ones.
    fn full_class(&self, limits: Limits) -> Option<Range<usize>> {
        let usable = self.usable();
        let runs = &self.runs[usable.clone()];
        let (mut least, mut most) = (0, 2 * limits.log_bytes);
        loop {
            let fits = runs.iter().take_while(|run| run.bytes <= most).count();
            let of_class = runs[..fits].iter().filter(|run| run.bytes > least);
            if of_class.count() >= limits.runs_max {
                return Some(usable.start..usable.start + fits);
            }
            if fits == runs.len() {
                return None;
            }
            (least, most) = (most, most.saturating_mul(limits.runs_max as u64));
        }
    }

    /// Returns whether too much of the store is dead, of which these files would be emptied.
    fn is_dead(&self, mostly_dead: &[u64], limits: Limits, quiet: bool) -> bool {
        let runs = &self.runs[self.usable()];
        let run_bytes: u64 = runs.iter().map(|run| run.bytes).sum();
        let value_bytes: u64 = self.values.values().map(|(bytes, _)| bytes).sum();
        let live_values: u64 = self.values.values().map(|(_, live)| live).sum();
        let dead_bytes = |rows: u64, of: u64| {
            let share = u128::from(of) * u128::from(rows) / u128::from(self.rows.max(1));
            u64::try_from(share).unwrap_or(u64::MAX)
        };
        let dead_rows = self.dead_rows.min(self.rows);
        let dead = dead_bytes(dead_rows, run_bytes + live_values)
            + (value_bytes - live_values.min(value_bytes));
        let part = if quiet { DEAD_PART_QUIET } else { DEAD_PART };
        let all = run_bytes + value_bytes;
        let worth = dead >= limits.dead_bytes_min && dead > all / part;
        // Nothing would be freed if only values died, in a file that is not emptied.
        let goes = dead_rows > self.rows / (2 * part) || !mostly_dead.is_empty();
        worth && goes
    }

    /// Returns the files of values that are mostly dead.
    fn mostly_dead(&self, quiet: bool) -> Vec<u64> {
        let percent = if quiet {
            LIVE_PERCENT_QUIET
        } else {
            LIVE_PERCENT
        };
        let dead_part = self.rows.saturating_sub(self.dead_rows);
        let lives =
            |live: u64| u128::from(live) * u128::from(dead_part) / u128::from(self.rows.max(1));
        let files = self.values.iter();
        let files = files.filter(|(_, (bytes, live))| {
            lives(*live) * 100 < u128::from(*bytes) * u128::from(percent)
        });
        files.map(|(file, _)| *file).collect()
    }

    /// Returns those of the files with the lowest shares of live bytes that one merge may empty, at least one.
    fn deadest(&self, files: &[u64]) -> BTreeSet<u64> {
        let size = |file: &u64| self.values.get(file).copied().unwrap_or_default();
        let live_ppm = |file: &u64| {
            let (bytes, live) = size(file);
            u128::from(live) * 1_000_000 / u128::from(bytes.max(1))
        };
        let mut sorted = files.to_vec();
        sorted.sort_by_key(live_ppm);
        let most = self.values.values().map(|(bytes, _)| bytes).sum::<u64>() / MOVED_PART;
        let mut moved = 0;
        let fits = sorted.into_iter().take_while(|file| {
            let is_first = moved == 0;
            moved += size(file).1;
            is_first || moved <= most
        });
        fits.collect()
    }

    /// Returns the longest sequence of runs without damage.
    fn usable(&self) -> Range<usize> {
        let mut best = 0..0;
        let mut from = 0;
        for at in 0..=self.runs.len() {
            if self.runs.get(at).is_none_or(|run| run.damaged) {
                if at - from > best.len() {
                    best = from..at;
                }
                from = at + 1;
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits {
        log_bytes: 10,
        runs_max: 4,
        dead_bytes_min: 5,
    };

    fn sizes(runs: &[u64]) -> Sizes {
        let run = |bytes: &u64| RunSize {
            bytes: *bytes,
            damaged: false,
        };
        Sizes {
            runs: runs.iter().map(run).collect(),
            rows: 100,
            ..Sizes::default()
        }
    }

    fn planned(sizes: &Sizes, quiet: bool) -> Option<Range<usize>> {
        sizes.plan(LIMITS, quiet, false).map(|plan| plan.runs)
    }

    #[test]
    fn full_class_is_merged_with_younger_runs() {
        assert_eq!(planned(&sizes(&[10, 10, 10]), false), None);
        assert_eq!(planned(&sizes(&[10, 10, 10, 10]), false), Some(0..4));
        assert_eq!(planned(&sizes(&[10, 10, 10, 70]), false), None);
        assert_eq!(planned(&sizes(&[10, 70, 70, 70]), false), None);
        assert_eq!(
            planned(&sizes(&[10, 70, 70, 70, 70, 700]), false),
            Some(0..5)
        );
        assert_eq!(planned(&sizes(&[10, 70, 70, 700]), false), None);
    }

    #[test]
    fn all_runs_are_merged_when_mostly_dead_and_sooner_when_quiet() {
        let mut half = sizes(&[10, 300]);
        half.dead_rows = 60;
        assert_eq!(planned(&half, false), Some(0..2));
        half.dead_rows = 30;
        assert_eq!(planned(&half, false), None);
        assert_eq!(planned(&half, true), Some(0..2));
    }

    #[test]
    fn nothing_is_merged_across_damage() {
        let mut damaged = sizes(&[10, 10, 10, 10, 10, 10]);
        damaged.runs[1].damaged = true;
        assert_eq!(planned(&damaged, false), Some(2..6));
        damaged.runs[4].damaged = true;
        assert_eq!(planned(&damaged, false), None);
    }

    #[test]
    fn files_of_values_are_emptied_when_mostly_dead() {
        let mut values = sizes(&[10]);
        values.values = [(1, (100, 10)), (3, (100, 40)), (5, (100, 90))].into();
        let plan = values.plan(LIMITS, false, false).expect("half is dead");
        assert_eq!(plan.emptied, [1].into());
        assert!(!plan.leaves_files);
        let plan = values.plan(LIMITS, true, false).expect("a fifth is dead");
        assert_eq!(plan.emptied, [1].into());
        assert!(plan.leaves_files, "3 comes later");
    }

    #[test]
    fn one_merge_moves_a_part_of_the_values() {
        let mut values = sizes(&[10]);
        let file = |number: u64| (number, (100, 70 - number));
        values.values = (0..10).map(file).collect();
        let plan = values.plan(LIMITS, true, false).expect("a third is dead");
        assert_eq!(plan.emptied, [8, 9].into(), "they have 123 of 1,000 bytes");
        assert!(plan.leaves_files);
        values.values = [(1, (100, 100)), (2, (100, 70))].into();
        assert_eq!(values.plan(LIMITS, true, false), None, "little is dead");
        let plan = values.plan(LIMITS, true, true).expect("it goes on");
        assert_eq!(plan.emptied, [2].into());
        values.values = [(1, (1000, 500))].into();
        let plan = values.plan(LIMITS, true, false).expect("half is dead");
        assert_eq!(plan.emptied, [1].into(), "one file is always emptied");
        assert!(!plan.leaves_files);
    }
}
