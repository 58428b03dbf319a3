//! Messages between the controller and nodes. Every message may be lost, repeated or delayed.

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
    /// etcd lacks this state, which the sender had seen.
    EtcdWentBack(Seen),
    /// Seal all copies of the node at `term`, for an adoption that raises the epoch to `epoch`.
    SealAll {
        /// Epoch that the operator saw: a node that follows a newer one ignores the message.
        told: u64,
        /// New epoch.
        epoch: u64,
        /// The term.
        term: u64,
    },
    /// All copies of the node are sealed. The answer comes in several parts.
    AllSealed {
        /// The epoch.
        epoch: u64,
        /// The term.
        term: u64,
        /// Number of copies of the node.
        count: usize,
        /// Some of the copies, with their positions.
        copies: Vec<(Vb, Position)>,
        /// Those of them with rows that cannot be read.
        #[serde(default)]
        damaged: Vec<Vb>,
    },
    /// The copies cannot be sealed for this epoch and term.
    SealAllRefused {
        /// Newest epoch that the node has seen.
        epoch: u64,
        /// Highest term of its copies.
        term: u64,
    },
    /// The controller asks for [`Message::Report`].
    Ask,
    /// An order for the controller.
    Order(Order),
    /// Copies that need something from the controller.
    Report(Vec<CopyReport>),
    /// Seal the copy at `term`.
    Seal {
        /// The vBucket.
        vb: Vb,
        /// Term; the map has it as the intent.
        term: u64,
        /// In a takeover: position that the copy must have before it is sealed.
        at_least: Option<Position>,
    },
    /// The copy is sealed at `term` since its node started.
    Sealed {
        /// The vBucket.
        vb: Vb,
        /// The term.
        term: u64,
        /// Position of the copy, which cannot grow any further.
        position: Position,
        /// Whether the copy was active when it was sealed, so that it has everything that it acknowledged. A
        /// copy whose node restarted may have lost some of that from memory.
        complete: bool,
        /// Whether the copy was active until its node stopped with everything on disk.
        #[serde(default)]
        kept: bool,
    },
    /// The copy could not be read at the start of its node: it is not active below `term`, and does not count
    /// as sealed.
    Stopped {
        /// The vBucket.
        vb: Vb,
        /// Term of the seal.
        term: u64,
    },
    /// The copy cannot be sealed at `term`, at least not any longer.
    SealRefused {
        /// The vBucket.
        vb: Vb,
        /// Term of the seal.
        term: u64,
        /// Term of the copy.
        current: u64,
    },
}

/// An order of an operator. It may be repeated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// New nodes become members, and copies move to the places that the plan wants.
    Rebalance,
    /// No move begins.
    Pause,
    /// Ends the rebalance; moves that can be taken back are taken back.
    Cancel,
    /// The node shall have no copies; starts a rebalance.
    Drain(NodeId),
    /// Replaces the active copies of the node, where no promised write is lost.
    FailOver(NodeId),
    /// Other copies first take over from the active copies of the node, without loss; then it is failed over.
    /// It has no effect if one of these vBuckets has no other copy that can take over.
    FailOverGracefully(NodeId),
    /// Like [`Self::FailOver`], but if too few copies are left, the best of them is promoted. Promised writes
    /// may be lost.
    FailOverUnsafe {
        /// The node.
        node: NodeId,
        /// Epoch that the operator saw. It is raised, so the order has an effect only once.
        epoch: u64,
        /// Revision that the operator saw: rows of newer chunks stay as they are.
        revision: u64,
        /// Nodes whose copies are given up, if these nodes are still gone.
        lost: Vec<NodeId>,
    },
    /// Adopts all copies after a restore of etcd. The node that receives it obeys it, since it knows of the restore.
    Adopt {
        /// Epoch that the operator saw.
        epoch: u64,
        /// Nodes whose copies are given up.
        lost: Vec<NodeId>,
    },
    /// Makes the node a member again, and resets the count of failovers.
    Recover(NodeId),
    /// Removes the node from the cluster, if it has no copy and will get none. It comes back as a new node at
    /// its next start.
    Remove(NodeId),
}

/// Report on a copy that is active in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CopyReport {
    /// The vBucket.
    pub vb: Vb,
    /// Revision of the map that the node follows.
    pub revision: u64,
    /// Need of the copy.
    pub need: Need,
}

/// Need of a copy that the controller must meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// An election: the copy is not active, and cannot become active at the map's term.
    Election {
        /// Term of the copy.
        term: u64,
    },
    /// The next phase of its move.
    NextPhase(Phase),
}
