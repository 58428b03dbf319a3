//! Target of a consumer, with planted bugs.

use std::sync::Arc;

use bucket::Bucket;
use consumer::{FilledBucket, NotTaken, ReplicaPosition, Resolved, Target};
use model::{Document, FailoverLog, Seqno, VbId, VbState};
use wire::dcp::SnapshotMarker;

use crate::bugs::Bug;
use crate::disk::Disk;

pub(crate) struct Planted {
    pub(crate) filled: FilledBucket<Arc<Bucket<Disk>>>,
    pub(crate) bug: Option<Bug>,
}

impl Target for Planted {
    fn vbuckets(&self) -> u16 {
        self.filled.vbuckets()
    }

    fn position(&self, vb: VbId) -> Option<ReplicaPosition> {
        self.filled.position(vb)
    }

    fn adopt(&self, vb: VbId, log: FailoverLog) -> Result<(), NotTaken> {
        if self.bug == Some(Bug::HistoryNotAdopted) {
            return Ok(());
        }
        self.filled.adopt(vb, log)
    }

    fn begin(&self, vb: VbId, marker: &SnapshotMarker) -> Result<(), NotTaken> {
        self.filled.begin(vb, marker)
    }

    fn apply(&self, vb: VbId, document: Document) -> Result<(), NotTaken> {
        self.filled.apply(vb, document)
    }

    fn decide(&self, vb: VbId, decision: &Resolved<'_>) -> Result<(), NotTaken> {
        self.filled.decide(vb, decision)
    }

    fn high_prepared(&self, vb: VbId) -> Seqno {
        if self.bug == Some(Bug::PreparesAcknowledgedEarly) {
            let high = self
                .filled
                .0
                .with_vbucket(vb, |vbucket| vbucket.high_seqno());
            return high.unwrap_or_default();
        }
        self.filled.high_prepared(vb)
    }

    fn roll_back(&self, vb: VbId, to: Seqno) -> Result<(), NotTaken> {
        self.filled.roll_back(vb, to)
    }

    fn loses(&self, vb: VbId, to: Seqno) -> Result<bool, NotTaken> {
        let loses = self.filled.loses(vb, to)?;
        Ok(loses && self.bug != Some(Bug::RolledBackTooFar))
    }

    fn take_over(&self, vb: VbId, state: VbState) -> Result<(), NotTaken> {
        self.filled.take_over(vb, state)
    }

    fn has_memory(&self) -> bool {
        self.filled.has_memory()
    }
}
