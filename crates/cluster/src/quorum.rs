//! How many copies of a vBucket a decision needs.

/// W: copies that must have a durable write before it is acknowledged.
///
/// `copies` counts the active one, and those that are out of reach as well.
pub const fn majority(copies: usize) -> usize {
    copies / 2 + 1
}

/// S: copies that must be sealed before a promotion.
///
/// Any S copies and any [`majority`] of them have one in common, so that a sealed copy knows of every acknowledged write.
pub const fn seals_needed(copies: usize) -> usize {
    copies - majority(copies) + 1
}

/// Seals that a promotion lacks, of [`seals_needed`].
///
/// Of the copies beside the old active one `sealed` are sealed, and `stopped` cannot be read. Those cannot be sealed. When
/// all others are, the seal of the old active copy (`active`) counts in the place of one: what it lost from memory by a
/// restart was lost there as well, so that no level promised it, and it has on disk what is on the disks of a majority.
pub(crate) const fn seals_missing(
    copies: usize,
    sealed: usize,
    stopped: usize,
    active: bool,
) -> usize {
    let counts = active && stopped > 0 && sealed + stopped + 1 == copies;
    seals_needed(copies).saturating_sub(sealed + counts as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_active_copy_counts_beside_copies_that_cannot_be_read_alone() {
        assert_eq!(seals_missing(3, 1, 0, true), 1);
        assert_eq!(seals_missing(3, 1, 1, true), 0);
        assert_eq!(seals_missing(3, 1, 1, false), 1);
        assert_eq!(seals_missing(3, 0, 1, true), 2);
        assert_eq!(seals_missing(3, 0, 2, true), 1);
        assert_eq!(seals_missing(2, 0, 1, true), 0);
        assert_eq!(seals_missing(4, 1, 1, true), 1);
        assert_eq!(seals_missing(1, 0, 0, true), 1);
    }

    #[test]
    fn seals_meet_every_majority() {
        for copies in 1..=crate::map::COPIES_MAX {
            let (majority, seals) = (majority(copies), seals_needed(copies));
            assert!(majority + seals > copies);
            assert!(majority <= copies && seals <= copies);
        }
    }
}
