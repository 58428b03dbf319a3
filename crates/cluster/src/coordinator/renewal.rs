//! Renewal of copies with damaged rows, by two moves. The first move leads to the whole copies of the chain.
//! The second one puts the others back once their nodes have removed the damaged data. So a copy that lost
//! data leaves the chain before it is empty.

use crate::agreed::{NodeState, View};
use crate::condition::Condition;
use crate::map::{Chain, NodeId, Phase, Row, Vb};

/// Request of damaged copies about a row at rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Renewal {
    /// No request.
    None,
    /// No other move may begin.
    Waits,
    /// Write this row.
    Row(Row),
}

impl Renewal {
    /// Decides for a row without election and move. If no copy is whole, all stay: each may have data that
    /// the others lack.
    pub(super) fn of(view: &View, vb: Vb, row: &Row) -> Self {
        let is_whole = |node: &NodeId| view.condition(*node, vb) == Condition::Whole;
        if row.renew.is_none() && row.chain.nodes().iter().all(is_whole) {
            return Self::None;
        }
        let nodes = row.chain.nodes().iter().copied();
        let (whole, damaged): (Vec<NodeId>, Vec<NodeId>) = nodes.partition(is_whole);
        let state = |node: NodeId| view.nodes.get(&node).map(|entry| entry.value.state);
        let runs = |node: &NodeId| view.is_well(*node) && state(*node) != Some(NodeState::Failed);
        let renew = row.renew.iter().flat_map(Chain::nodes).copied();
        let mut out: Vec<NodeId> = renew.filter(|node| !row.chain.holds(*node)).collect();
        if !damaged.is_empty() {
            let begins = !whole.is_empty() && whole.iter().all(runs);
            out.extend(damaged);
            return if begins {
                Self::move_to(row, &whole, &out)
            } else {
                Self::Waits
            };
        }
        // A node that failed, or is drained meanwhile, gets no copy back.
        out.retain(|node| matches!(state(*node), Some(NodeState::Active | NodeState::New)));
        if out.is_empty() {
            let ended = row.renew.map(|_| Row {
                renew: None,
                ..*row
            });
            return ended.map_or(Self::None, Self::Row);
        }
        if !out.iter().all(|node| runs(node) && is_whole(node)) {
            return Self::Waits;
        }
        let to = [row.chain.nodes(), &out].concat();
        Self::move_to(row, &to, &out)
    }

    fn move_to(row: &Row, to: &[NodeId], renew: &[NodeId]) -> Self {
        let (Some(to), Some(renew)) = (Chain::new(to), Chain::new(renew)) else {
            return Self::Row(Row {
                renew: None,
                ..*row
            });
        };
        Self::Row(Row {
            change: Some((to, Phase::Build)),
            renew: Some(renew),
            ..*row
        })
    }
}

