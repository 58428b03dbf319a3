//! What the controller and nodes say to each other. Every message may be lost, come twice, or come late.

use serde::{Deserialize, Serialize};

use crate::agreed::Seen;
use crate::map::{NodeId, Phase, Vb};
use crate::promotion::Position;

/// A message to another node, or to the node itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Message {
    /// The sender runs.
    Ping,
    /// etcd does not have this any more, which the sender had seen.
    EtcdWentBack(Seen),
    /// All copies of the node are to be sealed at `term`, for an adoption that raises the epoch to `epoch`.
    SealAll {
        /// The epoch that the operator was told: a node that follows a newer one has nothing to do with it.
        told: u64,
        /// The epoch.
        epoch: u64,
        /// The term.
        term: u64,
    },
    /// All copies of the node are sealed so. The answer comes in parts.
    AllSealed {
        /// The epoch.
        epoch: u64,
        /// The term.
        term: u64,
        /// How many copies there are.
        count: usize,
        /// Some of them, with what they have.
        copies: Vec<(Vb, Position)>,
    },
    /// They cannot be sealed so.
    SealAllRefused {
        /// The newest epoch that the node has seen.
        epoch: u64,
        /// The highest term of its copies.
        term: u64,
    },
    /// The controller asks for [`Message::Report`].
    Ask,
    /// An order, for the controller.
    Order(Order),
    /// Copies that need something of the controller.
    Report(Vec<CopyReport>),
    /// Seal the copy at `term`.
    Seal {
        /// The vBucket.
        vb: Vb,
        /// The term, for which the map has the intent.
        term: u64,
        /// Only when the copy has this much, in a takeover.
        at_least: Option<Position>,
    },
    /// The copy is sealed at `term` since its node started.
    Sealed {
        /// The vBucket.
        vb: Vb,
        /// The term.
        term: u64,
        /// What the copy has, and cannot get more of.
        position: Position,
        /// It was active when it was sealed, so that it has everything that it acknowledged. A copy whose node restarted
        /// may have lost some of that from memory.
        complete: bool,
    },
    /// The copy cannot be read since its node started: it is not active below `term`, and does not count as sealed.
    Stopped {
        /// The vBucket.
        vb: Vb,
        /// The term that was asked for.
        term: u64,
    },
    /// The copy cannot be sealed at `term` (any more).
    SealRefused {
        /// The vBucket.
        vb: Vb,
        /// The term that was asked for.
        term: u64,
        /// The copy's term.
        current: u64,
    },
}

/// What an operator orders. It may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// New nodes become members, and copies move to where the plan wants them.
    Rebalance,
    /// No move begins.
    Pause,
    /// Moves that can be taken back are.
    Cancel,
    /// The node shall have no copies; rebalances.
    Drain(NodeId),
    /// The active copies of the node are replaced, where nothing is lost that was promised.
    FailOver(NodeId),
    /// Others take over from the active copies of the node first, without a loss; then it is failed over. Nothing, if some
    /// vBucket has no copy that can.
    FailOverGracefully(NodeId),
    /// As [`Self::FailOver`], also where too few copies are left: the best of those is promoted. It may lose what was promised.
    FailOverUnsafe {
        /// The node.
        node: NodeId,
        /// The epoch by which the operator was told what may be lost. It is raised, so that the order is obeyed once.
        epoch: u64,
        /// The revision by which that was: rows of chunks that are newer stay as they are.
        revision: u64,
        /// Nodes whose copies are given up, as far as they are still gone.
        lost: Vec<NodeId>,
    },
    /// All copies are adopted, after etcd was restored. It is an order to the node that gets it, which knows of the restore.
    Adopt {
        /// The epoch by which the operator was told.
        epoch: u64,
        /// Nodes whose copies are given up.
        lost: Vec<NodeId>,
    },
    /// The node is a member again; failovers are counted anew.
    Recover(NodeId),
    /// The node leaves the cluster, if no copy is, or is to get, on it. It comes back as a new one when it starts again.
    Remove(NodeId),
}

/// A copy that the map has as active, and what it needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CopyReport {
    /// The vBucket.
    pub vb: Vb,
    /// The revision of the map that the node goes by.
    pub revision: u64,
    /// What it needs.
    pub need: Need,
}

/// What a copy needs of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// An election: the copy is not active, and cannot become it at the term of the map.
    Election {
        /// The copy's term.
        term: u64,
    },
    /// The next phase of its move.
    NextPhase(Phase),
}
