//! Changes in etcd by orders.

use std::collections::BTreeSet;

use super::draft::Draft;
use crate::agreed::{Key, Node, NodeState, Orders, Rebalance, View};
use crate::map::NodeId;
use crate::message::Order;

/// Returns the current orders.
pub(super) fn current(view: &View) -> Orders {
    view.orders
        .as_ref()
        .map(|entry| entry.value.clone())
        .unwrap_or_default()
}

/// Writes the orders if they change.
pub(super) fn put(view: &View, draft: &mut Draft<'_>, orders: &Orders) {
    if current(view) != *orders {
        let seen = view.orders.as_ref().map_or(0, |entry| entry.mod_revision);
        draft.put(Key::Orders, seen, orders);
    }
}

/// Writes the state of a node if it changes.
pub(super) fn set_state(view: &View, draft: &mut Draft<'_>, node: NodeId, state: NodeState) {
    if let Some(entry) = view.nodes.get(&node) {
        let value = Node {
            state,
            ..entry.value.clone()
        };
        write(view, draft, node, &value);
    }
}

/// Marks a node as failed. Its lease, if it has one, is to be revoked.
pub(super) fn fail(view: &View, draft: &mut Draft<'_>, node: NodeId) {
    mark(view, draft, node, false);
}

/// Marks a node as failed by an operator's order: the node does not end the mark by itself. This applies also
/// to a node that is marked already.
pub(super) fn fail_over(view: &View, draft: &mut Draft<'_>, node: NodeId) {
    mark(view, draft, node, true);
}

fn mark(view: &View, draft: &mut Draft<'_>, node: NodeId, failed_over: bool) {
    let Some(entry) = view.nodes.get(&node) else {
        return;
    };
    let is_marked = entry.value.state == NodeState::Failed;
    let lease = view.alive.get(&node).map(|alive| alive.lease);
    let value = Node {
        state: NodeState::Failed,
        revoke: if is_marked { entry.value.revoke } else { lease },
        failed_over: failed_over || entry.value.hands_over,
        hands_over: false,
        ..entry.value.clone()
    };
    if value != entry.value {
        draft.put(Key::Node(node), entry.mod_revision, &value);
        draft.end_alive(node);
    }
}

/// Makes a node a member again. A node that was failed over then ends its mark by itself, and is new after that.
fn recover(view: &View, draft: &mut Draft<'_>, node: NodeId) {
    let Some(entry) = view.nodes.get(&node) else {
        return;
    };
    let is_marked = entry.value.state == NodeState::Failed;
    let value = Node {
        state: if is_marked {
            NodeState::Failed
        } else {
            NodeState::Active
        },
        failed_over: false,
        hands_over: false,
        ..entry.value.clone()
    };
    write(view, draft, node, &value);
}

/// Starts, or stops, the takeover of a node's active copies by others.
pub(super) fn hand_over(view: &View, draft: &mut Draft<'_>, node: NodeId, hands_over: bool) {
    if let Some(entry) = view.nodes.get(&node) {
        let value = Node {
            hands_over,
            ..entry.value.clone()
        };
        write(view, draft, node, &value);
    }
}

/// Writes a node if it changes.
fn write(view: &View, draft: &mut Draft<'_>, node: NodeId, value: &Node) {
    let entry = view.nodes.get(&node).filter(|entry| entry.value != *value);
    if let Some(entry) = entry {
        draft.put(Key::Node(node), entry.mod_revision, value);
    }
}

/// Writes the changes of an order. A rebalance leaves new nodes that are `gone` as they are.
pub(super) fn obey(view: &View, draft: &mut Draft<'_>, order: &Order, gone: &BTreeSet<NodeId>) {
    let mut orders = current(view);
    match *order {
        Order::Rebalance => {
            orders.rebalance = Rebalance::Running;
            for (node, entry) in &view.nodes {
                if entry.value.state == NodeState::New && !gone.contains(node) {
                    set_state(view, draft, *node, NodeState::Active);
                }
            }
        }
        Order::Pause if orders.rebalance == Rebalance::Running => {
            orders.rebalance = Rebalance::Paused;
        }
        // Other code obeys the latter three.
        Order::Pause
        | Order::FailOverGracefully(_)
        | Order::FailOverUnsafe { .. }
        | Order::Adopt { .. } => {}
        Order::Cancel => {
            orders.rebalance = Rebalance::Idle;
            for node in view.nodes.keys() {
                hand_over(view, draft, *node, false);
            }
        }
        Order::Drain(node) => {
            orders.rebalance = Rebalance::Running;
            let state = view.nodes.get(&node).map(|entry| entry.value.state);
            if state != Some(NodeState::Failed) {
                set_state(view, draft, node, NodeState::Draining);
            }
        }
        Order::FailOver(node) => fail_over(view, draft, node),
        Order::Recover(node) => {
            orders.failovers = 0;
            recover(view, draft, node);
        }
        Order::Remove(node) => {
            let holds = view.rows().any(|(_, _, row)| row.has_copy(node));
            if let Some(entry) = view.nodes.get(&node).filter(|_| !holds) {
                draft.delete(Key::Node(node), entry.mod_revision);
                draft.end_alive(node);
                orders.removed = orders.removed.max(node.0);
            }
        }
    }
    put(view, draft, &orders);
}
