//! Adoptions of copies, also several at the same time.

use cluster::{NodeId, Order};

use crate::world::{Weather, World};

impl World {
    /// An operator orders an adoption, at the node with the newest view among those that know of the restore;
    /// returns whether such a node exists.
    pub(crate) fn adopt(&mut self, lost: &[NodeId]) -> bool {
        let newest = self.knowing().into_iter().max_by_key(|index| {
            let participant = &self.nodes[*index].participant;
            (participant.view().revision, participant.newest().version)
        });
        if let Some(index) = newest {
            self.adopt_at(index, lost);
        }
        newest.is_some()
    }

    /// Returns the nodes that run and know that etcd was restored.
    fn knowing(&self) -> Vec<usize> {
        let knows = |index: &usize| {
            let node = &self.nodes[*index];
            node.runs(self.now_ms) && node.participant.etcd_went_back()
        };
        (0..self.nodes.len()).filter(knows).collect()
    }

    pub(crate) fn adopt_at(&mut self, index: usize, lost: &[NodeId]) {
        let epoch = self.nodes[index].participant.newest().version.epoch;
        let lost = lost.to_vec();
        self.tell(|| format!("copies are adopted by n{index}"));
        let outputs = self.nodes[index]
            .participant
            .order(Order::Adopt { epoch, lost });
        self.carry(index, outputs);
    }

    /// Orders adoptions at other nodes while one is in progress. Nodes crash, stop or are cut off meanwhile.
    pub(crate) fn contend(&mut self) {
        for _ in 0..self.rng.range(0, 8) {
            let soon_ms = [10, 200, 1_000][self.rng.index(3)];
            let until_ms = self.now_ms + self.rng.range(0, soon_ms);
            self.run(until_ms);
            if self.checks.failure.is_some() {
                return;
            }
            let index = self.rng.index(self.nodes.len());
            match self.rng.range(0, 10) {
                0..=4 => {
                    let knowing = self.knowing();
                    if !knowing.is_empty() {
                        let at = knowing[self.rng.index(knowing.len())];
                        self.adopt_at(at, &[]);
                    }
                }
                5 => self.bounce(index),
                6 => self.stop(index),
                7 => self.cut_off_from_some(index),
                8 => self.etcd_fails(),
                _ => {
                    self.weather = Weather {
                        lost: self.rng.range(0, 200),
                        doubled: self.rng.range(0, 200),
                        slow: self.rng.range(0, 100),
                    };
                }
            }
        }
    }

    fn cut_off_from_some(&mut self, index: usize) {
        for other in (0..=self.nodes.len()).filter(|other| *other != index) {
            if self.rng.per_mille(500) {
                self.tell(|| format!("n{index} is cut off from {other}"));
                self.blocked.insert((other, index));
                self.blocked.insert((index, other));
            }
        }
    }

    /// Whether copies were adopted.
    pub(crate) fn is_adopted(&mut self) -> bool {
        self.agreed().history.value.adopted > 0
    }
}
