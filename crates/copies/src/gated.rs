//! The vBuckets of a bucket as the target of one node's streams: only those that follow that node.

use std::sync::Arc;

use consumer::{NotTaken, ReplicaPosition, Resolved, Target};
use model::{Document, FailoverLog, Seqno, VbId, VbState};
use parking_lot::MutexGuard;
use wire::dcp::SnapshotMarker;

use crate::gate::{Following, Gate, PeerId, history_term};

/// A target of the streams of `peer`.
pub struct Gated<T> {
    /// The vBuckets.
    pub target: T,
    /// Gate that knows which of them follow the peer.
    pub gate: Arc<Gate>,
    /// The node at the other end.
    pub peer: PeerId,
}

impl<T: Target> Gated<T> {
    /// Locks a vBucket if it follows the peer; returns its term as well.
    fn turn(&self, vb: VbId) -> Option<(MutexGuard<'_, Following>, u64)> {
        let following = self.gate.lock(vb)?;
        let (from, term) = following.from?;
        (from == self.peer).then_some((following, term))
    }

    /// Locks a vBucket if it has an open stream of the peer.
    fn open(&self, vb: VbId) -> Result<MutexGuard<'_, Following>, NotTaken> {
        let turn = self.turn(vb).map(|(following, _)| following);
        turn.filter(|following| following.open)
            .ok_or(NotTaken::NotReplica)
    }
}

impl<T: Target> Target for Gated<T> {
    fn vbuckets(&self) -> u16 {
        self.target.vbuckets()
    }

    fn position(&self, vb: VbId) -> Option<ReplicaPosition> {
        let (following, _) = self.turn(vb)?;
        self.target.position(vb).filter(|_| !following.stays)
    }

    fn adopt(&self, vb: VbId, log: FailoverLog) -> Result<(), NotTaken> {
        let (mut following, term) = self.turn(vb).ok_or(NotTaken::NotReplica)?;
        if history_term(log.newest().uuid) != term {
            // The peer is not active at this term, or not yet.
            return Err(NotTaken::NotReplica);
        }
        self.target.adopt(vb, log)?;
        following.open = true;
        self.gate.note_change();
        Ok(())
    }

    fn begin(&self, vb: VbId, marker: &SnapshotMarker) -> Result<(), NotTaken> {
        let _open = self.open(vb)?;
        self.target.begin(vb, marker)
    }

    fn apply(&self, vb: VbId, document: Document) -> Result<(), NotTaken> {
        let _open = self.open(vb)?;
        self.target.apply(vb, document)
    }

    fn decide(&self, vb: VbId, decision: &Resolved<'_>) -> Result<(), NotTaken> {
        let _open = self.open(vb)?;
        self.target.decide(vb, decision)
    }

    fn high_prepared(&self, vb: VbId) -> Seqno {
        match self.open(vb) {
            Ok(_open) => self.target.high_prepared(vb),
            Err(_) => Seqno::ZERO,
        }
    }

    /// A copy that gave up acknowledged writes for a while could be elected. If the store cannot roll back
    /// without that, the copy stays as it is, and is renewed like a damaged one.
    fn roll_back(&self, vb: VbId, to: Seqno) -> Result<(), NotTaken> {
        let Some((mut following, _)) = self.turn(vb) else {
            // It follows another node, whose stream has its own rollback.
            return Ok(());
        };
        if self.target.loses(vb, to)? {
            self.gate.stay(&mut following);
            tracing::warn!(
                vb = vb.0,
                to = to.0,
                "a copy cannot go back, and is to come anew"
            );
            return Err(NotTaken::NotReplica);
        }
        self.gate.note_change();
        self.target.roll_back(vb, to)
    }

    fn loses(&self, vb: VbId, to: Seqno) -> Result<bool, NotTaken> {
        self.target.loses(vb, to)
    }

    fn begin_anew(&self, vb: VbId) -> Result<(), NotTaken> {
        if let Some((mut following, _)) = self.turn(vb) {
            self.gate.stay(&mut following);
        }
        Err(NotTaken::NotReplica)
    }

    fn take_over(&self, _vb: VbId, _state: VbState) -> Result<(), NotTaken> {
        Err(NotTaken::Refused(
            "no stream of a cluster hands over".into(),
        ))
    }

    fn has_memory(&self) -> bool {
        self.target.has_memory()
    }
}
