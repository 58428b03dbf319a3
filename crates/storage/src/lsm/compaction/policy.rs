//! Policy: the runs to merge, and the files of values to empty meanwhile. Pure functions.
//!
//! A large merge writes a run for each of [`PARTS`] parts of the vBuckets. From then on a merge takes the runs of one
//! part, so that the disk has an eighth of the rows twice, not all. Younger runs, which have vBuckets of all parts, are
//! merged with one another.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::lsm::run::PARTS;

/// Maximum share of dead data, as one of so many, before all runs are merged: while commits arrive, and while none do.
const DEAD_PART: u64 = 2;
const DEAD_PART_QUIET: u64 = 5;

/// Maximum share of dead rows while no commits arrive, as one of so many: with the heads of rows, documents of 256 bytes
/// then take 1.27 bytes on disk for a live one. Each merge frees the dead rows of a part.
const DEAD_ROWS_PART_QUIET: u64 = 12;

/// Percentage of live bytes below which a file of values is emptied: while commits arrive, and while none do.
const LIVE_PERCENT: u64 = 35;
const LIVE_PERCENT_QUIET: u64 = 80;

/// Maximum share of values that one merge moves, as one of so many: the disk has the old and the new ones until it ends.
/// A merge moves less, down to the other share, if all values would be more than twice the live ones meanwhile.
const MOVED_PART: u64 = 8;
const MOVED_PART_LEAST: u64 = 64;

/// Size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RunSize {
    pub(super) bytes: u64,
    /// Whether the run has damage: it stays as it is, and nothing is merged across it.
    pub(super) damaged: bool,
    /// The part of all its vBuckets, if they are of one.
    pub(super) part: Option<u16>,
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
pub(super) struct MergeLimits {
    /// Bytes of the log, from which the smallest runs are made.
    pub(super) log_bytes: u64,
    /// Number of runs of one class that are merged into the next class.
    pub(super) runs_max: usize,
    pub(super) dead_bytes_min: u64,
}

/// A planned merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MergePlan {
    /// Numbers of the runs, counted from the youngest. No other run between them has a vBucket of theirs.
    pub(super) runs: Vec<usize>,
    /// Whether a run is written for each part.
    pub(super) splits: bool,
    /// Files from which values move.
    pub(super) emptied: BTreeSet<u64>,
    /// Whether other files are left for a later merge.
    pub(super) leaves_files: bool,
}

impl Sizes {
    /// Returns the next merge; `quiet` is true while no commits arrive, `goes_on` if the last merge of all runs left
    /// files that are to be emptied.
    pub(super) fn plan(
        &self,
        limits: MergeLimits,
        quiet: bool,
        goes_on: bool,
    ) -> Option<MergePlan> {
        let files = self.mostly_dead(quiet);
        if let Some(runs) = self.full_class(limits) {
            return Some(self.plan_of(runs, &files, limits));
        }
        let goes_on = goes_on && !files.is_empty();
        let worth = goes_on || self.is_dead(&files, limits, quiet);
        let runs = if worth && !files.is_empty() {
            self.usable().collect()
        } else if worth || quiet && self.has_dead_rows(limits) {
            self.deadest_part(quiet)
        } else {
            Vec::new()
        };
        (!runs.is_empty()).then(|| self.plan_of(runs, &files, limits))
    }

    /// Returns a merge of all mergeable runs that empties these files of values.
    pub(super) fn all(&self, emptied: BTreeSet<u64>, limits: MergeLimits) -> MergePlan {
        MergePlan {
            emptied,
            ..self.plan_of(self.usable().collect(), &[], limits)
        }
    }

    /// Returns the merge of these runs. Values move unless the runs are of one part, which cannot empty a file.
    fn plan_of(&self, runs: Vec<usize>, files: &[u64], limits: MergeLimits) -> MergePlan {
        let bytes: u64 = runs.iter().map(|at| self.runs[*at].bytes).sum();
        // A smaller result stays in the lowest class: the next merge of that class takes it too.
        let is_large = bytes > 2 * limits.log_bytes;
        let from = runs.last().map_or(0, |last| last + 1);
        let older = &self.runs[from..self.usable().end.max(from)];
        // No run of one part lies above an older one of all parts.
        let splits = (is_large || !older.is_empty()) && older.iter().all(|run| run.part.is_some());
        let moves = runs.len() == self.usable().len() || self.young().contains(&runs[0]);
        let emptied = if moves {
            self.deadest(files)
        } else {
            BTreeSet::new()
        };
        MergePlan {
            leaves_files: emptied.len() < files.len(),
            runs,
            splits,
            emptied,
        }
    }

    /// Returns the runs of the lowest full class, and all younger ones: of those of all parts, or of one part.
    fn full_class(&self, limits: MergeLimits) -> Option<Vec<usize>> {
        let young = self.full_class_of(self.young().collect(), limits.log_bytes, limits.runs_max);
        let bytes = limits.log_bytes / u64::from(PARTS);
        let of_part = |part| self.full_class_of(self.of_part(part), bytes, limits.runs_max);
        young.or_else(|| (0..PARTS).find_map(of_part))
    }

