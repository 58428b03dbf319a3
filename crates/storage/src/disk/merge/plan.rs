//! When runs are merged, and which rows a merge takes over from journals.

use super::super::value_log::{LiveBytes, SegmentBytes};

/// Runs that lie side by side until they are merged with what is below. A merge writes all that is
/// there but for what it leaves in young journals, so the more runs it takes, the less is written; a read that
/// misses the journals asks each of them, and what they refer to takes space.
const RUNS_MIN: u64 = 16;
const RUNS_MAX: u64 = 64;

/// Runs are merged once everything takes so many times the space of what lives.
const TIMES_LIVING: u64 = 3;

/// Journals that a merge leaves at most.
const LEFT_MAX: usize = 192;

/// Bytes that live, above which nothing is merged just because it is mostly dead: it would take too long, should many
/// runs come meanwhile.
const QUIET_BYTES_MAX: u64 = 1 << 30;

/// What there is, in bytes, but for rows and removals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Tables below the runs, ...
    pub(super) below: u64,
    /// ... rows that they refer to, all of which lived after the last merge, ...
    pub(super) left: u64,
    /// ... and the journals in which these lie.
    pub(super) left_in: u64,
    /// Runs, and the journals of theirs.
    pub(super) new: u64,
    /// Rows of all tables.
    pub(super) rows: u64,
    /// A removal stands for the row that it removes: a row that came and went within a journal is
    /// in no table.
    pub(super) removals: u64,
}

impl Sizes {
    /// What all takes.
    pub(super) fn all(self) -> u64 {
        self.below + self.left_in + self.new
    }

    /// What lives of it, about.
    pub(super) fn live(self) -> u64 {
        let bytes = self.below + self.left + self.new;
        let live = self.rows - self.removals.min(self.rows);
        let part = u128::from(bytes) * u128::from(live) / u128::from(self.rows.max(1));
        u64::try_from(part).expect("it is a part of the bytes")
    }

    /// How many runs are merged with what is below.
    pub(super) fn runs_due(self, run_bytes: u64) -> u8 {
        let then = (self.below + self.left) * TIMES_LIVING;
        let rotation = then.saturating_sub(self.below + self.left_in);
        let runs = rotation / run_bytes.max(1);
        u8::try_from(runs.clamp(RUNS_MIN, RUNS_MAX)).expect("it is within its bounds")
    }

    /// Whether so much is dead that merging all is worthwhile: then at least as much goes as is written.
    pub(super) fn is_mostly_dead(self, dead_bytes_min: u64) -> bool {
        let (all, live) = (self.all(), self.live());
        let dead = all.saturating_sub(live);
        dead >= dead_bytes_min.max(all / 2) && live <= QUIET_BYTES_MAX && self.removals > 0
    }
}

/// What a merge left in journals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Left {
    /// The last generation that was in the tables when it began.
    pub(super) flushed: u64,
    /// Bytes of the rows.
    pub(super) bytes: u64,
    /// Bytes of the youngest journals up to the first of which so little lived that copying it is cheaper than what it takes;
    /// `u64::MAX` when there was none such.
    pub(super) young: u64,
}

/// A journal is worth keeping while this part of it lives.
const WORTH_PART: u64 = 4;

impl Left {
    /// After a merge of all that was in the tables up to generation `flushed`, which took over the rows of journals up to
    /// `inlined`.
    pub(super) fn of(listed: &SegmentBytes, live: &LiveBytes, inlined: u64, flushed: u64) -> Self {
        let mut young = 0;
        let mut found = false;
        for (generation, bytes) in listed.range(..=flushed).rev() {
            let lives = live.get(generation).copied().unwrap_or_default();
            found = lives < bytes / WORTH_PART;
            if found {
                break;
            }
            young += bytes;
        }
        let left = live.iter().filter(|(generation, _)| **generation > inlined);
        Self {
            flushed,
            bytes: left.map(|(_, bytes)| bytes).sum(),
            young: if found { young } else { u64::MAX },
        }
    }
}

