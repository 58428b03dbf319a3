//! The map of vBuckets: on which nodes the copies of each are.

use serde::{Deserialize, Serialize};

/// A node of the cluster. It lives as long as the node's disk: a node that lost its data gets another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u16);

/// A node that shall have copies, and the zone that it fails with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// Number of its zone.
    pub zone: u16,
}

/// Copies of a vBucket at most: an active one and three replicas.
pub const COPIES_MAX: usize = 4;

/// The nodes with a copy of a vBucket, the active one first. No node is in it twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<NodeId>", into = "Vec<NodeId>")]
pub struct Chain {
    nodes: [NodeId; COPIES_MAX],
    len: u8,
}

impl Chain {
    /// A chain of `nodes`; `None` for more than [`COPIES_MAX`], or for a node that is there twice.
    pub fn new(nodes: &[NodeId]) -> Option<Self> {
        let twice = |at: usize| nodes[..at].contains(&nodes[at]);
        if nodes.len() > COPIES_MAX || (0..nodes.len()).any(twice) {
            return None;
        }
        let mut chain = Self {
            nodes: [NodeId(0); COPIES_MAX],
            len: nodes.len() as u8,
        };
        chain.nodes[..nodes.len()].copy_from_slice(nodes);
        Some(chain)
    }

    /// The nodes, the active one first.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes[..usize::from(self.len)]
    }

    /// The node of the active copy; `None` for a vBucket that has no copy yet.
    pub fn active(&self) -> Option<NodeId> {
        self.nodes().first().copied()
    }

    /// Whether `node` has a copy.
    pub fn holds(&self, node: NodeId) -> bool {
        self.nodes().contains(&node)
    }
}

impl TryFrom<Vec<NodeId>> for Chain {
    type Error = &'static str;

    fn try_from(nodes: Vec<NodeId>) -> Result<Self, Self::Error> {
        Self::new(&nodes).ok_or("too many nodes, or one of them twice")
    }
}

impl From<Chain> for Vec<NodeId> {
    fn from(chain: Chain) -> Self {
        chain.nodes().to_vec()
    }
}

/// How far the move of a vBucket to another chain is. Each phase may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The new copies are filled.
    Build,
    /// The new copies follow with little lag, and persist.
    CatchUp,
    /// Durable writes need a majority of both chains.
    TwoChains,
    /// The old active copy is sealed; the first of the new chain becomes active when it has all that the old one had.
    TakeOver,
}

/// The version of a map; ordered in total, also across controllers and after a restore of etcd.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Version {
    /// Raised by an operator after a restore or an unsafe failover.
    pub epoch: u64,
    /// etcd's revision of the transaction that wrote the map.
    pub revision: u64,
}

/// What the map says of one vBucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Its copies.
    pub chain: Chain,
    /// The term at which the active copy works.
    pub term: u64,
    /// The term at which copies are being sealed.
    pub intent: Option<u64>,
    /// The chain that it moves to, and how far it is.
    pub change: Option<(Chain, Phase)>,
    /// Of an election that an operator ordered: it needs a seal of every copy but these, which are given up. They may have
    /// writes that are lost by it.
    pub without: Option<Chain>,
    /// Nodes whose damaged copies are made anew: a move takes them out of the chain, and another one puts them back.
    pub renew: Option<Chain>,
}

impl Row {
    /// A row at rest.
    pub fn new(chain: Chain, term: u64) -> Self {
        let (intent, change, without, renew) = (None, None, None, None);
        Self {
            chain,
            term,
            intent,
            change,
            without,
            renew,
        }
    }

    /// The row at rest that an election or a takeover of this one ends with.
    #[must_use]
    pub fn ended(&self, chain: Chain, term: u64) -> Self {
        let is_out = |node: &NodeId| !chain.holds(*node);
        let renew = self.renew.filter(|of| of.nodes().iter().any(is_out));
        Self {
            renew,
            ..Self::new(chain, term)
        }
    }

    /// Whether `node` has, or is to get, a copy.
    pub fn has_copy(&self, node: NodeId) -> bool {
        self.chain.holds(node) || self.change.is_some_and(|(to, _)| to.holds(node))
    }

    /// The highest term for which seals may have been sent.
    pub fn highest_term(&self) -> u64 {
        self.intent.unwrap_or(0).max(self.term)
    }

    /// The phase of its move.
    pub fn phase(&self) -> Option<Phase> {
        self.change.map(|(_, phase)| phase)
    }
}

/// A bucket by its UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct BucketId(pub u128);

impl std::fmt::Display for BucketId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A vBucket of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Vb {
    /// The bucket.
    pub bucket: BucketId,
    /// The number of the vBucket in it.
    pub number: u16,
}