    fn full_class_of(
        &self,
        mut runs: Vec<usize>,
        log_bytes: u64,
        runs_max: usize,
    ) -> Option<Vec<usize>> {
        let bytes = |at: &usize| self.runs[*at].bytes;
        let (mut least, mut most) = (0, 2 * log_bytes);
        loop {
            let fits = runs.iter().take_while(|at| bytes(at) <= most).count();
            let of_class = runs[..fits].iter().filter(|at| bytes(at) > least);
            if of_class.count() >= runs_max {
                runs.truncate(fits);
                return Some(runs);
            }
            if fits == runs.len() {
                return None;
            }
            (least, most) = (most, most.saturating_mul(runs_max as u64).max(1));
        }
    }

    /// Returns the mergeable runs up to the oldest one that has vBuckets of several parts.
    fn young(&self) -> Range<usize> {
        let usable = self.usable();
        let oldest = usable.clone().rfind(|at| self.runs[*at].part.is_none());
        usable.start..oldest.map_or(usable.start, |at| at + 1)
    }

    /// Returns the runs of a part that are older than those of several parts.
    fn of_part(&self, part: u16) -> Vec<usize> {
        let older = self.young().end..self.usable().end;
        let is_of = |at: &usize| self.runs[*at].part == Some(part);
        older.filter(is_of).collect()
    }

    /// Returns the runs of the part that has most bytes above its oldest run: only there rows are superseded. The
    /// younger runs come first when nothing is added to them.
    fn deadest_part(&self, quiet: bool) -> Vec<usize> {
        let young = self.young();
        if young.end == self.usable().end {
            return young.collect();
        }
        let above = |runs: &Vec<usize>| {
            let younger = &runs[..runs.len().saturating_sub(1)];
            younger.iter().map(|at| self.runs[*at].bytes).sum::<u64>()
        };
        let parts = (0..PARTS).map(|part| self.of_part(part));
        let deadest = parts.filter(|runs| runs.len() > 1).max_by_key(above);
        match deadest {
            Some(part) if young.is_empty() || !quiet => part,
            _ => young.collect(),
        }
    }

    /// Returns whether enough of the rows is dead for a merge of one part while no commits arrive.
    fn has_dead_rows(&self, limits: MergeLimits) -> bool {
        let bytes = self.run_bytes();
        let dead = bytes - self.live_of(bytes);
        let (values, _) = self.value_bytes();
        dead >= limits.dead_bytes_min && dead > (bytes + values) / DEAD_ROWS_PART_QUIET
    }

    /// Returns whether too much of the store is dead, of which these files would be emptied.
    fn is_dead(&self, mostly_dead: &[u64], limits: MergeLimits, quiet: bool) -> bool {
        let (values, referred) = self.value_bytes();
        let all = self.run_bytes() + values;
        let dead = all.saturating_sub(self.live_of(self.run_bytes() + referred));
        let part = if quiet { DEAD_PART_QUIET } else { DEAD_PART };
        let worth = dead >= limits.dead_bytes_min && dead > all / part;
        // Nothing would be freed if only values died, in a file that is not emptied.
        let dead_rows = self.dead_rows.min(self.rows);
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
        let files = self.values.iter();
        let files = files.filter(|(_, (bytes, referred))| {
            u128::from(self.live_of(*referred)) * 100 < u128::from(*bytes) * u128::from(percent)
        });
        files.map(|(file, _)| *file).collect()
    }

    /// Returns the bytes of the mergeable runs.
    fn run_bytes(&self) -> u64 {
        self.runs[self.usable()].iter().map(|run| run.bytes).sum()
    }

    /// Returns the bytes of all values, and of those that rows refer to.
    fn value_bytes(&self) -> (u64, u64) {
        let values = self.values.values();
        values.fold((0, 0), |sum, (bytes, referred)| {
            (sum.0 + bytes, sum.1 + referred)
        })
    }

    /// Returns the live part of some bytes, as if dead rows were spread evenly over them.
    fn live_of(&self, bytes: u64) -> u64 {
        let live = u128::from(self.rows.saturating_sub(self.dead_rows));
        let part = (u128::from(bytes) * live).checked_div(u128::from(self.rows));
        part.map_or(bytes, |part| part as u64)
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
        let (all, referred) = self.value_bytes();
        let spare = (2 * self.live_of(referred)).saturating_sub(all);
        let most = spare.clamp(all / MOVED_PART_LEAST, all / MOVED_PART);
        let mut moved = 0;
        let fits = sorted.into_iter().take_while(|file| {
            let is_first = moved == 0;
            moved += size(file).1;
            is_first || moved <= most
        });
        fits.collect()
    }