/// The last of the journals up to generation `flushed` whose rows a merge takes over: the younger ones
/// hold up to `bytes_max`. Many of their rows are dead by the time of the next merge, and are never copied.
pub(super) fn last_inlined(listed: &SegmentBytes, flushed: u64, bytes_max: u64) -> u64 {
    let mut bytes = 0;
    let youngest = listed.range(..=flushed).rev();
    let mut inlined = youngest.enumerate().skip_while(|(number, (_, more))| {
        bytes += **more;
        bytes <= bytes_max && *number < LEFT_MAX
    });
    inlined.next().map_or(0, |(_, (generation, _))| *generation)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rest_is_used_when_half_is_dead() {
        for (due, bytes, rows, removals) in [
            (false, 1 << 20, 0, 0),
            (false, 1 << 20, 100, 49),
            (true, 1 << 20, 100, 50),
            (true, 1 << 20, 100, 100),
            // A removal of what is not there any more.
            (true, 1 << 20, 100, 200),
            (false, 1000, 100, 99),
            (true, 1 << 30, 100, 60),
            (true, 2 << 30, 100, 60),
            (false, 3 << 30, 100, 60),
        ] {
            for (below, new) in [(bytes, 0), (0, bytes)] {
                let sizes = Sizes {
                    below,
                    new,
                    rows,
                    removals,
                    ..Sizes::default()
                };
                assert_eq!(sizes.is_mostly_dead(1000), due, "{sizes:?}");
            }
        }
    }

    #[test]
    fn what_is_dead_in_journals_that_a_merge_left_counts_as_dead() {
        let mut sizes = Sizes {
            below: 1000,
            left: 1000,
            left_in: 2000,
            rows: 100,
            removals: 1,
            ..Sizes::default()
        };
        assert_eq!((sizes.all(), sizes.live()), (3000, 1980));
        assert!(!sizes.is_mostly_dead(0));
        sizes.left_in = 3000;
        assert!(sizes.is_mostly_dead(0));
    }

    #[test]
    fn a_merge_waits_until_all_takes_three_times_what_lives() {
        let mib = 1 << 20;
        for (runs, below, left, left_in) in [
            (16, 0, 0, 0),
            (16, 256, 0, 0),
            (34, 544, 0, 0),
            (64, 1 << 20, 0, 0),
            // 3 * 1,000 - 270 - 1,300 MiB.
            (44, 270, 730, 1300),
            (16, 270, 730, 4000),
        ] {
            let sizes = Sizes {
                below: below * mib,
                left: left * mib,
                left_in: left_in * mib,
                ..Sizes::default()
            };
            assert_eq!(sizes.runs_due(32 * mib), runs, "{sizes:?}");
        }
        assert_eq!(Sizes::default().runs_due(0), 16);
    }

    #[test]
    fn the_youngest_journals_stay() {
        let listed: SegmentBytes = (1..=100).map(|generation| (generation, 10)).collect();
        for (inlined, flushed, bytes_max) in [
            (100, 100, 0),
            (100, 100, 9),
            (99, 100, 10),
            (97, 100, 39),
            (50, 53, 30),
            (0, 53, 530),
            (0, 100, u64::MAX),
        ] {
            assert_eq!(last_inlined(&listed, flushed, bytes_max), inlined);
        }
        assert_eq!(last_inlined(&SegmentBytes::new(), 5, 0), 0);
        let many: SegmentBytes = (1..=300).map(|generation| (generation, 10)).collect();
        assert_eq!(last_inlined(&many, 300, u64::MAX), 300 - LEFT_MAX as u64);
    }

    #[test]
    fn journals_of_which_little_lives_are_not_worth_keeping() {
        let listed: SegmentBytes = (1..=4).map(|generation| (generation, 100)).collect();
        for (young, bytes, live) in [
            (u64::MAX, 150, [25, 50, 75, 75]),
            (200, 150, [25, 24, 75, 75]),
            (0, 99, [100, 100, 75, 24]),
            (u64::MAX, 175, [100, 50, 75, 100]),
        ] {
            let live: LiveBytes = (1..=4).zip(live).collect();
            let left = Left {
                flushed: 4,
                bytes,
                young,
            };
            assert_eq!(Left::of(&listed, &live, 2, 4), left);
        }
        // What was flushed beside the merge is not known.
        let live = LiveBytes::from([(1, 50), (2, 60)]);
        let left = Left::of(&listed, &live, 0, 2);
        assert_eq!((left.bytes, left.young), (110, u64::MAX));
        let none = Left::of(&SegmentBytes::new(), &LiveBytes::new(), 0, 2);
        assert_eq!((none.bytes, none.young), (0, u64::MAX));
    }
}
