//! Bugs that can be planted at the seams of the code under test. The tests must find each of them.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A restart forgets the term of a seal.
    SealForgotten,
    /// Answers to seals report a lower position the more a copy has.
    LowerPreparedChosen,
    /// Answers to seals do not contain the branch.
    BranchIgnored,
    /// A promotion counts a seal without an answer.
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
    /// Durable writes during a vBucket's move need only the old chain.
    TwoChainsForgotten,
    /// Moves are ready for the next phase at once.
    CatchUpSkipped,
    /// A takeover seals the new active copy before it has everything, and relies on its answer.
    TakeoverUndrained,
    /// Transactions have no conditions.
    NothingCompared,
    /// A promotion does not require that the old node is still marked as failed.
    PromotionWithoutMark,
    /// A node takes its lease whatever happened since its read of the map.
    LeaseWithoutReading,
    /// The mark of a node that an operator failed over allows the node to come back by itself.
    FailoverForgotten,
    /// An unsafe failover does not raise the epoch.
    EpochNotRaised,
    /// A node that starts again does not know the mark that it had stored.
    MarkForgotten,
    /// An adoption takes any copy as the best one.
    AnyCopyAdopted,
    /// An adoption does not require that it has the controller's key.
    AdoptionKeyNotRequired,
    /// A node's clock stops while its machine sleeps.
    ClockSleeps,
    /// A copy that cannot be read answers a seal as an empty one.
    UnreadableSealed,
    /// A copy counts the received part of an incomplete snapshot.
    PartialSnapshotCounted,
    /// A replica acknowledges prepares before their snapshot is complete or on disk.
    PreparesAcknowledgedEarly,
    /// A replica keeps its failover log when a stream is granted.
    HistoryNotAdopted,
    /// A copy rolls back below the writes that it acknowledged.
    RolledBackTooFar,
    /// The start after a clean stop does not remove the record of it, so that it counts after a crash as well.
    StopNotRemoved,
    /// Collections that a restored etcd lacks are not written there again.
    ManifestLost,
    /// A client of change streams may go on from changes that were lost.
    RollbackNotTold,
    /// A client of change streams may go on although tombstones that it lacks were purged.
    PurgeIgnored,
    /// A commit with a part of the changes has the record of all of them.
    PartRecordedAsAll,
    /// Streams do not have the times at which documents expire.
    ExpiryNotSent,
    /// Changes that a node gets have a new CAS.
    CasNotSent,
    /// A client of change streams with a filter is not told of changes that it left out.
    AdvanceNotSent,
    /// A client of change streams is told that the store's rows end a snapshot where they end inside one.
    PartSentAsWhole,
}

/// Every bug, with the first seed that found it in the last search.
pub(crate) const BUGS: [(Bug, u64); 35] = [
    (Bug::SealForgotten, 2_733),
    (Bug::TwoChainsForgotten, 1_937),
    (Bug::CatchUpSkipped, 1_515),
    (Bug::PreparesAcknowledgedEarly, 1_560),
    (Bug::HistoryNotAdopted, 0),
    (Bug::RolledBackTooFar, 1_174),
    (Bug::PartialSnapshotCounted, 3_229),
    (Bug::UnreadableSealed, 4_573),
    (Bug::PromotionWithoutMark, 1_849),
    (Bug::LeaseWithoutReading, 2_662),
    (Bug::FailoverForgotten, 3),
    (Bug::EpochNotRaised, 291),
    (Bug::MarkForgotten, 665),
    (Bug::AnyCopyAdopted, 809),
    (Bug::AdoptionKeyNotRequired, 2_537),
    (Bug::ClockSleeps, 1_595),
    (Bug::LowerPreparedChosen, 2),
    (Bug::BranchIgnored, 502),
    (Bug::OneSealTooFew, 638),
    (Bug::AcknowledgedFromMemory, 37),
    (Bug::RestartedActiveServes, 15),
    (Bug::LeaseTrustedTooLong, 5),
    (Bug::ConfirmationTrustedTooLong, 15),
    (Bug::TakeoverUndrained, 1_197),
    (Bug::NothingCompared, 13),
    (Bug::ZombieStreamAccepted, 2_610),
    (Bug::StopNotRemoved, 2_595),
    (Bug::RollbackNotTold, 17),
    (Bug::PurgeIgnored, 17),
    (Bug::PartRecordedAsAll, 80),
    (Bug::ExpiryNotSent, 80),
    (Bug::CasNotSent, 32),
    (Bug::AdvanceNotSent, 54),
    (Bug::ManifestLost, 281),
    (Bug::PartSentAsWhole, 883),
];
