//! What a node knows of a copy beside its vBucket.

use std::collections::BTreeMap;

use cluster::agent::{Role, Topology};
use cluster::{NodeId, Settings, majority};

/// What the node knows of a copy beside its vBucket.
#[derive(Clone, Debug)]
pub struct CopyState {
    /// What it is.
    pub role: Role,
    /// It was sealed at its term since the node started, and has had no stream of that term yet.
    pub sealed: bool,
    /// It was active when it was sealed, and has all that it had as that.
    pub complete: bool,
    /// The node that it takes changes from.
    pub follows: Option<NodeId>,
    /// The term that is on disk, while a newer one is being written.
    pub durable_term: Option<u64>,
    /// The chains that an active copy works by.
    pub topology: Option<Topology>,
    /// Of an active copy: its high seqno when it took the phase of its move.
    pub since_phase: u64,
    /// Seqnos that other nodes have on disk, of streams of this term.
    pub acknowledged: BTreeMap<NodeId, u64>,
    /// When pings went out on which other nodes confirmed this term.
    pub confirmed: BTreeMap<NodeId, u64>,
}

impl CopyState {
    /// A replica that follows none.
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

    /// A replica that follows none, and was sealed or is the active copy no more.
    pub(crate) fn stopped(&self) -> Self {
        Self {
            complete: self.complete || self.role == Role::Active,
            durable_term: self.durable_term,
            ..Self::new()
        }
    }

    /// Until when an active copy may serve, milliseconds of the node's clock: as [`cluster::agent::may_serve`] says, of
    /// all times to come.
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
