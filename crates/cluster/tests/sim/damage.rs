//! Copies of which rows cannot be read any more.

use cluster::agreed::View;
use cluster::{Condition, NodeId, Row, Vb};

use crate::copy::SimCopy;
use crate::world::World;

impl World {
    /// Some copy of a node gets damaged: rows of it while it runs, or all of it, which is found by a start.
    pub(crate) fn damage(&mut self, index: usize) {
        let vb = self.vbs[self.rng.index(self.vbs.len())];
        let row = self.agreed().row(vb).copied();
        if !row.is_some_and(|row| self.may_lose(index, vb, &row)) {
            return;
        }
        let runs = self.nodes[index].runs(self.now_ms) && self.rng.per_mille(400);
        self.harm(index, vb, runs);
    }

    /// The copy of a node gets damaged while it runs, or is found so by a start.
    pub(crate) fn harm(&mut self, index: usize, vb: Vb, runs: bool) {
        if !runs && self.nodes[index].up {
            self.crash(index);
            self.start(index);
        }
        self.tell(|| format!("the copy of {vb:?} on n{index} is damaged, some rows of it: {runs}"));
        let high = self.nodes[index].vbs.copies.get(&vb);
        let high = high.map_or(0, |copy| copy.log.high());
        let damaged_at = self.rng.range(0, high + 1);
        let Some(copy) = self.nodes[index].vbs.copies.get_mut(&vb) else {
            return;
        };
        copy.damaged_at = damaged_at;
        copy.condition = if runs {
            Condition::Damaged
        } else {
            Condition::Unreadable
        };
    }

    /// Whether what others have is enough without a copy: they are all whole, and none is, or shall be, the only one.
    fn may_lose(&self, index: usize, vb: Vb, row: &Row) -> bool {
        let to = row.change.map(|(to, _)| to);
        let mut chains = to.into_iter().chain([row.chain]);
        let copies = |node: &NodeId| self.nodes[usize::from(node.0)].vbs.copies.get(&vb);
        let mut all = self
            .nodes
            .iter()
            .filter_map(|node| node.vbs.copies.get(&vb));
        row.chain.holds(self.nodes[index].id)
            && chains.all(|chain| chain.nodes().len() > 1)
            && all.all(|copy| copy.condition == Condition::Whole)
            && row.chain.nodes().iter().all(|node| copies(node).is_some())
    }

    /// A node that starts reads its copies: damaged ones are found to be so, and what could not be read may be read again.
    pub(crate) fn read_copies(&mut self, index: usize) {
        let rng = &mut self.rng;
        let copies = self.nodes[index].vbs.copies.values_mut();
        for copy in copies.filter(|copy| copy.condition != Condition::Whole) {
            copy.condition = match (copy.condition, rng.per_mille(200)) {
                (Condition::Unreadable, true) => Condition::Whole,
                _ => Condition::Unreadable,
            };
        }
    }

    /// Active copies of which others need a row that cannot be read: an operator starts their nodes again.
    pub(crate) fn restart_damaged(&mut self) {
        for index in 0..self.nodes.len() {
            let mut copies = self.nodes[index].vbs.copies.values();
            if copies.any(|copy| copy.is_active() && copy.condition == Condition::Damaged) {
                self.crash(index);
                self.start(index);
            }
        }
    }

    /// Whether a copy is damaged, or is being made anew, although another one is whole.
    pub(crate) fn is_to_be_renewed(&self, view: &View, vb: Vb) -> bool {
        let Some(row) = view.row(vb) else {
            return false;
        };
        let copy = |node: &NodeId| self.nodes[usize::from(node.0)].vbs.copies.get(&vb);
        let is_whole = |copy: &SimCopy| copy.condition == Condition::Whole;
        let mut conditions = row.chain.nodes().iter().filter_map(copy).map(is_whole);
        let (any_whole, all_whole) = (conditions.clone().any(|is| is), conditions.all(|is| is));
        row.renew.is_some() || any_whole && !all_whole
    }
}
