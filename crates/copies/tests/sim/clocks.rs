//! Wall clocks of nodes, which differ and jump.

use crate::world::World;

/// Probability that the wall clock of a node jumps while the node is down.
const JUMPS_PER_MILLE: u64 = 400;

impl World {
    /// Sets the wall clock of each node to a different time.
    pub(crate) fn skew_all(&mut self) {
        for index in 0..self.nodes.len() {
            self.skew(index);
        }
    }

    /// Sets the wall clock of a node to a random time around the right one.
    pub(crate) fn skew(&mut self, index: usize) {
        let most_ms = [2_000, 20_000, 600_000][self.rng.index(3)];
        let ahead_ms = self.rng.range(0, 2 * most_ms).cast_signed() - most_ms.cast_signed();
        self.tell(|| format!("the wall clock of n{index} is {ahead_ms} ms ahead"));
        self.nodes[index].clock.set_ahead(ahead_ms);
        self.checks.wall_clock(ahead_ms);
    }

    /// The wall clock of a node that starts may have jumped.
    pub(crate) fn skew_at_start(&mut self, index: usize) {
        if self.skews && self.rng.per_mille(JUMPS_PER_MILLE) {
            self.skew(index);
        }
    }

    /// Sets all wall clocks to the right time.
    pub(crate) fn set_clocks(&mut self) {
        self.skews = false;
        for node in &self.nodes {
            node.clock.set_ahead(0);
        }
    }
}
