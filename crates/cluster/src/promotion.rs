//! Choice of the copy to promote, from the answers to seals.

use serde::{Deserialize, Serialize};

use crate::map::{COPIES_MAX, Chain, NodeId};
use crate::quorum::{seals_missing, seals_needed};

/// Position of a sealed copy in the history; a greater one has more.
///
/// A copy on a newer branch has every write that was acknowledged on older ones, whatever the length of its log.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Position {
    /// Newest term whose failover entry the copy has reached.
    pub branch: u64,
    /// High prepared seqno, of the durability level that is promised.
    pub prepared: u64,
    /// High seqno.
    pub seqno: u64,
}

/// Too few copies besides the old active one are sealed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealsMissing {
    /// Number of seals that are needed: S.
    pub needed: usize,
    /// Number of copies that answered, without the old active one.
    pub sealed: usize,
}

/// The answers to the seals of one term of a vBucket.
#[derive(Clone, Debug)]
pub struct Promotion {
    chain: Chain,
    term: u64,
    answers: [Option<Position>; COPIES_MAX],
    stopped: [bool; COPIES_MAX],
    avoided: [bool; COPIES_MAX],
}

impl Promotion {
    /// Replaces the first copy of `chain` at `term`, which is the map's intent.
    pub fn new(chain: Chain, term: u64) -> Self {
        Self {
            chain,
            term,
            answers: [None; COPIES_MAX],
            stopped: [false; COPIES_MAX],
            avoided: [false; COPIES_MAX],
        }
    }

    /// Sets the nodes to avoid: among copies with equal positions, those on other nodes are preferred.
    pub fn avoid(&mut self, is_avoided: impl Fn(NodeId) -> bool) {
        for (node, avoided) in self.chain.nodes().iter().zip(&mut self.avoided) {
            *avoided = is_avoided(*node);
        }
    }

    /// Takes an answer. An answer of another term, or of a node outside the chain, has no effect, nor has a
    /// repeated one.
    pub fn answer(&mut self, node: NodeId, term: u64, position: Position) {
        if let Some(at) = self.place(node, term) {
            self.answers[at] = Some(position);
        }
    }

    /// Records that a copy cannot be read, and is not active below a term.
    pub fn stopped(&mut self, node: NodeId, term: u64) {
        if let Some(at) = self.place(node, term) {
            self.stopped[at] = true;
        }
    }

    fn place(&self, node: NodeId, term: u64) -> Option<usize> {
        let at = self.chain.nodes().iter().position(|other| *other == node);
        at.filter(|_| term == self.term)
    }

    /// Returns the chain after the promotion: the copy with the greatest position first, the old active copy
    /// only if no other one has as much. The answer of the old active copy counts in the choice. Among the
    /// needed seals it counts only in place of a copy that cannot be read.
    ///
    /// # Errors
    /// Fewer than S others are sealed; those without an answer may have acknowledged more than all that answered.
    pub fn chosen(&self) -> Result<Chain, SealsMissing> {
        let nodes = self.chain.nodes();
        let sealed = self.answers.iter().skip(1).flatten().count();
        let others = self.answers.iter().zip(self.stopped).skip(1);
        let stopped = others.filter(|(answer, stopped)| *stopped && answer.is_none());
        let active = self.answers[0].is_some();
        if seals_missing(nodes.len(), sealed, stopped.count(), active) > 0 {
            let needed = seals_needed(nodes.len());
            return Err(SealsMissing { needed, sealed });
        }
        Ok(self.best_first())
    }

    /// Returns the chain after a promotion that an operator ordered: every copy except those of `without` is
    /// sealed, and at least one. A copy that is given up counts if it answered.
    pub fn chosen_without(&self, without: &Chain) -> Option<Chain> {
        let copies = self.chain.nodes().iter().zip(&self.answers);
        let mut open = copies.filter(|(_, answer)| answer.is_none());
        let enough =
            open.all(|(node, _)| without.holds(*node)) && self.answers != [None; COPIES_MAX];
        enough.then(|| self.best_first())
    }

    fn best_first(&self) -> Chain {
        let nodes = self.chain.nodes();
        let mut order: Vec<usize> = (0..nodes.len()).collect();
        order.rotate_left(1);
        order.sort_by_key(|at| (std::cmp::Reverse(self.answers[*at]), self.avoided[*at]));
        let chain: Vec<NodeId> = order.into_iter().map(|at| nodes[at]).collect();
        Chain::new(&chain).expect("the nodes of a chain")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);
    const C: NodeId = NodeId(2);

    fn position(branch: u64, prepared: u64, seqno: u64) -> Position {
        Position {
            branch,
            prepared,
            seqno,
        }
    }

    fn promotion(nodes: &[NodeId], answers: &[(NodeId, Position)]) -> Promotion {
        let mut promotion = Promotion::new(Chain::new(nodes).unwrap(), 5);
        for (node, position) in answers {
            promotion.answer(*node, 5, *position);
        }
        promotion
    }

