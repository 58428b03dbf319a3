//! Chains of an active copy: the nodes that must have a write.

use crate::map::NodeId;
use crate::map::{Chain, Phase, Row};
use crate::quorum::majority;

/// Changes that a copy may lag behind and still count as caught up.
const LAG_MAX: u64 = 100;

/// Chains of an active copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Chain of its copies.
    pub chain: Chain,
    /// Chain to which they move, and the phase; copies there may have streams.
    pub change: Option<(Chain, Phase)>,
}

/// Progress of other copies, as the active copy knows it.
#[derive(Clone, Copy, Debug)]
pub struct MoveProgress<F> {
    /// High seqno of the active copy.
    pub high: u64,
    /// High seqno of the active copy, failover entry included, at the start of the phase.
    pub since_phase: u64,
    /// Function that returns the seqno which a node acknowledged on disk at the active copy's term; `None`
    /// for a node without a stream of that term.
    pub on_disk: F,
}

impl Topology {
    /// Returns the chains of a row.
    pub fn of(row: &Row) -> Self {
        let (chain, change) = (row.chain, row.change);
        Self { chain, change }
    }

    /// Whether a durable write can be acknowledged once the nodes of `has` have it. From the phase of two
    /// chains on, both chains need a majority.
    pub fn is_durable(&self, has: impl Fn(NodeId) -> bool) -> bool {
        let by = |chain: &Chain| {
            let having = chain.nodes().iter().filter(|node| has(**node)).count();
            having >= majority(chain.nodes().len())
        };
        let both = |(to, phase): (Chain, Phase)| phase < Phase::TwoChains || by(&to);
        by(&self.chain) && self.change.is_none_or(both)
    }

    /// Whether the move can enter its next phase. In [`Phase::TwoChains`] a positive answer stays true for
    /// the rest of the term.
    pub fn is_ready<F: Fn(NodeId) -> Option<u64>>(&self, progress: &MoveProgress<F>) -> bool {
        let Some((to, phase)) = self.change else {
            return false;
        };
        let having = |seqno: u64| {
            let has = |node: &&NodeId| (progress.on_disk)(**node).is_some_and(|at| at >= seqno);
            to.nodes().iter().filter(has).count()
        };
        let all = to.nodes().len();
        match phase {
            Phase::Build => having(0) == all,
            Phase::CatchUp => having(progress.high.saturating_sub(LAG_MAX)) == all,
            Phase::TwoChains => having(progress.since_phase) >= majority(all),
            Phase::TakeOver => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(nodes: &[u16]) -> Chain {
        let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
        Chain::new(&nodes).unwrap()
    }

    #[test]
    fn write_needs_a_majority_of_both_chains_from_two_chains_on() {
        let mut topology = Topology {
            chain: chain(&[1, 2, 3]),
            change: Some((chain(&[1, 4, 5]), Phase::CatchUp)),
        };
        let old = |node: NodeId| node.0 < 3;
        assert!(topology.is_durable(old));
        topology.change = Some((chain(&[1, 4, 5]), Phase::TwoChains));
        assert!(!topology.is_durable(old));
        assert!(topology.is_durable(|node| node.0 < 3 || node.0 == 5));
        assert!(!topology.is_durable(|node| node.0 != 2 && node.0 != 3));
    }

    #[test]
    fn takeover_waits_for_writes_from_before_two_chains() {
        let topology = Topology {
            chain: chain(&[1, 2, 3]),
            change: Some((chain(&[4, 2, 5]), Phase::TwoChains)),
        };
        let ready = |at: u64| {
            topology.is_ready(&MoveProgress {
                high: 20,
                since_phase: 10,
                on_disk: |node: NodeId| match node.0 {
                    4 => Some(at),
                    2 => Some(20),
                    _ => None,
                },
            })
        };
        assert!(ready(10));
        assert!(!ready(9));
    }
}
