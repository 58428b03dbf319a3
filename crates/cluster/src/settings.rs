//! Times and limits.

/// Times and limits of a cluster; the same on all of its nodes.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// How long a node's lease lasts.
    pub lease_ms: u64,
    /// A lease, or a confirmation, is over that much earlier for its node, and later for others: clocks of two nodes
    /// differ by less over a lease.
    pub margin_ms: u64,
    /// L: how long a replica's confirmation of a term counts.
    pub confirmed_ms: u64,
    /// Between two messages of the same meaning: pings, questions of the controller, seals that have no answer.
    pub repeat_ms: u64,
    /// Between two pings of a node whose active copies move: they learn by the answers how far other copies are.
    pub moving_ms: u64,
    /// How long a request to etcd waits for its answer.
    pub request_ms: u64,
    /// A node is unheard when nothing of it came for so long.
    pub unheard_ms: u64,
    /// For so long after it began to watch, a controller fails over no node by itself that it has not heard since: the
    /// node may start later than this one.
    pub settle_ms: u64,
    /// Failovers without an operator, until one resets the count.
    pub failovers_max: u32,
    /// A takeover that takes longer is taken back; a node that answers no seal for so long is taken for failed.
    pub takeover_ms: u64,
    /// Moves at once from or to a node whose new copies are being filled.
    pub moves_per_node: usize,
    /// So many takeovers from a node begin together, and as many moves may wait for theirs meanwhile. Clients get a map for
    /// each time that takeovers end.
    pub takeovers_per_node: usize,
    /// For so long a takeover waits for others at most.
    pub together_ms: u64,
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
