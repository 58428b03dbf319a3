//! Times and limits of a cluster.

/// Shortest and longest lease of a cluster, milliseconds.
const LEASES_MS: std::ops::RangeInclusive<u64> = 1_000..=60_000;

/// Times and limits of a cluster; the same on all of its nodes.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Length of a node's lease.
    pub lease_ms: u64,
    /// Safety margin: a lease or a confirmation ends this much earlier for its node, and this much later for
    /// others. Two nodes' clocks must differ by less than this over a lease.
    pub margin_ms: u64,
    /// L: time for which a replica's confirmation of a term counts.
    pub confirmed_ms: u64,
    /// Interval of repeated messages: pings, questions of the controller, seals without an answer.
    pub repeat_ms: u64,
    /// Interval of pings from a node whose active copies move: the answers carry the progress of other copies.
    pub moving_ms: u64,
    /// Timeout of a request to etcd.
    pub request_ms: u64,
    /// Time without a message after which a node counts as unheard.
    pub unheard_ms: u64,
    /// Time after the start of its watch in which a controller does not fail over a node that it has not
    /// heard since: the node may start later than the controller.
    pub settle_ms: u64,
    /// Number of automatic failovers until an operator resets the count.
    pub failovers_max: u32,
    /// Time after which a takeover is taken back, and after which a node that answers no seal counts as failed.
    pub takeover_ms: u64,
    /// Number of concurrent moves from or to a node whose new copies are being filled.
    pub moves_per_node: usize,
    /// Number of takeovers from a node that begin together; as many moves may wait for theirs meanwhile.
    /// Clients get a map each time that takeovers end.
    pub takeovers_per_node: usize,
    /// Longest time that a takeover waits for others.
    pub together_ms: u64,
}

impl Settings {
    /// Returns the settings of a cluster with this length of a lease; `None` for the default length.
    pub fn of_lease(lease_ms: Option<u64>) -> Self {
        let default = Self::default();
        let lease_ms = lease_ms.unwrap_or(default.lease_ms);
        let lease_ms = lease_ms.clamp(*LEASES_MS.start(), *LEASES_MS.end());
        Self {
            lease_ms,
            margin_ms: lease_ms / 10,
            unheard_ms: default.unheard_ms.min(lease_ms / 2),
            ..default
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            lease_ms: 5_000,
            margin_ms: 500,
            confirmed_ms: 1_000,
            repeat_ms: 250,
            moving_ms: 25,
            request_ms: 2_000,
            unheard_ms: 2_000,
            settle_ms: 30_000,
            failovers_max: 3,
            takeover_ms: 10_000,
            moves_per_node: 2,
            takeovers_per_node: 16,
            together_ms: 2_000,
        }
    }
}
