//! State of a copy, besides its vBucket.

use std::collections::BTreeMap;

use cluster::agent::{Completeness, Role, Topology};
use cluster::{NodeId, Settings, majority};

/// Confirmation of an active copy's term by another node.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct TermConfirmation {
    /// Send time of the last ping of those that the node answered with this copy, without `stands`.
    pub(crate) sent_ms: u64,
    /// Whether the node's present answers contain the copy: the last ping that it answered counts as well.
    pub(crate) stands: bool,
}

impl TermConfirmation {
    /// Returns the send time of the last ping that counts, given that of the node's last answer.
    pub(crate) fn newest_ms(self, answered_ms: u64) -> u64 {
        let standing_ms = if self.stands { answered_ms } else { 0 };
        self.sent_ms.max(standing_ms)
    }
}

/// State of a copy, besides its vBucket.
#[derive(Clone, Debug)]
pub struct CopyState {
    /// Role.
    pub role: Role,
    /// Whether it was sealed at its term since the node started, and has had no stream of that term yet.
    pub sealed: bool,
    /// Whether it has everything that it acknowledged when it was active.
    pub complete: Completeness,
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
    /// Confirmations of this term by other nodes.
    pub(crate) confirmed: BTreeMap<NodeId, TermConfirmation>,
}

impl CopyState {
    /// Makes a replica that follows no node.
    pub(crate) fn new() -> Self {
        Self {
            role: Role::Replica,
            sealed: false,
            complete: Completeness::Unknown,
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
        let complete = match self.role {
            Role::Active => Completeness::Drains,
            Role::Replica => self.complete,
        };
        Self {
            complete,
            durable_term: self.durable_term,
            ..Self::new()
        }
    }

    /// Returns the time until which an active copy may serve without the lease of its node, since W - 1 replicas have
    /// confirmed its term, in milliseconds of the node's clock, which does not jump, and runs while the machine
    /// sleeps; `None` for a copy that does not serve. `answered` has the send times of the pings that other nodes
    /// answered last.
    pub(crate) fn confirmed_until_ms(
        &self,
        settings: &Settings,
        answered: &BTreeMap<NodeId, u64>,
    ) -> Option<u64> {
        let topology = self.topology.filter(|_| self.role == Role::Active)?;
        let nodes = topology.chain.nodes();
        let needed = majority(nodes.len()) - 1;
        if needed == 0 {
            return Some(u64::MAX);
        }
        let replicas = nodes.iter().skip(1);
        let newest_ms = |node| {
            let answered_ms = answered.get(node).copied().unwrap_or_default();
            Some(self.confirmed.get(node)?.newest_ms(answered_ms))
        };
        let mut confirmed: Vec<u64> = replicas.filter_map(newest_ms).collect();
        confirmed.sort_unstable_by(|a, b| b.cmp(a));
        let confirmed_ms = confirmed.get(needed - 1);
        Some(confirmed_ms.map_or(0, |sent_ms| sent_ms + settings.confirmed_ms))
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
        let mut serves = |now_ms: u64, lease_until_ms: u64, confirmed: &[(u16, u64)]| {
            let confirmation = |sent_ms| TermConfirmation {
                sent_ms,
                stands: false,
            };
            copy.confirmed = confirmed
                .iter()
                .map(|(node, at_ms)| (NodeId(*node), confirmation(*at_ms)))
                .collect();
            let until_ms = copy.confirmed_until_ms(&Settings::default(), &BTreeMap::new());
            now_ms < lease_until_ms.max(until_ms.expect("an active copy"))
        };
        assert!(serves(1_000, 1_001, &[]));
        assert!(!serves(1_000, 1_000, &[(3, 1_000)]));
        assert!(serves(1_000, 0, &[(2, 1), (3, 900)]));
        assert!(!serves(1_000, 0, &[(2, 0), (3, 900)]));
    }
}