    /// Returns the longest sequence of runs without damage.
    pub(super) fn usable(&self) -> Range<usize> {
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

    const LIMITS: MergeLimits = MergeLimits {
        log_bytes: 10,
        runs_max: 4,
        dead_bytes_min: 5,
    };

    fn sizes(runs: &[u64]) -> Sizes {
        let run = |bytes: &u64| RunSize {
            bytes: *bytes,
            damaged: false,
            part: None,
        };
        Sizes {
            runs: runs.iter().map(run).collect(),
            rows: 100,
            ..Sizes::default()
        }
    }

    fn planned(sizes: &Sizes, quiet: bool) -> Option<Range<usize>> {
        let runs = sizes.plan(LIMITS, quiet, false)?.runs;
        let range = runs[0]..runs[0] + runs.len();
        assert_eq!(runs, range.clone().collect::<Vec<_>>());
        Some(range)
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

    /// Sizes of a store with young runs of all parts above those of each part.
    fn split(young: &[u64], of_each_part: &[u64]) -> Sizes {
        let mut sizes = sizes(young);
        for bytes in of_each_part {
            sizes.runs.extend((0..PARTS).map(|part| RunSize {
                bytes: *bytes,
                damaged: false,
                part: Some(part),
            }));
        }
        sizes
    }

    #[test]
    fn large_merge_writes_a_run_for_each_part() {
        let splits = |sizes: &Sizes| sizes.plan(LIMITS, true, false).map(|plan| plan.splits);
        assert_eq!(splits(&sizes(&[5, 4, 4, 4])), Some(false));
        assert_eq!(splits(&sizes(&[10, 10, 10, 10])), Some(true));
        let older = sizes(&[10, 10, 10, 10, 70]);
        assert_eq!(splits(&older), Some(false), "the older run is of all parts");
        assert_eq!(splits(&split(&[1, 1, 1, 1], &[5])), Some(true));
    }

    /// A run of all parts beyond the lowest class would keep all later merges from writing parts.
    #[test]
    fn every_merge_beyond_the_lowest_class_writes_parts() {
        let limits = MergeLimits {
            runs_max: 8,
            ..LIMITS
        };
        let splits = |runs: &[u64]| {
            sizes(runs)
                .plan(limits, false, false)
                .map(|plan| plan.splits)
        };
        // A flush may write a small second run beside its large one.
        assert_eq!(splits(&[1, 9, 1, 9, 1, 9, 1, 9]), Some(true));
        assert_eq!(splits(&[2, 2, 2, 2, 2, 2, 2, 2]), Some(false));
        assert_eq!(splits(&[2, 2, 2, 2, 2, 2, 2, 16]), Some(true));
    }

    #[test]
    fn full_class_of_a_part_is_merged_without_other_parts_and_younger_runs() {
        let mut parts = split(&[10, 10], &[5, 5, 5]);
        assert_eq!(parts.plan(LIMITS, false, false), None);
        parts.runs.insert(2, parts.runs[5]);
        let plan = parts.plan(LIMITS, false, false).expect("part 3 has four");
        assert_eq!(plan.runs, [2, 6, 14, 22]);
    }

    #[test]
    fn dead_rows_go_part_by_part_when_quiet() {
        let mut parts = split(&[5, 5], &[5, 70]);
        parts.dead_rows = 8;
        assert_eq!(parts.plan(LIMITS, true, false), None, "less than a twelfth");
        parts.dead_rows = 9;
        assert_eq!(parts.plan(LIMITS, false, false), None);
        let plan = parts.plan(LIMITS, true, false).expect("a twelfth is dead");
        assert_eq!((plan.runs, plan.splits), (vec![0, 1], true));
        let mut parts = split(&[], &[5, 70]);
        parts.dead_rows = 9;
        parts.runs[2].bytes = 6;
        let plan = parts.plan(LIMITS, true, false).expect("a twelfth is dead");
        assert_eq!(plan.runs, [2, 10], "part 2 has most bytes above its oldest");
        let mut merged = split(&[], &[70]);
        merged.dead_rows = 9;
        assert_eq!(merged.plan(LIMITS, true, false), None, "nothing lies above");
    }

    #[test]
    fn dead_rows_go_from_parts_before_younger_runs_while_commits_arrive() {
        let mut parts = split(&[5, 5], &[5, 70]);
        parts.dead_rows = 60;
        let plan = parts.plan(LIMITS, false, false).expect("half is dead");
        assert_eq!(plan.runs.len(), 2);
        assert!(plan.runs.iter().all(|at| parts.runs[*at].part == Some(7)));
        let mut merged = split(&[5, 5], &[70]);
        merged.dead_rows = 60;
        assert_eq!(planned(&merged, false), Some(0..2));
    }

    #[test]
    fn values_move_less_while_little_of_them_is_live() {
        let mut values = sizes(&[10]);
        let file = |number: u64| (number, (1000, 400 - number));
        values.values = (0..20).map(file).collect();
        let plan = values.plan(LIMITS, true, false).expect("most is dead");
        assert_eq!(
            plan.emptied.len(),
            1,
            "all are more than twice the live ones"
        );
        values.values = (0..20).map(|number| (number, (1000, 700))).collect();
        let plan = values.plan(LIMITS, true, false).expect("a third is dead");
        assert_eq!(plan.emptied.len(), 3);
    }
}
