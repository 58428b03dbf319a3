//! Graceful failover: by moves, other copies take over from the active ones of a node; then it is failed over.

use super::draft::Draft;
use super::orders;
use crate::agreed::{NodeState, Rebalance, View};
use crate::condition::Condition;
use crate::map::{Chain, NodeId, Row, Vb};

/// Whether a node can be failed over without loss: it is a member that runs, and each vBucket that is active
/// there has another copy that can take over.
pub fn can_hand_over(view: &View, node: NodeId) -> bool {
    let entry = view.nodes.get(&node);
    let is_member = entry.is_some_and(|entry| entry.value.state == NodeState::Active);
    let is_active = |row: &Row| row.chain.active() == Some(node);
    let mut rows = view.rows().filter(|(_, _, row)| is_active(row));
    is_member && view.is_well(node) && rows.all(|(vb, _, row)| next(view, vb, row).is_some())
}

/// Writes a graceful failover. A running rebalance pauses.
pub(super) fn obey(view: &View, draft: &mut Draft<'_>, node: NodeId) {
    if can_hand_over(view, node) {
        orders::hand_over(view, draft, node, true);
        let mut orders = orders::current(view);
        if orders.rebalance == Rebalance::Running {
            orders.rebalance = Rebalance::Paused;
        }
        orders::put(view, draft, &orders);
    }
}

/// Returns the chain of a vBucket after the takeover, if its active copy's node hands over.
pub(super) fn taken_over(view: &View, vb: Vb, row: &Row) -> Option<Chain> {
    let active = row.chain.active()?;
    let hands_over = view.nodes.get(&active)?.value.hands_over;
    hands_over.then(|| next(view, vb, row)).flatten()
}

/// Fails over nodes that have nothing left to hand over.
pub(super) fn end(view: &View, draft: &mut Draft<'_>) {
    for (node, _) in view.nodes.iter().filter(|(_, of)| of.value.hands_over) {
        let is_active = |chain: &Chain| chain.active() == Some(*node);
        let has =
            |row: &Row| is_active(&row.chain) || row.change.is_some_and(|(to, _)| is_active(&to));
        if !view.rows().any(|(_, _, row)| has(row)) {
            orders::fail_over(view, draft, *node);
        }
    }
}

/// Returns the chain with the first copy that can take over at the front, and the active one at the end.
fn next(view: &View, vb: Vb, row: &Row) -> Option<Chain> {
    let (active, others) = row.chain.nodes().split_first()?;
    let can = |node: &&NodeId| {
        let of = view.nodes.get(*node).map(|entry| &entry.value);
        let counts = |state| matches!(state, NodeState::Active | NodeState::New);
        let stays = of.is_some_and(|of| counts(of.state) && !of.hands_over);
        let whole = view.condition(**node, vb) == Condition::Whole;
        stays && whole && view.is_well(**node) && !view.has_no_disk(**node, vb.bucket)
    };
    let first = others.iter().find(can)?;
    let rest = others.iter().filter(|node| *node != first);
    let nodes: Vec<NodeId> = [first]
        .into_iter()
        .chain(rest)
        .chain([active])
        .copied()
        .collect();
    Chain::new(&nodes)
}
