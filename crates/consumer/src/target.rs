//! The port of a consumer to the vBuckets that it fills.

use std::time::Duration;

use model::{Document, FailoverLog, Seqno, SnapshotRange, VbId, VbState, VbUuid};
use registry::NotThere;
use wire::dcp::SnapshotMarker;

/// Position of a replica vBucket, from which a stream is requested.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaPosition {
    /// Seqno of the last change.
    pub high: Seqno,
    /// The snapshot of the last change; if it is complete, start and end equal `high`.
    pub snapshot: SnapshotRange,
    /// The failover log.
    pub log: FailoverLog,
}

impl ReplicaPosition {
    /// Returns the snapshot for a stream request. Start and end are `high` if the snapshot is complete, or if
    /// nothing of it was received.
    pub fn asked_snapshot(&self) -> SnapshotRange {
        let SnapshotRange { start, end } = self.snapshot;
        if end <= self.high || start >= self.high {
            let (start, end) = (self.high, self.high);
            return SnapshotRange { start, end };
        }
        self.snapshot
    }

    /// Returns the vBucket UUID for a stream request; 0 if the vBucket is empty.
    pub fn asked_uuid(&self) -> VbUuid {
        if self.high == Seqno::ZERO {
            VbUuid(0)
        } else {
            self.log.newest().uuid
        }
    }
}

/// Reason why a change was not applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The vBucket was removed or is not a replica. Its stream is closed; other streams go on.
    NotReplica,
    /// A change that this one needs is missing. The vBucket starts from zero; other streams go on.
    Incomplete,
    /// The change cannot be applied. The connection is closed.
    Refused(String),
}

/// The decision about a prepare on the active node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved<'a> {
    /// Key of the document.
    pub key: &'a [u8],
    /// Seqno of the prepare.
    pub prepare: Seqno,
    /// Seqno of the decision.
    pub at: Seqno,
    /// Whether the prepare was committed, not aborted.
    pub committed: bool,
}

/// The vBuckets that a consumer fills: those of a bucket, as in [`FilledBucket`](crate::FilledBucket), or a
/// wrapper with rules of its own.
pub trait Target {
    /// Number of vBuckets.
    fn vbuckets(&self) -> u16;

    /// Damaged vBuckets that must be streamed again from zero.
    fn damaged(&self) -> Vec<VbId> {
        Vec::new()
    }

    /// Empties the vBucket if it [is damaged](Target::damaged). Called before a stream is requested.
    fn renew_if_damaged(&self, _vb: VbId) {}

    /// Returns the position of a vBucket; `None` unless it is a replica.
    fn position(&self, vb: VbId) -> Option<ReplicaPosition>;

    /// Replaces the failover log of the vBucket by the producer's, after a stream was granted.
    fn adopt(&self, vb: VbId, log: FailoverLog) -> Result<(), NotTaken>;

    /// Begins a snapshot.
    fn begin(&self, vb: VbId, marker: &SnapshotMarker) -> Result<(), NotTaken>;

    /// Applies a change of the snapshot.
    fn apply(&self, vb: VbId, document: Document) -> Result<(), NotTaken>;

    /// Applies the decision about a prepare.
    fn decide(&self, vb: VbId, decision: &Resolved<'_>) -> Result<(), NotTaken>;

    /// Returns the seqno up to which all prepares are as safe here as their durability levels demand.
    fn high_prepared(&self, vb: VbId) -> Seqno;

    /// Rolls a vBucket back to a state at or before `to`. May take long.
    fn roll_back(&self, vb: VbId, to: Seqno) -> Result<(), NotTaken>;

    /// Whether a rollback to `to` would also discard changes before `to` that the vBucket acknowledged, or all
    /// its data.
    fn loses(&self, vb: VbId, to: Seqno) -> Result<bool, NotTaken>;

    /// Empties a vBucket that misses a change. May take long.
    fn begin_anew(&self, vb: VbId) -> Result<(), NotTaken> {
        self.roll_back(vb, Seqno::ZERO)
    }

    /// Takes the vBucket over from the producer: first as pending, then as active. Its history goes on.
    fn take_over(&self, vb: VbId, state: VbState) -> Result<(), NotTaken>;

    /// Whether there is memory for more changes; if not, it starts to free some.
    fn has_memory(&self) -> bool;

    /// Longest silence of the producer, if it differs from the default.
    fn idle_timeout(&self) -> Option<Duration> {
        None
    }

    /// Processes the active node's answer to the registration. Returns whether its settings are obeyed, or the reason why
    /// not. Blocks for the disk if they changed.
    fn registered(&self, _answer: &[u8]) -> Result<Result<(), String>, NotThere> {
        Ok(Ok(()))
    }

    /// Returns the request for the users of the active node; `None` if users are not copied.
    fn users_question(&self) -> Option<String> {
        None
    }

    /// Stores the users of the active node. Blocks for the disk if they changed.
    fn take_users(&self, _told: &[u8]) -> Result<(), String> {
        Ok(())
    }
}