    fn chosen(nodes: &[NodeId], answers: &[(NodeId, Position)]) -> NodeId {
        let chain = promotion(nodes, answers).chosen().unwrap();
        chain.active().unwrap()
    }

    #[test]
    fn f11_a_replica_with_a_lower_prepared_seqno_is_not_chosen() {
        let answers = [(B, position(1, 7, 20)), (C, position(1, 9, 15))];
        assert_eq!(chosen(&[A, B, C], &answers), C);
    }

    #[test]
    fn f14_without_durable_writes_the_highest_seqno_is_promoted() {
        let answers = [(B, position(1, 0, 20)), (C, position(1, 0, 21))];
        assert_eq!(chosen(&[A, B, C], &answers), C);
    }

    #[test]
    fn f16_the_active_and_a_replica_of_three_are_not_replaced() {
        let promotion = promotion(&[A, B, C], &[(B, position(1, 7, 7))]);
        let (needed, sealed) = (2, 1);
        assert_eq!(promotion.chosen(), Err(SealsMissing { needed, sealed }));
    }

    #[test]
    fn f16_an_operator_gives_copies_up_and_the_best_of_all_others_is_promoted() {
        let chain = |nodes: &[NodeId]| Chain::new(nodes).unwrap();
        let one = promotion(&[A, B, C], &[(C, position(1, 7, 7))]);
        assert_eq!(one.chosen_without(&chain(&[A, B])), Some(chain(&[C, B, A])));
        // B was not given up.
        assert_eq!(one.chosen_without(&chain(&[A])), None);
        let two = [(B, position(1, 8, 8)), (C, position(1, 7, 9))];
        let two = promotion(&[A, B, C], &two).chosen_without(&chain(&[A, B]));
        assert_eq!(two.and_then(|chain| chain.active()), Some(B));
        let none = promotion(&[A, B], &[]).chosen_without(&chain(&[A, B]));
        assert_eq!(none, None);
    }

    #[test]
    fn a_newer_branch_counts_more_than_a_longer_log() {
        let answers = [(B, position(1, 30, 40)), (C, position(2, 8, 8))];
        assert_eq!(chosen(&[A, B, C], &answers), C);
    }

    #[test]
    fn sealed_old_active_is_chosen_if_no_other_copy_has_as_much() {
        let mut answers = [
            (A, position(1, 9, 9)),
            (B, position(1, 8, 8)),
            (C, position(1, 8, 8)),
        ];
        assert_eq!(chosen(&[A, B, C], &answers), A);
        answers[1].1 = answers[0].1;
        assert_eq!(chosen(&[A, B, C], &answers), B);
        assert!(promotion(&[A, B, C], &answers[..2]).chosen().is_err());
    }

    #[test]
    fn equal_copies_on_avoided_nodes_are_chosen_last() {
        let mut answers = [(B, position(1, 7, 7)), (C, position(1, 7, 7))];
        let mut both = promotion(&[A, B, C], &answers);
        both.avoid(|node| node == B);
        assert_eq!(both.chosen().unwrap().active(), Some(C));
        answers[0].1 = position(1, 7, 8);
        let mut more = promotion(&[A, B, C], &answers);
        more.avoid(|node| node == B);
        assert_eq!(more.chosen().unwrap().active(), Some(B));
    }

    #[test]
    fn unreadable_copy_is_no_seal_and_is_not_chosen() {
        let mut one = promotion(&[A, B, C], &[(C, position(1, 7, 7))]);
        one.stopped(A, 5);
        one.stopped(B, 5);
        assert!(one.chosen().is_err());
        let both = [(B, position(1, 7, 7)), (C, position(1, 8, 8))];
        let mut both = promotion(&[A, B, C], &both);
        both.stopped(A, 5);
        assert_eq!(both.chosen(), Ok(Chain::new(&[C, B, A]).unwrap()));
    }

    #[test]
    fn restarted_old_active_is_chosen_beside_an_unreadable_copy() {
        let answers = [(A, position(1, 9, 9)), (C, position(1, 7, 7))];
        let mut promotion = promotion(&[A, B, C], &answers);
        promotion.stopped(B, 4);
        assert!(promotion.chosen().is_err());
        promotion.stopped(B, 5);
        assert_eq!(promotion.chosen(), Ok(Chain::new(&[A, C, B]).unwrap()));
    }

    #[test]
    fn the_only_copy_is_never_replaced() {
        assert!(promotion(&[A], &[(A, position(1, 9, 9))]).chosen().is_err());
    }

    #[test]
    fn answers_of_other_terms_and_nodes_are_ignored() {
        let mut promotion = promotion(&[A, B], &[(C, position(1, 9, 9))]);
        promotion.answer(B, 4, position(1, 9, 9));
        assert!(promotion.chosen().is_err());
        promotion.answer(B, 5, position(1, 9, 9));
        assert_eq!(promotion.chosen(), Ok(Chain::new(&[B, A]).unwrap()));
    }
}
