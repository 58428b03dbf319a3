//! Bugs that can be planted into the model. Each must be found.

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// The term of a seal is not on disk: a restart forgets it.
    SealForgotten,
    /// The sealed copy with the lowest position is chosen.
    LowerPreparedChosen,
    /// Sealed copies are compared by seqno, regardless of the branch of the history.
    BranchIgnored,
    /// The choice ignores the old active copy's position, although it was sealed.
    OldActiveLeftOut,
    /// A promotion needs one seal too few.
    OneSealTooFew,
    /// A sealed copy takes and acknowledges changes of the zombie that was active at an older term.
    ZombieStreamAccepted,
    /// A new active copy acknowledges older prepares before a majority reached its failover entry.
    FailoverEntryNotAwaited,
    /// A write that must be on disk is acknowledged from memory.
    AcknowledgedFromMemory,
    /// An active copy that crashed is active again at its term.
    RestartedActiveServes,
    /// A copy that crashed between its seal and its promotion becomes active.
    RestartedCandidateActivates,
    /// A new active copy begins without waiting for the end of the old node's lease.
    LeaseTrustedTooLong,
    /// A new active copy begins without waiting for the end of the replicas' confirmations.
    ConfirmationTrustedTooLong,
    /// A failed node takes a lease without reading the map.
    FailedNodeRenewsLease,
    /// Durable writes during a vBucket's move need only the old chain.
    TwoChainsForgotten,
    /// The takeover begins before the new chain has the older writes.
    CatchUpSkipped,
    /// A controller mistakes a move in its first phase for one in the takeover.
    MoveResumedFromWrongPhase,
    /// The new chain is written before its active copy has all data of the old one.
    TakeoverUndrained,
    /// The remaining data of an old active copy that restarted counts as all of its data.
    RestartedActiveDrained,
    /// A replaced controller writes.
    OldControllerWrites,
    /// A node applies a row with a lower revision.
    MapGoesBack,
    /// A copy that cannot be read answers a seal as an empty one.
    UnreadableSealed,
    /// A copy that cannot be read is emptied, and stays in its chain.
    RenewedInPlace,
    /// The seal of the old active copy counts in place of any seal that is missing.
    OldActiveCounts,
    /// An active copy that crashed counts as one that stopped with all of its data.
    CrashCountsAsStop,
}

/// Every bug.
pub(crate) const BUGS: [Bug; 24] = [
    Bug::SealForgotten,
    Bug::LowerPreparedChosen,
    Bug::BranchIgnored,
    Bug::OldActiveLeftOut,
    Bug::OneSealTooFew,
    Bug::ZombieStreamAccepted,
    Bug::FailoverEntryNotAwaited,
    Bug::AcknowledgedFromMemory,
    Bug::RestartedActiveServes,
    Bug::RestartedCandidateActivates,
    Bug::LeaseTrustedTooLong,
    Bug::ConfirmationTrustedTooLong,
    Bug::FailedNodeRenewsLease,
    Bug::TwoChainsForgotten,
    Bug::CatchUpSkipped,
    Bug::MoveResumedFromWrongPhase,
    Bug::TakeoverUndrained,
    Bug::RestartedActiveDrained,
    Bug::OldControllerWrites,
    Bug::MapGoesBack,
    Bug::UnreadableSealed,
    Bug::RenewedInPlace,
    Bug::OldActiveCounts,
    Bug::CrashCountsAsStop,
];
