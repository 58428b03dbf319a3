//! Quorums: the number of copies that a decision needs.

/// W: the number of copies that must have a durable write before it is acknowledged.
///
/// `copies` counts the active one, and those that are unreachable.
pub const fn majority(copies: usize) -> usize {
    copies / 2 + 1
}

/// S: the number of copies that must be sealed before a promotion.
///
/// Any S copies and any [`majority`] have one in common, so each acknowledged write is in one of the sealed copies.
pub const fn seals_needed(copies: usize) -> usize {
    copies - majority(copies) + 1
}

/// Returns the number of seals that a promotion lacks, of [`seals_needed`].
///
/// Of the copies besides the old active one, `sealed` are sealed, and `stopped` cannot be read and therefore
/// not be sealed. When all others are sealed, the seal of the old active copy (`active`) counts in place of
/// one. A write that it lost from memory in a restart was lost in a majority's memory as well, so no level
/// promised it. On disk it has what the disks of a majority have.
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
    fn old_active_counts_as_a_seal_only_beside_unreadable_copies() {
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
