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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seals_meet_every_majority() {
        for copies in 1..=crate::map::COPIES_MAX {
            let (majority, seals) = (majority(copies), seals_needed(copies));
            assert!(majority + seals > copies);
            assert!(majority <= copies && seals <= copies);
        }
    }
}
