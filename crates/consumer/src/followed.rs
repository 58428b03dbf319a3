//! The vBuckets of a bucket of this node, as what a consumer fills.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bucket::{PrepareEnd, Purpose};
use engine::{CheckpointKind, OpError, ReplicaError};
use model::{Document, FailoverLog, Seqno, VbId, VbState};
use registry::{ActiveNode, NotThere, Registry, ServedBucket};
use wire::dcp::{MarkerFlags, MarkerVersion, SnapshotMarker};

use crate::target::{NotTaken, Position, Resolved, Target};

/// The bucket that follows, and the node that it follows if it does so by itself.
pub struct Followed {
    /// The node.
    pub node: Arc<Registry>,
    /// The bucket.
    pub served: Arc<ServedBucket>,
    /// The node that it follows, if it does so by itself.
    pub active: Option<Active>,
}

/// The node that is followed.
pub struct Active {
    /// Host and port that this connection is to.
    pub at: (String, u16),
    /// Whether that is a port with TLS.
    pub over_tls: bool,
    /// Whether what is here may be given up; until a node was followed.
    pub demote: Arc<AtomicBool>,
}

impl Target for Followed {
    fn vbuckets(&self) -> u16 {
        self.served.bucket.vbuckets()
    }

    /// Where the node follows by itself. In a cluster a copy that forgot what it acknowledged could be elected.
    fn damaged(&self) -> Vec<VbId> {
        match &self.active {
            Some(_) => self.served.bucket.damaged(),
            None => Vec::new(),
        }
    }

    fn renew_if_damaged(&self, vb: VbId) {
        if !self.damaged().contains(&vb) {
            return;
        }
        let renewed = self
            .served
            .bucket
            .renew_replica(vb, self.node.env.random_vb_uuid());
        if let Err(error) = renewed {
            tracing::warn!(vb = vb.0, %error, "a damaged replica could not be emptied");
        }
    }

    fn position(&self, vb: VbId) -> Option<Position> {
        let position = self.served.bucket.replica_position(vb)?;
        Some(Position {
            high: position.high,
            snapshot: position.snapshot,
            log: position.failover_log,
        })
    }

    fn adopt(&self, vb: VbId, log: FailoverLog) -> Result<(), NotTaken> {
        let adopted = self.served.bucket.adopt_history(vb, log);
        if adopted {
            Ok(())
        } else {
            Err(NotTaken::NotReplica)
        }
    }

    fn begin(&self, vb: VbId, marker: &SnapshotMarker) -> Result<(), NotTaken> {
        let bucket = &self.served.bucket;
        let begun = bucket.replica_marker(vb, &engine_marker(marker));
        begun.map_err(not_taken)
    }

    fn apply(&self, vb: VbId, document: Document) -> Result<(), NotTaken> {
        let applied = self.served.bucket.replica_change(vb, &document);
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
        let decided = self.served.bucket.replica_decision(vb, &end);
        decided.map(drop).map_err(not_taken)
    }

    fn high_prepared(&self, vb: VbId) -> Seqno {
        let bucket = &self.served.bucket;
        let prepared = bucket.with_vbucket(vb, |vbucket| vbucket.high_prepared_seqno());
        prepared.unwrap_or_default()
    }

    fn roll_back(&self, vb: VbId, to: Seqno) -> Result<(), String> {
        let rolled = self.served.bucket.roll_back(vb, to);
        rolled.map(drop).map_err(|error| error.to_string())
    }

    fn take_over(&self, vb: VbId, state: VbState) -> Result<(), NotTaken> {
        let taken = self.served.bucket.take_over(vb, state);
        taken.map_err(|error| match error {
            OpError::NotMyVbucket => NotTaken::NotReplica,
            other => NotTaken::Refused(other.to_string()),
        })?;
        // Requests that were parked because the vBucket was pending are worth another try.
        self.node.wake_all();
        Ok(())
    }

    fn has_memory(&self) -> bool {
        let bucket = &self.served.bucket;
        let reservation = bucket.reserve(Purpose::Replication, 0, Duration::ZERO);
        reservation.is_granted()
    }

    fn idle_timeout(&self) -> Option<Duration> {
        self.served.dcp.settings.read().idle_timeout
    }

    fn registered(&self, answer: &[u8]) -> Result<(), NotThere> {
        let Some(active) = &self.active else {
            return Ok(());
        };
        let to = ActiveNode {
            at: active.at.clone(),
            over_tls: active.over_tls,
            demote: active.demote.load(Ordering::Relaxed),
        };
        registry::registered(&self.node, &self.served, &to, answer)?;
        active.demote.store(false, Ordering::Relaxed);
        Ok(())
    }

    fn users_question(&self) -> Option<String> {
        self.active.as_ref()?;
        Some(registry::users_question(&self.node))
    }

    fn take_users(&self, told: &[u8]) -> Result<(), String> {
        registry::take_users(&self.node, told)
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
    let told = |seqno: Seqno| Some(seqno).filter(|seqno| *seqno != Seqno::ZERO);
    let disk = marker.flags.contains(MarkerFlags::DISK);
    let mut told_marker = engine::SnapshotMarker {
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
            told_marker.visible_end = told(visible_end);
            told_marker.high_completed = told(high_completed);
        }
        MarkerVersion::V2_2 {
            visible_end,
            high_completed,
            purge_seqno,
            high_prepared,
        } => {
            told_marker.visible_end = told(visible_end);
            told_marker.high_completed = told(high_completed);
            told_marker.purge_seqno = told(purge_seqno);
            told_marker.high_prepared = told(high_prepared).filter(|_| disk);
        }
    }
    told_marker
}
