//! State of a copy, besides its vBucket.

use std::collections::BTreeMap;

use cluster::agent::{Role, Topology};
use cluster::{NodeId, Settings, majority};

/// State of a copy, besides its vBucket.
#[derive(Clone, Debug)]
pub struct CopyState {
    /// Role.
    pub role: Role,
    /// Whether it was sealed at its term since the node started, and has had no stream of that term yet.
    pub sealed: bool,
    /// Whether it was active when it was sealed, and still has everything from that time.
    pub complete: bool,
    /// Node from which it takes changes.
    pub follows: Option<NodeId>,
    /// Term on disk, while a newer one is being written.
    pub durable_term: Option<u64>,
    /// Chains of an active copy.
    pub topology: Option<Topology>,
    /// For an active copy: its high seqno at the start of its move's phase.
    pub since_phase: u64,
    /// Seqnos that other nodes have on disk, from streams of this term.
    pub acknowledged: BTreeMap<NodeId, u64>,
    /// Send times of the pings with which other nodes confirmed this term.
    pub confirmed: BTreeMap<NodeId, u64>,
}

impl CopyState {
    /// Makes a replica that follows no node.
    pub(crate) fn new() -> Self {
        Self {
            role: Role::Replica,
            sealed: false,
            complete: false,
            follows: None,
            durable_term: None,
            topology: None,
            since_phase: 0,
            acknowledged: BTreeMap::new(),
            confirmed: BTreeMap::new(),
        }
    }

    /// Makes the state of a copy that was sealed or has ended its active role: a replica that follows no node.
    pub(crate) fn stopped(&self) -> Self {
        Self {
            complete: self.complete || self.role == Role::Active,
            durable_term: self.durable_term,
            ..Self::new()
        }
    }

    /// Returns the time until which an active copy may serve, in milliseconds of the node's clock, which does not
    /// jump, and runs while the machine sleeps: as long as the lease of its node lasts, or W - 1 replicas have
    /// confirmed its term.
    pub(crate) fn serves_until_ms(&self, settings: &Settings, lease_until_ms: u64) -> u64 {
        let Some(topology) = self.topology.filter(|_| self.role == Role::Active) else {
            return 0;
        };
        let nodes = topology.chain.nodes();
        let needed = majority(nodes.len()) - 1;
        if needed == 0 {
            return u64::MAX;
        }
        let replicas = nodes.iter().skip(1);
        let confirmed = replicas.filter_map(|node| self.confirmed.get(node).copied());
        let mut confirmed: Vec<u64> = confirmed.collect();
        confirmed.sort_unstable_by(|a, b| b.cmp(a));
        let confirmed_ms = confirmed.get(needed - 1);
        let until_ms = confirmed_ms.map_or(0, |sent_ms| sent_ms + settings.confirmed_ms);
        until_ms.max(lease_until_ms)
    }
}

#[cfg(test)]
mod tests {
    use cluster::Chain;

    use super::*;

    #[test]
    fn f3_replicas_keep_an_active_copy_serving_without_a_lease() {
        let chain = Chain::new(&[NodeId(1), NodeId(2), NodeId(3), NodeId(4)]).unwrap();
        let mut copy = CopyState::new();
        copy.role = Role::Active;
        copy.topology = Some(Topology {
            chain,
            change: None,
        });
        let mut serves = |now_ms, lease_until_ms, confirmed: &[(u16, u64)]| {
            copy.confirmed = confirmed
                .iter()
                .map(|(node, at_ms)| (NodeId(*node), *at_ms))
                .collect();
            now_ms < copy.serves_until_ms(&Settings::default(), lease_until_ms)
        };
        assert!(serves(1_000, 1_001, &[]));
        assert!(!serves(1_000, 1_000, &[(3, 1_000)]));
        assert!(serves(1_000, 0, &[(2, 1), (3, 900)]));
        assert!(!serves(1_000, 0, &[(2, 0), (3, 900)]));
    }
}
