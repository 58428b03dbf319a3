//! Copies with rows that cannot be read.

use cluster::agent::{Copy, Role};
use cluster::agreed::View;
use cluster::{Condition, Copies as _, NodeId, Row, Vb};
use model::VbId;

use crate::world::World;

impl World {
    /// Damages a random copy of a node: some rows while it runs, or all of them, which its start finds.
    pub(crate) fn damage(&mut self, index: usize) {
        let vb = self.vbs[self.rng.index(self.vbs.len())];
        let row = self.agreed().row(vb).copied();
        if !row.is_some_and(|row| self.may_lose(index, vb, &row)) {
            return;
        }
        let runs = self.nodes[index].runs(self.now_ms) && self.rng.per_mille(400);
        self.harm(index, vb, runs);
    }

    /// Damages the copy of a node while the node runs, or before a start that finds it.
    pub(crate) fn harm(&mut self, index: usize, vb: Vb, runs: bool) {
        if !runs && self.nodes[index].up {
            self.crash(index);
        }
        self.tell(|| format!("the copy of {vb:?} on n{index} is damaged, some rows of it: {runs}"));
        let node = &mut self.nodes[index];
        let Some(disk) = node.disks.get(&vb.bucket) else {
            return;
        };
        disk.set_unreadable(VbId(vb.number), true);
        if !runs {
            // The start finds the damage.
            self.start_as_it_is(index);
        } else if let Some(bucket) = node.vbs.buckets.get(&vb.bucket) {
            bucket.meet_damage(VbId(vb.number));
        }
    }

    /// Whether the other copies suffice without this one: they are all whole, and no chain has, or will have,
    /// only this one, neither in etcd nor, while etcd is restored, at an active copy. All have changes: an empty one
    /// may be under construction from this one, unknown to a restored etcd, and damage of it would be met only with
    /// later changes.
    fn may_lose(&self, index: usize, vb: Vb, row: &Row) -> bool {
        let known = self
            .nodes
            .iter()
            .filter_map(|node| node.vbs.copy(vb)?.topology);
        let known = known.map(|topology| (topology.chain, topology.change));
        let mut chains = known
            .chain([(row.chain, row.change)])
            .flat_map(|(chain, change)| {
                let to = change.map(|(to, _)| to);
                to.into_iter().chain([chain])
            });
        let copies = |node: &NodeId| self.nodes[usize::from(node.0)].vbs.copy(vb);
        let mut all = self.nodes.iter().filter_map(|node| node.vbs.copy(vb));
        let mut disks = self
            .nodes
            .iter()
            .filter_map(|node| node.disks.get(&vb.bucket));
        let disk = self.nodes[index].disks.get(&vb.bucket);
        disk.is_some_and(|disk| disk.has_changes(VbId(vb.number)))
            && row.chain.holds(self.nodes[index].id)
            && chains.all(|chain| chain.nodes().len() > 1)
            && all.all(|copy| copy.condition == Condition::Whole)
            // An empty copy is whole until rows are written.
            && disks.all(|disk| !disk.is_unreadable(VbId(vb.number)))
            && row
                .chain
                .nodes()
                .iter()
                .all(|node| copies(node).is_some_and(|copy| copy.position.seqno > 0))
    }

    /// At a start of a node, unreadable copies may become readable.
    pub(crate) fn read_copies(&mut self, index: usize) {
        for vb in self.vbs.clone() {
            if self.nodes[index].may_mend(vb) && self.rng.per_mille(200) {
                let disk = &self.nodes[index].disks[&vb.bucket];
                disk.set_unreadable(VbId(vb.number), false);
            }
        }
    }

    /// Restarts nodes with an active copy whose unreadable row others need, as an operator would.
    pub(crate) fn restart_damaged(&mut self) {
        for index in 0..self.nodes.len() {
            let vbs = &self.nodes[index].vbs;
            let copies = vbs.vbuckets().into_iter();
            let mut copies = copies.filter_map(|vb| vbs.copy(vb));
            if copies.any(|copy| copy.role == Role::Active && copy.condition == Condition::Damaged)
            {
                self.crash(index);
                self.start(index);
            }
        }
    }

    /// Whether a copy is damaged or being renewed although another one is whole.
    pub(crate) fn is_to_be_renewed(&self, view: &View, vb: Vb) -> bool {
        let Some(row) = view.row(vb) else {
            return false;
        };
        let copy = |node: &NodeId| self.nodes[usize::from(node.0)].vbs.copy(vb);
        let is_whole = |copy: Copy| copy.condition == Condition::Whole;
        let mut conditions = row.chain.nodes().iter().filter_map(copy).map(is_whole);
        let (any_whole, all_whole) = (conditions.clone().any(|is| is), conditions.all(|is| is));
        row.renew.is_some() || any_whole && !all_whole
    }
}
