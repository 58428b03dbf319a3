//! Answers to the seals of one term of a vBucket.

use std::collections::{BTreeMap, BTreeSet};

use crate::map::{Chain, NodeId, Row};
use crate::promotion::{Position, Promotion};

/// Answers to the seals at `term`.
#[derive(Clone, Debug)]
pub(super) struct Seals {
    pub(super) term: u64,
    /// Time when this controller first saw the intent.
    pub(super) since_ms: u64,
    answers: BTreeMap<NodeId, Position>,
    /// Copies that were active when they were sealed.
    complete: BTreeSet<NodeId>,
    /// Copies that were active until their nodes stopped with everything on disk.
    kept: BTreeSet<NodeId>,
    /// Copies that cannot be read: they are not active below the term.
    stopped: BTreeSet<NodeId>,
    /// Time of the newest answer.
    pub(super) newest_ms: u64,
    /// Highest term of copies that refused.
    pub(super) refused: Option<u64>,
}

impl Seals {
    pub(super) fn new(term: u64, now_ms: u64) -> Self {
        Self {
            term,
            since_ms: now_ms,
            answers: BTreeMap::new(),
            complete: BTreeSet::new(),
            kept: BTreeSet::new(),
            stopped: BTreeSet::new(),
            newest_ms: now_ms,
            refused: None,
        }
    }

    pub(super) fn sealed(&mut self, node: NodeId, term: u64, position: Position, now_ms: u64) {
        if term == self.term && !self.answers.contains_key(&node) {
            self.answers.insert(node, position);
            self.newest_ms = now_ms;
        }
    }

    /// Records that the copy of `node` was active until it was sealed.
    pub(super) fn note_complete(&mut self, node: NodeId, term: u64) {
        if term == self.term {
            self.complete.insert(node);
        }
    }

    pub(super) fn is_complete(&self, node: NodeId) -> bool {
        self.complete.contains(&node)
    }

    /// Records that the copy of `node` was active until the node stopped with everything on disk.
    pub(super) fn note_kept(&mut self, node: NodeId, term: u64) {
        if term == self.term {
            self.kept.insert(node);
        }
    }

    /// Whether the copy of `node`, if it is the old active one, has everything that was acknowledged.
    pub(super) fn has_everything(&self, node: NodeId) -> bool {
        self.is_complete(node) || self.kept.contains(&node)
    }

    /// Records that the copy of `node` cannot be read; returns whether this was unknown.
    pub(super) fn note_stopped(&mut self, node: NodeId, term: u64) -> bool {
        term == self.term && self.stopped.insert(node)
    }

    pub(super) fn is_stopped(&self, node: NodeId) -> bool {
        self.stopped.contains(&node)
    }

    pub(super) fn refused(&mut self, term: u64, current: u64) {
        if term == self.term && current >= term {
            self.refused = self.refused.max(Some(current));
        }
    }

    pub(super) fn answer(&self, node: NodeId) -> Option<Position> {
        self.answers.get(&node).copied()
    }

    /// Returns the chain after the election of `row`, if enough copies are sealed.
    ///
    /// An only copy is elected again, with its data. Before the first election of a vBucket no copy was active, so that
    /// its first copy is elected without the others. Nodes for which `avoid` holds are chosen only if no other node has
    /// as much. None is chosen among copies that may lack what an adopted one has.
    pub(super) fn elected(&self, row: &Row, avoid: impl Fn(NodeId) -> bool) -> Option<Chain> {
        let chain = row.chain;
        if let Some(without) = &row.without {
            let promotion = self.promotion(chain, |_| true);
            let chosen = promotion.chosen_without(without);
            // Copies that were given up may be back, while those that are left cannot be read.
            return chosen.or_else(|| promotion.chosen().ok());
        }
        let first = self.answer(chain.active()?);
        let empty = self.answers.values().all(|at| *at == Position::default());
        let sole = chain.nodes().len() == 1;
        if first.is_some() && (sole || row.term == 0 && empty) {
            return Some(chain);
        }
        if sole || first.is_none() && !self.has_adopted(row) {
            return None;
        }
        let mut promotion = self.promotion(chain, |_| true);
        promotion.avoid(avoid);
        promotion.chosen().ok()
    }

    /// Returns the chain after the election without the data of the old active copy `old`.
    pub(super) fn elected_without(&self, row: &Row, old: NodeId) -> Option<Chain> {
        let promotion = self.promotion(row.chain, |node| node != old);
        match &row.without {
            Some(without) => promotion.chosen_without(without),
            None if self.has_adopted(row) => promotion.chosen().ok(),
            None => None,
        }
    }

    /// Whether one of the sealed copies, besides the old active one, has everything that was adopted, or the old
    /// active one cannot be read: then it has nothing more.
    pub(super) fn has_adopted(&self, row: &Row) -> bool {
        let (active, others) = (row.chain.active(), row.chain.nodes().iter().skip(1));
        let mut answers = others.filter_map(|node| self.answer(*node));
        row.adopted == 0
            || active.is_some_and(|node| self.is_stopped(node))
            || answers.any(|position| position.branch >= row.adopted)
    }

    fn promotion(&self, chain: Chain, counts: impl Fn(NodeId) -> bool) -> Promotion {
        let mut promotion = Promotion::new(chain, self.term);
        for (node, position) in self.answers.iter().filter(|(node, _)| counts(**node)) {
            promotion.answer(*node, self.term, *position);
        }
        for node in &self.stopped {
            promotion.stopped(*node, self.term);
        }
        promotion
    }
}
