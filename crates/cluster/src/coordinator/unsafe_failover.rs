//! Unsafe failover: an operator gives up copies if too few are left.
//!
//! The order names the epoch and revision that the operator saw, and the nodes that are given up: it gives up
//! nothing else. Each of its transactions raises the epoch, so an order that comes late or twice has no
//! effect. The rows contain the copies that are given up, so this ends with their elections.

use super::draft::Draft;
use super::orders;
use crate::agreed::{CHUNK_VBUCKETS, Key, Meta, View};
use crate::map::{Chain, NodeId, Row, Vb};
use crate::message::Order;
use crate::quorum::seals_needed;

/// A vBucket whose best remaining copy an unsafe failover promotes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForcedPromotion {
    /// The vBucket.
    pub vb: Vb,
    /// Number of copies that an election lacks.
    pub missing: usize,
    /// Nodes whose copies are given up.
    pub without: Chain,
}

/// Returns the vBuckets that an unsafe failover of `node` forces: too few copies besides the active one are left
/// for an election, but one copy is. The active copy is on the node, or it restarted and its election waits for
/// the node's copy. Empty if the node is well.
pub fn forced(view: &View, node: NodeId) -> Vec<ForcedPromotion> {
    if view.is_well(node) {
        return Vec::new();
    }
    let rows = view.rows().filter_map(|(vb, _, row)| {
        let nodes = row.chain.nodes();
        let gone: Vec<NodeId> = nodes
            .iter()
            .filter(|n| !view.is_well(**n))
            .copied()
            .collect();
        let sealable = nodes.iter().skip(1).filter(|n| view.is_well(**n)).count();
        let missing = seals_needed(nodes.len()).saturating_sub(sealable);
        let active = row.chain.active()?;
        let waits = row.intent.is_some() && gone.contains(&node) && !gone.contains(&active);
        let takes = (active == node || waits) && gone.len() < nodes.len() && missing > 0;
        let without = Chain::new(&gone).filter(|_| takes)?;
        Some(ForcedPromotion {
            vb,
            missing,
            without,
        })
    });
    rows.collect()
}

/// Returns the order of an unsafe failover of `node` in the present state; an ordinary failover if the node is well.
pub fn unsafe_order(view: &View, node: NodeId) -> Order {
    if view.is_well(node) {
        return Order::FailOver(node);
    }
    let nodes = view.nodes.keys().copied();
    Order::FailOverUnsafe {
        node,
        epoch: view.epoch(),
        revision: view.revision,
        lost: nodes.filter(|node| !view.is_well(*node)).collect(),
    }
}

/// The state that an operator saw.
#[derive(Clone, Copy)]
pub(super) struct AcceptedLoss<'a> {
    pub(super) epoch: u64,
    pub(super) revision: u64,
    pub(super) lost: &'a [NodeId],
}

/// Writes an unsafe failover, as much of it as fits into a transaction.
pub(super) fn obey(view: &View, draft: &mut Draft<'_>, node: NodeId, accepted: AcceptedLoss<'_>) {
    if view.epoch() != accepted.epoch || view.is_well(node) || !view.nodes.contains_key(&node) {
        return;
    }
    orders::fail_over(view, draft, node);
    let is_lost = |node: &NodeId| accepted.lost.contains(node);
    let mut raises = false;
    for ForcedPromotion { vb, without, .. } in forced(view, node) {
        let chunk = view.maps.get(&(vb.bucket, vb.number / CHUNK_VBUCKETS));
        let old = chunk.is_some_and(|chunk| chunk.mod_revision <= accepted.revision);
        let takes = old && without.nodes().iter().all(is_lost) && draft.takes(vb);
        let Some(row) = view.row(vb).filter(|_| takes) else {
            continue;
        };
        // The operator saw nothing about a vBucket that had no copy left then, or whose active copy was gone elsewhere.
        let had_none = row.chain.nodes().iter().all(is_lost);
        let active = row.chain.active().filter(|active| *active != node);
        if had_none || active.as_ref().is_some_and(is_lost) || row.without == Some(without) {
            continue;
        }
        for gone in without.nodes().iter().filter(|gone| **gone != node) {
            draft.require_alive(*gone);
        }
        draft.row(vb, ordered(row, without));
        raises = true;
    }
    if raises {
        raise_epoch(view, draft);
    }
}

/// Returns a row with an ordered election. Seals of a running election count.
fn ordered(row: &Row, without: Chain) -> Row {
    let intent = row.intent.unwrap_or_else(|| row.highest_term() + 1);
    Row {
        intent: Some(intent),
        without: Some(without),
        ..*row
    }
}

fn raise_epoch(view: &View, draft: &mut Draft<'_>) {
    if let Some(meta) = &view.meta {
        let value = Meta {
            epoch: meta.value.epoch + 1,
            ..meta.value.clone()
        };
        draft.put(Key::Meta, meta.mod_revision, &value);
    }
}
