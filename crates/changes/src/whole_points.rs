//! Seqnos to which a consumer can roll back.

use model::Seqno;

use crate::vb_position::VbPosition;

/// Maximum number of points of a vBucket.
const POINTS_MAX: usize = 8;
/// Bits of the fraction in the comparison of gaps.
const GAP_BITS: u32 = 8;

/// Seqnos at which the received changes were a consistent state, in ascending order. Points that lie further back are
/// further apart.
///
/// A snapshot leaves out versions that it replaces. Within it, the changes up to a seqno are therefore less than
/// the state at that seqno.
#[derive(Clone, Debug, Default)]
pub(crate) struct WholePoints(Vec<Seqno>);

impl WholePoints {
    /// Returns the only point that a position has: the end of its snapshot, or the start of an incomplete one.
    pub(crate) fn of(place: &VbPosition) -> Self {
        let mut points = Self::default();
        points.add(if place.is_whole() {
            place.seqno
        } else {
            place.snapshot.start
        });
        points
    }

    /// Adds a point after all others. Removes one in exchange if there are too many: the one that leaves the smallest
    /// gap, in proportion to its distance from the new point.
    pub(crate) fn add(&mut self, seqno: Seqno) {
        if self.0.len() == POINTS_MAX {
            let gaps = self.0.windows(3).map(|points| {
                let gap = points[2].0 - points[0].0;
                (gap << GAP_BITS) / (seqno.0 - points[1].0)
            });
            let smallest = (1..).zip(gaps).min_by_key(|(_, gap)| *gap);
            if let Some((index, _)) = smallest {
                self.0.remove(index);
            }
        }
        self.0.push(seqno);
    }

    /// Removes the points after `seqno`; returns the last one that is left, or zero.
    pub(crate) fn back_to(&mut self, seqno: Seqno) -> Seqno {
        self.0.retain(|point| *point <= seqno);
        self.0.last().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_few_and_reach_far_back() {
        let mut points = WholePoints::of(&VbPosition::default());
        for seqno in 1..=1_000 {
            points.add(Seqno(seqno));
            assert!(points.0.len() <= POINTS_MAX && points.0.is_sorted());
        }
        let lost = |to| 1_000 - points.clone().back_to(Seqno(to)).0;
        assert_eq!((lost(1_000), lost(999), lost(998)), (0, 1, 2));
        for age in [4, 16, 64] {
            assert!(lost(1_000 - age) < 8 * age, "{age}: {points:?}");
        }
        assert_eq!(points.back_to(Seqno(0)), Seqno(0));
    }
}
