//! The map of vBuckets: the nodes that have copies of each.

use serde::{Deserialize, Serialize};

/// ID of a node in the cluster. It belongs to the node's data: a node that lost its data gets another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeId(pub u16);

/// A node that shall have copies, and its zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Member {
    /// The node.
    pub node: NodeId,
    /// Number of its zone.
    pub zone: u16,
}

/// Copies of a vBucket at most: an active one and three replicas.
pub const COPIES_MAX: usize = 4;

/// The nodes with a copy of a vBucket, the active one first. All are different.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<NodeId>", into = "Vec<NodeId>")]
pub struct Chain {
    nodes: [NodeId; COPIES_MAX],
    len: u8,
}

impl Chain {
    /// Makes a chain of `nodes`; `None` for more than [`COPIES_MAX`] nodes, or for a node that is listed twice.
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

    /// Returns the nodes, the active one first.
    pub fn nodes(&self) -> &[NodeId] {
        &self.nodes[..usize::from(self.len)]
    }

    /// Returns the node of the active copy; `None` for a vBucket without copies.
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

/// Phase of a vBucket's move to another chain. Each phase may be repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The new copies are filled.
    Build,
    /// The new copies follow with little lag, and persist.
    CatchUp,
    /// Durable writes need a majority of both chains.
    TwoChains,
    /// The old active copy is sealed; the first copy of the new chain becomes active when it has all of its data.
    TakeOver,
}

/// Version of a map; totally ordered, also across controllers and after a restore of etcd.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Version {
    /// Epoch; an adoption and an unsafe failover raise it.
    pub epoch: u64,
    /// Revision of etcd that wrote the map.
    pub revision: u64,
}

/// Row of a vBucket in the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Row {
    /// Copies.
    pub chain: Chain,
    /// Term of the active copy.
    pub term: u64,
    /// Term at which copies are being sealed.
    pub intent: Option<u64>,
    /// Chain to which the vBucket moves, and the phase of the move.
    pub change: Option<(Chain, Phase)>,
    /// Copies that are given up in an election that an operator ordered: it needs a seal of every other copy.
    /// Writes that only these copies have may be lost.
    pub without: Option<Chain>,
    /// Nodes whose damaged copies are renewed: a move takes them out of the chain, another move puts them back.
    pub renew: Option<Chain>,
    /// Term of an adoption in which copies of the chain had an older history than the active one; 0 for none. A copy
    /// that has not reached the history of that term may lack acknowledged writes.
    pub adopted: u64,
}

impl Row {
    /// Makes a row without election and move.
    pub fn new(chain: Chain, term: u64) -> Self {
        let (intent, change, without, renew) = (None, None, None, None);
        Self {
            chain,
            term,
            intent,
            change,
            without,
            renew,
            adopted: 0,
        }
    }

    /// Returns the row after an election or a takeover of this one.
    #[must_use]
    pub fn ended(&self, chain: Chain, term: u64) -> Self {
        let is_out = |node: &NodeId| !chain.holds(*node);
        let renew = self.renew.filter(|of| of.nodes().iter().any(is_out));
        Self {
            renew,
            adopted: self.adopted,
            ..Self::new(chain, term)
        }
    }

    /// Whether `node` has, or will get, a copy.
    pub fn has_copy(&self, node: NodeId) -> bool {
        self.chain.holds(node) || self.change.is_some_and(|(to, _)| to.holds(node))
    }

    /// Returns the highest term for which seals may have been sent.
    pub fn highest_term(&self) -> u64 {
        self.intent.unwrap_or(0).max(self.term)
    }

    /// Returns the phase of the move.
    pub fn phase(&self) -> Option<Phase> {
        self.change.map(|(_, phase)| phase)
    }
}

/// UUID of a bucket.
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
    /// Number of the vBucket in the bucket.
    pub number: u16,
}
