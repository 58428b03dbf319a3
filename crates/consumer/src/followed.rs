//! A consumer's target: the vBuckets of a bucket of this node.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bucket::Bucket;
use model::{Document, FailoverLog, Seqno, VbId, VbState};
use registry::{ActiveNode, NotThere, Registry, ServedBucket, Store};
use wire::dcp::SnapshotMarker;

use crate::filled::FilledBucket;
use crate::target::{NotTaken, ReplicaPosition, Resolved, Target};

/// A bucket that follows another node.
pub struct Followed {
    /// The node.
    pub node: Arc<Registry>,
    /// The bucket.
    pub served: Arc<ServedBucket>,
    /// The active node, if this bucket follows it without a cluster or a manager.
    pub active: Option<Active>,
    /// Runs work that may wait for the store.
    pub may_block: fn(&mut dyn FnMut()),
}

/// The node that a bucket follows.
pub struct Active {
    /// Host and port of the active node, to which the connection goes.
    pub at: (String, u16),
    /// Whether the port uses TLS.
    pub over_tls: bool,
    /// Whether local data may be discarded. Cleared as soon as the active node has accepted the registration.
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

    /// Returns damaged vBuckets only where this node follows an active node by itself. In a cluster, a renewed
    /// copy forgets prepares that it acknowledged, and could still be elected.
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

    fn position(&self, vb: VbId) -> Option<ReplicaPosition> {
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
        let mut rolled = Ok(());
        (self.may_block)(&mut || rolled = self.filled().roll_back(vb, to));
        rolled
    }

    fn loses(&self, vb: VbId, to: Seqno) -> Result<bool, NotTaken> {
        self.filled().loses(vb, to)
    }

    fn take_over(&self, vb: VbId, state: VbState) -> Result<(), NotTaken> {
        self.filled().take_over(vb, state)?;
        // Requests were parked while the vBucket was pending; they can run now.
        self.node.wake_all();
        Ok(())
    }

    fn has_memory(&self) -> bool {
        self.filled().has_memory()
    }

    fn idle_timeout(&self) -> Option<Duration> {
        self.served.dcp.settings.read().idle_timeout
    }

    fn registered(&self, answer: &[u8]) -> Result<Result<(), String>, NotThere> {
        let Some(active) = &self.active else {
            return Ok(Ok(()));
        };
        let to = ActiveNode {
            at: active.at.clone(),
            over_tls: active.over_tls,
            demote: active.demote.load(Ordering::Relaxed),
        };
        let settings = registry::registered(&self.node, &self.served, &to, answer)?;
        active.demote.store(false, Ordering::Relaxed);
        Ok(settings)
    }

    fn users_question(&self) -> Option<String> {
        self.active.as_ref()?;
        Some(registry::users_question(&self.node))
    }

    fn take_users(&self, roster: &[u8]) -> Result<(), String> {
        registry::take_users(&self.node, roster)
    }
}
