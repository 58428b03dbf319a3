//! The map of vBuckets.

/// How far the move of a vBucket to another chain is. Each phase may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Phase {
    /// The new copies are filled.
    Build,
    /// The new copies follow with little lag, and persist.
    CatchUp,
    /// Durable writes need a majority of both chains.
    TwoChains,
    /// The old active copy is sealed; the first of the new chain becomes active when it has all that the old one had.
    TakeOver,
}
