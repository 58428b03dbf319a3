//! What a consumer does to the vBuckets of its bucket.

use std::time::Duration;

use model::{Document, FailoverLog, Seqno, SnapshotRange, VbId, VbState, VbUuid};
use registry::NotThere;
use wire::dcp::SnapshotMarker;

/// Where a replica vBucket stands: what a stream is asked for with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// The last change.
    pub high: Seqno,
    /// The snapshot that it lies in; both ends `high` when that is complete.
    pub snapshot: SnapshotRange,
    /// The histories.
    pub log: FailoverLog,
}

impl Position {
    /// The snapshot as a stream request tells it: one of which nothing was received ends where
    /// it starts, and so does one that is complete.
    pub fn asked_snapshot(&self) -> SnapshotRange {
        let SnapshotRange { start, end } = self.snapshot;
        if end <= self.high || start >= self.high {
            let (start, end) = (self.high, self.high);
            return SnapshotRange { start, end };
        }
        self.snapshot
    }

    /// The history to ask with: none from the very start.
    pub fn asked_uuid(&self) -> VbUuid {
        if self.high == Seqno::ZERO {
            VbUuid(0)
        } else {
            self.log.newest().uuid
        }
    }
}

/// Why a change was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The vBucket is gone or no replica any more: its stream is closed, others go on.
    NotReplica,
    /// Something is missing that it builds on: the vBucket begins anew, others go on.
    Incomplete,
    /// It cannot be: the connection is closed.
    Refused(String),
}

/// How a prepare ended on the active node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolved<'a> {
    /// The document.
    pub key: &'a [u8],
    /// Seqno of the prepare.
    pub prepare: Seqno,
    /// Seqno of this.
    pub at: Seqno,
    /// Committed, or given up.
    pub committed: bool,
}

/// The vBuckets that a consumer fills: those of a bucket, as [`FilledBucket`](crate::FilledBucket) has them, or with
/// rules of their own around that.
pub trait Target {
    /// How many vBuckets there may be.
    fn vbuckets(&self) -> u16;

    /// vBuckets that are to come anew, since something of them is damaged.
    fn damaged(&self) -> Vec<VbId> {
        Vec::new()
    }

    /// Called before a stream is asked for: a vBucket that [is damaged](Target::damaged) is emptied.
    fn renew_if_damaged(&self, _vb: VbId) {}

    /// Where a vBucket stands; `None` unless it is a replica.
    fn position(&self, vb: VbId) -> Option<Position>;

    /// A stream was granted: the producer's histories are the vBucket's own from now on.
    fn adopt(&self, vb: VbId, log: FailoverLog) -> Result<(), NotTaken>;

    /// A snapshot begins.
    fn begin(&self, vb: VbId, marker: &SnapshotMarker) -> Result<(), NotTaken>;

    /// A change of the snapshot.
    fn apply(&self, vb: VbId, document: Document) -> Result<(), NotTaken>;

    /// A prepare of the snapshot is decided.
    fn decide(&self, vb: VbId, decision: &Resolved<'_>) -> Result<(), NotTaken>;

    /// How far the vBucket has prepares as safely as each asks for.
    fn high_prepared(&self, vb: VbId) -> Seqno;

    /// Takes a vBucket back to a state at or before `to`. May take long.
    fn roll_back(&self, vb: VbId, to: Seqno) -> Result<(), NotTaken>;

    /// Whether going back to `to` would also take back what a vBucket acknowledged before `to`, or all that it has.
    fn loses(&self, _vb: VbId, _to: Seqno) -> Result<bool, NotTaken> {
        Ok(false)
    }

    /// Empties a vBucket of which something is missing. May take long.
    fn begin_anew(&self, vb: VbId) -> Result<(), NotTaken> {
        self.roll_back(vb, Seqno::ZERO)
    }

    /// The producer hands the vBucket over: pending first, then active. Its history goes on.
    fn take_over(&self, vb: VbId, state: VbState) -> Result<(), NotTaken>;

    /// Whether there is memory for more; if not, something is done about it.
    fn has_memory(&self) -> bool;

    /// How long the producer may be silent, where that was changed.
    fn idle_timeout(&self) -> Option<Duration> {
        None
    }

    /// The active node answered to the registration.
    fn registered(&self, _answer: &[u8]) -> Result<(), NotThere> {
        Ok(())
    }

    /// What the active node is to be asked about its users with; `None` where they are not followed.
    fn users_question(&self) -> Option<String> {
        None
    }

    /// The active node told its users. Blocks for the disk if they are news.
    fn take_users(&self, _told: &[u8]) -> Result<(), String> {
        Ok(())
    }
}
