//! Failover although too few copies are left: what an operator gives up.
//!
//! The order names the epoch and the revision by which the operator was told what may be lost, and the nodes that are given
//! up: it takes nothing that was not told. Each of its transactions raises the epoch, so that an order that comes late or
//! twice does nothing; and the rows have what is given up, so that it ends with their elections.

use super::draft::Draft;
use super::orders;
use crate::agreed::{CHUNK_VBUCKETS, Key, Meta, View};
use crate::map::{Chain, NodeId, Row, Vb};
use crate::message::Order;
use crate::quorum::seals_needed;

/// A vBucket of which an unsafe failover promotes the best copy that is left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forced {
    /// The vBucket.
    pub vb: Vb,
    /// Copies that an election lacks.
    pub missing: usize,
    /// Nodes with copies that are given up.
    pub without: Chain,
}

/// What an unsafe failover of `node` takes: vBuckets with an active copy there that cannot be elected for lack of copies,
/// and have a copy left. None if the node is well.
pub fn forced(view: &View, node: NodeId) -> Vec<Forced> {
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
        let others = nodes.len() - gone.len();
        let missing = seals_needed(nodes.len()).saturating_sub(others);
        let takes = row.chain.active() == Some(node) && others > 0 && missing > 0;
        let without = Chain::new(&gone).filter(|_| takes)?;
        Some(Forced {
            vb,
            missing,
            without,
        })
    });
    rows.collect()
}

/// The order of an unsafe failover of `node`, by what there is now; an ordinary one for a node that is well.
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

/// What an operator was told.
#[derive(Clone, Copy)]
pub(super) struct Told<'a> {
    pub(super) epoch: u64,
    pub(super) revision: u64,
    pub(super) lost: &'a [NodeId],
}

/// Writes what an unsafe failover asks for, as much as fits.
pub(super) fn obey(view: &View, draft: &mut Draft<'_>, node: NodeId, told: Told<'_>) {
    if view.epoch() != told.epoch || view.is_well(node) || !view.nodes.contains_key(&node) {
        return;
    }
    orders::fail_over(view, draft, node);
    let is_lost = |node: &NodeId| told.lost.contains(node);
    let mut raises = false;
    for Forced { vb, without, .. } in forced(view, node) {
        let chunk = view.maps.get(&(vb.bucket, vb.number / CHUNK_VBUCKETS));
        let old = chunk.is_some_and(|chunk| chunk.mod_revision <= told.revision);
        let takes = old && without.nodes().iter().all(is_lost) && draft.takes(vb);
        let Some(row) = view.row(vb).filter(|_| takes) else {
            continue;
        };
        // Nothing was told of a vBucket that had no copy left then.
        let had_none = row.chain.nodes().iter().all(is_lost);
        if had_none || row.without == Some(without) {
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

/// A row whose election an operator ordered. Seals of an election that goes on count.
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