/// Whether a damaged copy prevents the end of a move: the copy stays in the chain, or is the source of new copies.
pub(super) fn hinders(view: &View, vb: Vb, row: &Row, to: &Chain) -> bool {
    let is_damaged = |node: NodeId| view.condition(node, vb) != Condition::Whole;
    let stays = to.nodes().iter().any(|node| is_damaged(*node));
    let builds = to.nodes().iter().any(|node| !row.chain.holds(*node));
    stays || builds && row.chain.active().is_some_and(is_damaged)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::agreed::{Alive, Entry, Node};
    use crate::map::BucketId;

    const VB: Vb = Vb {
        bucket: BucketId(1),
        number: 7,
    };

    fn chain(nodes: &[u16]) -> Chain {
        let nodes: Vec<NodeId> = nodes.iter().copied().map(NodeId).collect();
        Chain::new(&nodes).unwrap()
    }

    /// Nodes 1 to 4; some have a damaged copy, some do not run.
    fn view(damaged: &[u16], down: &[u16]) -> View {
        let mut view = View::default();
        for number in 1..=4 {
            let state = NodeState::Active;
            let value = Node {
                state,
                ..Node::default()
            };
            let entry = Entry {
                value,
                ..Entry::default()
            };
            view.nodes.insert(NodeId(number), entry);
            let mut alive: Entry<Alive> = Entry::default();
            if damaged.contains(&number) {
                let of_bucket = BTreeMap::from([(VB.number, Condition::Unreadable)]);
                alive.value.health.damaged.insert(VB.bucket, of_bucket);
            }
            if !down.contains(&number) {
                view.alive.insert(NodeId(number), alive);
            }
        }
        view
    }

    fn row(nodes: &[u16], renew: &[u16]) -> Row {
        Row {
            renew: (!renew.is_empty()).then(|| chain(renew)),
            ..Row::new(chain(nodes), 3)
        }
    }

    fn moved(row: Row, to: &[u16], renew: &[u16]) -> Renewal {
        Renewal::Row(Row {
            change: Some((chain(to), Phase::Build)),
            renew: Some(chain(renew)),
            ..row
        })
    }

    #[test]
    fn damaged_copy_leaves_the_chain_and_returns_after_its_removal() {
        let whole = row(&[1, 2, 3], &[]);
        assert_eq!(Renewal::of(&view(&[], &[]), VB, &whole), Renewal::None);
        let left = Renewal::of(&view(&[2], &[]), VB, &whole);
        assert_eq!(left, moved(whole, &[1, 3], &[2]));
        let active = Renewal::of(&view(&[1], &[]), VB, &whole);
        assert_eq!(active, moved(whole, &[2, 3], &[1]));
        let out = row(&[1, 3], &[2]);
        assert_eq!(Renewal::of(&view(&[2], &[]), VB, &out), Renewal::Waits);
        assert_eq!(Renewal::of(&view(&[], &[2]), VB, &out), Renewal::Waits);
        let back = Renewal::of(&view(&[], &[]), VB, &out);
        assert_eq!(back, moved(out, &[1, 3, 2], &[2]));
        assert_eq!(out.ended(chain(&[1, 3, 2]), 4).renew, None);
        assert_eq!(out.ended(chain(&[3, 1]), 4).renew, out.renew);
    }

    #[test]
    fn all_copies_stay_if_no_whole_copy_runs() {
        let waits = [
            (&[1][..], &[1][..], &[][..]),
            (&[1, 2], &[1, 2], &[]),
            (&[1, 2], &[2], &[1]),
        ];
        for (nodes, damaged, down) in waits {
            let of = Renewal::of(&view(damaged, down), VB, &row(nodes, &[]));
            assert_eq!(of, Renewal::Waits, "{nodes:?}");
        }
        // New copies are not built from a damaged one either.
        assert_eq!(
            Renewal::of(&view(&[1], &[]), VB, &row(&[1], &[2])),
            Renewal::Waits
        );
    }

    #[test]
    fn a_node_that_failed_or_left_gets_no_copy_back() {
        let out = row(&[1, 3], &[2]);
        let mut view = view(&[], &[]);
        let ended = Renewal::Row(row(&[1, 3], &[]));
        for state in [NodeState::Failed, NodeState::Draining] {
            view.nodes.entry(NodeId(2)).or_default().value.state = state;
            assert_eq!(Renewal::of(&view, VB, &out), ended);
        }
        view.nodes.remove(&NodeId(2));
        assert_eq!(Renewal::of(&view, VB, &out), ended);
        // A node that has its copy again does not wait either.
        assert_eq!(
            Renewal::of(&view, VB, &row(&[1, 2], &[2])),
            Renewal::Row(row(&[1, 2], &[]))
        );
    }

    #[test]
    fn damaged_copy_in_the_new_chain_or_as_source_hinders_a_move() {
        let row = row(&[1, 2], &[]);
        let hinders =
            |damaged: &[u16], to: &[u16]| hinders(&view(damaged, &[]), VB, &row, &chain(to));
        assert!(!hinders(&[], &[1, 3]));
        assert!(hinders(&[2], &[1, 2, 3]));
        assert!(hinders(&[1], &[2, 3]));
        assert!(!hinders(&[2], &[1, 3]));
        assert!(!hinders(&[1], &[2]));
    }
}
