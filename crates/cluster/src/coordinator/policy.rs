//! Policy of automatic failover: it decides which nodes are marked as failed.

use std::collections::{BTreeMap, BTreeSet};

use super::decide::DecisionInput;
use crate::agreed::NodeState;
use crate::map::{NodeId, Row, Vb};

/// Reason why a missing node is not failed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailoverBlock {
    /// This controller began to watch recently, and has not heard the node since: it may start later.
    Settling,
    /// Most nodes, without those that have no copies, are missing: more likely this node is cut off.
    MostGone,
    /// Most of its peers hear it.
    Heard,
    /// Another node (of another zone, if there are several) is being failed over.
    OneAtATime,
    /// The limit of failovers since an operator's last reset is reached.
    Quota,
    /// All its copies are active, and none can be replaced without losing a promised write.
    WouldLose,
}

/// Input of the policy, besides the view.
pub(super) struct Situation<'a> {
    pub(super) facts: DecisionInput<'a>,
    pub(super) watching_since_ms: u64,
    pub(super) heard: &'a BTreeMap<NodeId, u64>,
    /// Nodes that hold up an election although their lease is valid.
    pub(super) stuck: BTreeSet<NodeId>,
    /// Nodes that cleared their mark recently: they read the map before they are alive.
    pub(super) returning: BTreeSet<NodeId>,
}

impl Situation<'_> {
    /// Decides whether `node` is to be marked as failed; `None` if it is well, or has no copies.
    pub(super) fn judge(&self, node: NodeId) -> Option<Result<(), FailoverBlock>> {
        let view = self.facts.view;
        let entry = view.nodes.get(&node)?;
        let alive = view.alive.get(&node);
        let dead_disk = alive.is_some_and(|alive| alive.value.health.disk_dead);
        let gone = alive.is_none() && !self.returning.contains(&node);
        let condemned = dead_disk || self.stuck.contains(&node);
        let is_at_fault = gone || condemned;
        if entry.value.state == NodeState::Failed || !is_at_fault || !self.has_copies(node) {
            return None;
        }
        Some(self.allow(node, condemned))
    }

    fn allow(&self, node: NodeId, condemned: bool) -> Result<(), FailoverBlock> {
        let (view, settings) = (self.facts.view, self.facts.settings);
        let heard_ms = self.heard.get(&node);
        let ran = heard_ms.is_some_and(|at| *at >= self.watching_since_ms);
        if !ran && self.facts.now_ms < self.watching_since_ms + settings.settle_ms {
            return Err(FailoverBlock::Settling);
        }
        let counted = view.nodes.iter().filter(|(_, n)| !n.value.failed_over);
        let (present, gone): (Vec<_>, Vec<_>) =
            counted.partition(|(n, _)| view.alive.contains_key(n));
        // A node that left before it had copies is no sign that this node is cut off.
        let gone = gone.iter().filter(|(n, _)| self.has_copies(**n));
        if gone.count() > present.len() {
            return Err(FailoverBlock::MostGone);
        }
        let peers = view.alive.iter().filter(|(peer, _)| **peer != node);
        let deaf = peers
            .clone()
            .filter(|(_, p)| p.value.health.unheard.contains(&node));
        if !condemned && deaf.count() * 2 < peers.count() {
            return Err(FailoverBlock::Heard);
        }
        if self.is_busy_beside(node) {
            return Err(FailoverBlock::OneAtATime);
        }
        let failovers = view
            .orders
            .as_ref()
            .map_or(0, |orders| orders.value.failovers);
        if self.replaces(node) && failovers >= settings.failovers_max {
            return Err(FailoverBlock::Quota);
        }
        let gains = |vb: Vb, row: &Row| {
            if row.chain.active() == Some(node) {
                row.chain.nodes().len() > 1 && self.facts.seals_missing(vb, row) == 0
            } else {
                row.has_copy(node)
            }
        };
        if view.rows().any(|(vb, _, row)| gains(vb, row)) {
            Ok(())
        } else {
            Err(FailoverBlock::WouldLose)
        }
    }

    fn has_copies(&self, node: NodeId) -> bool {
        let mut rows = self.facts.view.rows();
        rows.any(|(_, _, row)| row.has_copy(node))
    }

    /// Whether `node` has active copies that others may replace: then its mark counts in the quota. The mark
    /// of a node with replicas only moves nothing, so it cannot start a cascade.
    pub(super) fn replaces(&self, node: NodeId) -> bool {
        let mut rows = self.facts.view.rows();
        rows.any(|(_, _, row)| row.chain.active() == Some(node) && row.chain.nodes().len() > 1)
    }

    /// Whether active copies of another failed node are being replaced. If there are several zones, nodes in
    /// the zone of `node` do not count.
    fn is_busy_beside(&self, node: NodeId) -> bool {
        let view = self.facts.view;
        let zone = |of: &NodeId| view.nodes.get(of).map(|entry| entry.value.zone);
        let zones: BTreeSet<_> = view.nodes.keys().map(zone).collect();
        let together = |other: NodeId| zones.len() > 1 && zone(&other) == zone(&node);
        let mut rows = view.rows();
        rows.any(|(vb, _, row)| {
            let active = row.chain.active().filter(|active| *active != node);
            let failed = active.filter(|active| {
                let entry = view.nodes.get(active);
                entry.is_some_and(|entry| entry.value.state == NodeState::Failed)
            });
            failed.is_some_and(|other| {
                let begun = row.intent.is_some() || self.facts.seals_missing(vb, row) == 0;
                begun && row.chain.nodes().len() > 1 && !together(other)
            })
        })
    }
}
