//! A consumer's target: the vBuckets of a bucket.

use std::ops::Deref;

use bucket::{Bucket, PrepareEnd};
use engine::{CheckpointKind, OpError, ReplicaError};
use model::{Document, FailoverLog, Seqno, VbId, VbState};
use storage::{KvStore, StoreError};
use wire::dcp::{MarkerFlags, MarkerVersion, SnapshotMarker};

use crate::target::{NotTaken, ReplicaPosition, Resolved, Target};

/// The vBuckets of the bucket to which `B` dereferences. It registers with no node and copies no users.
pub struct FilledBucket<B>(pub B);

impl<S: KvStore, B: Deref<Target = Bucket<S>>> Target for FilledBucket<B> {
    fn vbuckets(&self) -> u16 {
        self.0.vbuckets()
    }

    fn position(&self, vb: VbId) -> Option<ReplicaPosition> {
        let position = self.0.replica_position(vb)?;
        Some(ReplicaPosition {
            high: position.high,
            snapshot: position.snapshot,
            log: position.failover_log,
        })
    }

    fn adopt(&self, vb: VbId, log: FailoverLog) -> Result<(), NotTaken> {
        let adopted = self.0.adopt_history(vb, log);
        if adopted {
            Ok(())
        } else {
            Err(NotTaken::NotReplica)
        }
    }

    fn begin(&self, vb: VbId, marker: &SnapshotMarker) -> Result<(), NotTaken> {
        let begun = self.0.replica_marker(vb, &engine_marker(marker));
        begun.map_err(not_taken)
    }

    fn apply(&self, vb: VbId, document: Document) -> Result<(), NotTaken> {
        let applied = self.0.replica_change(vb, &document);
        applied.map(drop).map_err(not_taken)
    }

    fn decide(&self, vb: VbId, decision: &Resolved<'_>) -> Result<(), NotTaken> {
        let Resolved {
            key,
            prepare,
            at,
            committed,
        } = *decision;
        let end = PrepareEnd {
            key,
            prepare,
            at,
            committed,
        };
        let decided = self.0.replica_decision(vb, &end);
        decided.map(drop).map_err(not_taken)
    }

    fn high_prepared(&self, vb: VbId) -> Seqno {
        let prepared = self.0.with_vbucket(vb, |vbucket| vbucket.acknowledges());
        prepared.unwrap_or_default()
    }

    fn roll_back(&self, vb: VbId, to: Seqno) -> Result<(), NotTaken> {
        let rolled = self.0.roll_back(vb, to);
        let refused = |error: StoreError| NotTaken::Refused(error.to_string());
        rolled.map(drop).map_err(refused)
    }

    fn loses(&self, vb: VbId, to: Seqno) -> Result<bool, NotTaken> {
        let loses = self.0.rollback_loses(vb, to);
        loses.map_err(|error| NotTaken::Refused(error.to_string()))
    }

    fn take_over(&self, vb: VbId, state: VbState) -> Result<(), NotTaken> {
        let taken = self.0.take_over(vb, state);
        taken.map_err(|error| match error {
            OpError::NotMyVbucket => NotTaken::NotReplica,
            other => NotTaken::Refused(other.to_string()),
        })
    }

    fn has_memory(&self) -> bool {
        self.0.takes_replication()
    }
}

fn not_taken(error: ReplicaError) -> NotTaken {
    match error {
        ReplicaError::NotReplica => NotTaken::NotReplica,
        ReplicaError::UnknownPrepare => NotTaken::Incomplete,
        other => NotTaken::Refused(other.to_string()),
    }
}

fn engine_marker(marker: &SnapshotMarker) -> engine::SnapshotMarker {
    let given = |seqno: Seqno| Some(seqno).filter(|seqno| *seqno != Seqno::ZERO);
    let disk = marker.flags.contains(MarkerFlags::DISK);
    let mut marker_out = engine::SnapshotMarker {
        start: marker.range.start,
        end: marker.range.end,
        kind: if disk {
            CheckpointKind::Disk
        } else {
            CheckpointKind::Memory
        },
        checkpoint: marker.flags.contains(MarkerFlags::CHECKPOINT),
        historical: marker.flags.contains(MarkerFlags::HISTORY),
        ..engine::SnapshotMarker::default()
    };
    match marker.version {
        MarkerVersion::V1 => {}
        MarkerVersion::V2_0 {
            visible_end,
            high_completed,
        } => {
            marker_out.visible_end = given(visible_end);
            marker_out.high_completed = given(high_completed);
        }
        MarkerVersion::V2_2 {
            visible_end,
            high_completed,
            purge_seqno,
            high_prepared,
        } => {
            marker_out.visible_end = given(visible_end);
            marker_out.high_completed = given(high_completed);
            marker_out.purge_seqno = given(purge_seqno);
            marker_out.high_prepared = given(high_prepared).filter(|_| disk);
        }
    }
    marker_out
}
