//! Progress of the controller's work.

use super::policy::FailoverBlock;
use crate::map::{NodeId, Vb};

/// A vBucket without an active copy that waits for more copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LackingVBucket {
    /// The vBucket.
    pub vb: Vb,
    /// Number of copies that an election lacks.
    pub missing: usize,
}

/// A copy that was promoted with too few copies, by an operator's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promoted {
    /// The vBucket.
    pub vb: Vb,
    /// Node of the copy.
    pub node: NodeId,
    /// Term since which it is active.
    pub term: u64,
    /// Its seqno at the promotion: later writes of other copies are lost.
    pub seqno: u64,
}

/// Progress, for operators.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Elections in progress.
    pub elections: usize,
    /// Moves in progress.
    pub moves: usize,
    /// Moves that the plan wants and that have not begun.
    pub moves_left: usize,
    /// Moves among these that wait for space on a node's disk.
    pub moves_without_space: usize,
    /// Moves in progress that wait for memory on a node.
    pub moves_without_memory: usize,
    /// vBuckets that wait for copies.
    pub waiting: Vec<LackingVBucket>,
    /// Nodes that are gone but not failed over, with the reason.
    pub held: Vec<(NodeId, FailoverBlock)>,
    /// vBuckets that this controller promoted by an unsafe failover, with the newest promotion of each.
    pub promoted: Vec<Promoted>,
}

impl Progress {
    /// Whether time alone may decide about an election, a move, or a node that is gone.
    pub(super) fn is_open(&self) -> bool {
        let waits = !self.waiting.is_empty() || !self.held.is_empty();
        waits || self.elections + self.moves + self.moves_left > 0
    }
}
