//! The vBuckets of a bucket of this node, as what a consumer fills.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bucket::Bucket;
use model::{Document, FailoverLog, Seqno, VbId, VbState};
use registry::{ActiveNode, NotThere, Registry, ServedBucket, Store};
use wire::dcp::SnapshotMarker;

use crate::filled::FilledBucket;
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

impl Followed {
    fn filled(&self) -> FilledBucket<&Bucket<Store>> {
        FilledBucket(&self.served.bucket)
    }
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
        self.filled().position(vb)
    }

    fn adopt(&self, vb: VbId, log: FailoverLog) -> Result<(), NotTaken> {
        self.filled().adopt(vb, log)
    }

    fn begin(&self, vb: VbId, marker: &SnapshotMarker) -> Result<(), NotTaken> {
        self.filled().begin(vb, marker)
    }

    fn apply(&self, vb: VbId, document: Document) -> Result<(), NotTaken> {
        self.filled().apply(vb, document)
    }

    fn decide(&self, vb: VbId, decision: &Resolved<'_>) -> Result<(), NotTaken> {
        self.filled().decide(vb, decision)
    }

    fn high_prepared(&self, vb: VbId) -> Seqno {
        self.filled().high_prepared(vb)
    }

    fn roll_back(&self, vb: VbId, to: Seqno) -> Result<(), NotTaken> {
        self.filled().roll_back(vb, to)
    }

    fn take_over(&self, vb: VbId, state: VbState) -> Result<(), NotTaken> {
        self.filled().take_over(vb, state)?;
        // Requests that were parked because the vBucket was pending are worth another try.
        self.node.wake_all();
        Ok(())
    }

    fn has_memory(&self) -> bool {
        self.filled().has_memory()
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
