//! Bugs that can be planted at the seams of the code under test. Each must be found.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A restart forgets the term of a seal.
    SealForgotten,
    /// Answers to seals tell less the more a copy has.
    LowerPreparedChosen,
    /// Answers to seals tell nothing of the branch.
    BranchIgnored,
    /// A promotion counts a seal that nothing answered.
    OneSealTooFew,
    /// A replica takes, and acknowledges, changes of an older term.
    ZombieStreamAccepted,
    /// A write that must be on disk is acknowledged from memory.
    AcknowledgedFromMemory,
    /// An active copy that crashed is active again at its term.
    RestartedActiveServes,
    /// A node trusts its lease longer than etcd does.
    LeaseTrustedTooLong,
    /// A node trusts confirmations longer than the controller waits.
    ConfirmationTrustedTooLong,
    /// Durable writes while a vBucket moves need the old chain only.
    TwoChainsForgotten,
    /// Moves are ready for the next phase at once.
    CatchUpSkipped,
    /// A takeover seals the new active copy before it has everything, and takes its word for it.
    TakeoverUndrained,
    /// Transactions compare nothing.
    NothingCompared,
    /// A promotion does not require that the old node is still marked as failed.
    PromotionWithoutMark,
    /// A node takes its lease whatever happened since it read the map.
    LeaseWithoutReading,
    /// A node that an operator failed over is marked as one that may come back by itself.
    FailoverForgotten,
    /// An unsafe failover does not raise the epoch.
    EpochNotRaised,
    /// A node that starts again does not know the mark that it had kept.
    MarkForgotten,
    /// An adoption takes any copy for the best one.
    AnyCopyAdopted,
    /// An adoption does not require that it has the controller's key.
    AdoptionKeyNotRequired,
    /// A node's clock stands still while its machine sleeps.
    ClockSleeps,
    /// A copy that cannot be read answers a seal as one that has nothing.
    UnreadableSealed,
    /// Of a snapshot that came in part, a copy counts what came.
    PartialSnapshotCounted,
    /// A replica acknowledges prepares before their snapshot is whole, or on disk.
    PreparesAcknowledgedEarly,
    /// A replica acknowledges prepares to an active copy whose history it has not reached.
    FailoverEntryNotAwaited,
    /// A replica keeps its failover log when a stream is granted.
    HistoryNotAdopted,
    /// A copy goes back below what it acknowledged.
    RolledBackTooFar,
}

/// Every bug, and the first seed that found it last.
pub(crate) const BUGS: [(Bug, u64); 27] = [
    (Bug::TwoChainsForgotten, 2_538),
    (Bug::CatchUpSkipped, 417),
    (Bug::PreparesAcknowledgedEarly, 506),
    (Bug::HistoryNotAdopted, 0),
    (Bug::FailoverEntryNotAwaited, 470),
    (Bug::RolledBackTooFar, 239),
    (Bug::PartialSnapshotCounted, 507),
    (Bug::UnreadableSealed, 1_735),
    (Bug::PromotionWithoutMark, 279),
    (Bug::LeaseWithoutReading, 158),
    (Bug::FailoverForgotten, 3),
    (Bug::EpochNotRaised, 61),
    (Bug::MarkForgotten, 400),
    (Bug::AnyCopyAdopted, 201),
    (Bug::AdoptionKeyNotRequired, 265),
    (Bug::ClockSleeps, 994),
    (Bug::LowerPreparedChosen, 2),
    (Bug::BranchIgnored, 140),
    (Bug::OneSealTooFew, 182),
    (Bug::AcknowledgedFromMemory, 7),
    (Bug::RestartedActiveServes, 8),
    (Bug::LeaseTrustedTooLong, 5),
    (Bug::ConfirmationTrustedTooLong, 5),
    (Bug::TakeoverUndrained, 417),
    (Bug::NothingCompared, 8),
    (Bug::SealForgotten, 2_943),
    (Bug::ZombieStreamAccepted, 3_054),
];
