//! The states of a vBucket to which it can be rolled back exactly.

use model::Seqno;

/// Restore points: seqnos at which commits ended whole snapshots, and whose state is still complete.
///
/// Ascending, at most [`RestorePoints::POINTS_MAX`]; the oldest are dropped. Zero is not listed,
/// because a rollback to it is always possible; so an empty vBucket takes little memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestorePoints(Vec<Seqno>);

impl RestorePoints {
    /// Maximum number of points.
    pub(crate) const POINTS_MAX: usize = 16;

    /// Returns points read from a file; `None` if there are too many or they do not ascend.
    pub(crate) fn from_seqnos(seqnos: &[Seqno]) -> Option<Self> {
        let fit = seqnos.len() <= Self::POINTS_MAX;
        let ascend = seqnos.is_sorted_by(|a, b| a < b);
        (fit && ascend).then(|| Self(seqnos.to_vec()))
    }

    /// Returns the points, ascending.
    pub(crate) fn seqnos(&self) -> &[Seqno] {
        &self.0
    }

    /// Removes all states that contain the row at `seqno`, because that row is gone.
    pub(crate) fn row_gone(&mut self, seqno: Seqno) {
        if seqno != Seqno::ZERO {
            self.keep(|point| point < seqno);
        }
    }

    /// Removes all points, after rows were dropped that they may contain.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds the seqno of a commit, which ended its snapshot.
    pub(crate) fn add(&mut self, seqno: Seqno) {
        if self.0.last().is_some_and(|last| *last >= seqno) || seqno == Seqno::ZERO {
            return;
        }
        if self.0.len() == Self::POINTS_MAX {
            self.0.remove(0);
        }
        if self.0.is_empty() {
            // Most vBuckets of an empty bucket have one point.
            self.0.reserve_exact(1);
        }
        self.0.push(seqno);
    }

    /// Goes back to the latest point at or below `to`, or to zero. Returns its seqno.
    pub(crate) fn go_back(&mut self, to: Seqno) -> Seqno {
        self.keep(|point| point <= to);
        self.seqnos().last().copied().unwrap_or(Seqno::ZERO)
    }

    /// Keeps the points for which `holds` is true; these must be the first ones.
    fn keep(&mut self, holds: impl Fn(Seqno) -> bool) {
        let kept = self.0.partition_point(|point| holds(*point));
        self.0.truncate(kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(seqnos: &[u64]) -> RestorePoints {
        let seqnos: Vec<Seqno> = seqnos.iter().copied().map(Seqno).collect();
        RestorePoints::from_seqnos(&seqnos).expect("ascending")
    }

    #[test]
    fn overwritten_row_removes_the_points_that_contain_it() {
        let mut kept = points(&[5, 9, 12]);
        kept.row_gone(Seqno(9));
        assert_eq!(kept, points(&[5]));
        kept.row_gone(Seqno::ZERO);
        assert_eq!(kept, points(&[5]), "zero names no row");
    }

    #[test]
    fn rollback_takes_the_latest_point_below() {
        let mut kept = points(&[5, 9, 12]);
        assert_eq!(kept.go_back(Seqno(11)), Seqno(9));
        assert_eq!(kept, points(&[5, 9]));
        assert_eq!(kept.go_back(Seqno(4)), Seqno::ZERO);
        assert_eq!(kept, points(&[]));
    }

    #[test]
    fn oldest_points_are_dropped() {
        let mut kept = RestorePoints::default();
        for seqno in 1..=20 {
            kept.add(Seqno(seqno));
        }
        kept.add(Seqno(20));
        assert_eq!(kept.seqnos().len(), RestorePoints::POINTS_MAX);
        assert_eq!(kept.seqnos()[0], Seqno(5));
    }
}
