//! The states of a vBucket to which it can be rolled back exactly.

use model::Seqno;

/// Seqnos at which commits ended whole snapshots and of whose state nothing is lost since.
///
/// Shape: ascending, at most [`RestorePoints::POINTS_MAX`]; the oldest are forgotten.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RestorePoints {
    seqnos: Vec<Seqno>,
}

impl RestorePoints {
    /// Points kept.
    pub(crate) const POINTS_MAX: usize = 16;

    /// Points read back; `None` when there are too many or they do not ascend.
    pub(crate) fn from_seqnos(seqnos: Vec<Seqno>) -> Option<Self> {
        let valid = seqnos.len() <= Self::POINTS_MAX && seqnos.is_sorted_by(|a, b| a < b);
        valid.then_some(Self { seqnos })
    }

    /// The points, ascending.
    pub(crate) fn seqnos(&self) -> &[Seqno] {
        &self.seqnos
    }

    /// The row at `seqno` is gone: no state that contained it can be restored.
    pub(crate) fn row_gone(&mut self, seqno: Seqno) {
        if seqno != Seqno::ZERO {
            let keep = self.seqnos.partition_point(|point| *point < seqno);
            self.seqnos.truncate(keep);
        }
    }

    /// Forgets everything, because something was dropped that points may contain.
    pub(crate) fn clear(&mut self) {
        self.seqnos.clear();
    }

    /// A commit ended at `seqno`, the end of its snapshot.
    pub(crate) fn add(&mut self, seqno: Seqno) {
        if self.seqnos.last().is_none_or(|last| *last < seqno) {
            if self.seqnos.len() == Self::POINTS_MAX {
                self.seqnos.remove(0);
            }
            self.seqnos.push(seqno);
        }
    }

    /// Goes back to the latest point at or below `to`, or to zero, and tells which.
    pub(crate) fn go_back(&mut self, to: Seqno) -> Seqno {
        let keep = self.seqnos.partition_point(|point| *point <= to);
        self.seqnos.truncate(keep);
        self.seqnos.last().copied().unwrap_or(Seqno::ZERO)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(seqnos: &[u64]) -> RestorePoints {
        RestorePoints {
            seqnos: seqnos.iter().copied().map(Seqno).collect(),
        }
    }

    #[test]
    fn an_overwritten_row_ends_the_states_that_held_it() {
        let mut kept = points(&[5, 9, 12]);
        kept.row_gone(Seqno(9));
        assert_eq!(kept, points(&[5]));
        kept.row_gone(Seqno::ZERO);
        assert_eq!(kept, points(&[5]), "zero names no row");
    }

    #[test]
    fn going_back_takes_the_latest_point_below() {
        let mut kept = points(&[5, 9, 12]);
        assert_eq!(kept.go_back(Seqno(11)), Seqno(9));
        assert_eq!(kept, points(&[5, 9]));
        assert_eq!(kept.go_back(Seqno(4)), Seqno::ZERO);
        assert_eq!(kept, points(&[]));
    }

    #[test]
    fn the_oldest_points_are_forgotten() {
        let mut kept = RestorePoints::default();
        for seqno in 1..=20 {
            kept.add(Seqno(seqno));
        }
        kept.add(Seqno(20));
        assert_eq!(kept.seqnos().len(), RestorePoints::POINTS_MAX);
        assert_eq!(kept.seqnos()[0], Seqno(5));
    }
}
