//! Which moves begin.

use std::collections::BTreeMap;

use crate::agreed::{CHUNK_VBUCKETS, NodeState, View};
use crate::map::{BucketId, Chain, Member, NodeId, Phase, Row, Vb};
use crate::planner::{BucketMap, plan};

/// The chains that the plan wants, and what it was computed for.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    members: Vec<Member>,
    /// With the number of copies of each.
    buckets: Vec<(BucketId, usize)>,
    chains: BTreeMap<BucketId, Vec<Chain>>,
}

/// Nodes that shall have copies.
pub(super) fn members(view: &View) -> Vec<Member> {
    let active = view
        .nodes
        .iter()
        .filter(|(_, e)| e.value.state == NodeState::Active && !e.value.hands_over);
    let member = |(node, entry): (&NodeId, &crate::agreed::Entry<crate::agreed::Node>)| Member {
        node: *node,
        zone: entry.value.zone,
    };
    active.map(member).collect()
}

impl Wanted {
    /// Computes the plan for `members` anew if they or buckets are not what it was computed for.
    pub(super) fn refresh(&mut self, view: &View, members: Vec<Member>) {
        let specs = view.specs.iter();
        let buckets: Vec<_> = specs.map(|(id, spec)| (*id, spec.value.copies)).collect();
        if members == self.members && buckets == self.buckets {
            return;
        }
        let maps: Vec<BucketMap> = view
            .specs
            .iter()
            .map(|(bucket, spec)| {
                let of = |number| {
                    present(
                        view,
                        Vb {
                            bucket: *bucket,
                            number,
                        },
                    )
                };
                BucketMap {
                    chains: (0..spec.value.vbuckets).map(of).collect(),
                    copies: spec.value.copies,
                }
            })
            .collect();
        let chains = plan(&members, &maps);
        self.chains = view.specs.keys().copied().zip(chains).collect();
        (self.members, self.buckets) = (members, buckets);
    }

    /// The chain that is wanted for a vBucket.
    pub(super) fn chain(&self, vb: Vb) -> Option<Chain> {
        let chain = *self.chains.get(&vb.bucket)?.get(usize::from(vb.number))?;
        chain.active().map(|_| chain)
    }

    /// The rows of a new chunk: the first election is to come.
    pub(super) fn new_rows(&self, bucket: BucketId, chunk: u16, vbuckets: u16) -> Option<Vec<Row>> {
        let first = chunk * CHUNK_VBUCKETS;
        let row = |number| {
            Some(Row {
                intent: Some(1),
                ..Row::new(self.chain(Vb { bucket, number })?, 0)
            })
        };
        (first..vbuckets.min(first + CHUNK_VBUCKETS))
            .map(row)
            .collect()
    }
}

/// The chain that a vBucket has, or is moving to.
fn present(view: &View, vb: Vb) -> Chain {
    let row = view.row(vb);
    let chain = row.map(|row| row.change.map_or(row.chain, |(to, _)| to));
    chain.unwrap_or_else(|| Chain::new(&[]).expect("an empty chain"))
}

/// Moves that go on, by node.
#[derive(Debug, Default)]
pub(super) struct Load {
    moves: BTreeMap<NodeId, usize>,
    /// Takeovers, by the node of the old active copy.
    takeovers: BTreeMap<NodeId, usize>,
}

impl Load {
    /// Of all rows.
    pub(super) fn of(view: &View) -> Self {
        let mut load = Self::default();
        for (_, _, row) in view.rows() {
            if let Some((to, phase)) = row.change {
                load.add(row, &to);
                if phase == Phase::TakeOver {
                    load.begin_takeover(row, usize::MAX);
                }
            }
        }
        load
    }

    /// Counts a move of a row to another chain: at the node that sends, and at those that take.
    pub(super) fn add(&mut self, row: &Row, to: &Chain) {
        for node in busy(row, to) {
            *self.moves.entry(node).or_default() += 1;
        }
    }

    /// Whether each of the nodes has fewer moves than `limit`.
    pub(super) fn allows(&self, row: &Row, to: &Chain, limit: usize) -> bool {
        busy(row, to).all(|node| self.moves.get(&node).is_none_or(|count| *count < limit))
    }

    /// Counts a takeover of a row, if its active copy's node has fewer than `limit`: what clients ask for there waits.
    pub(super) fn begin_takeover(&mut self, row: &Row, limit: usize) -> bool {
        let Some(node) = row.chain.active() else {
            return true;
        };
        let count = self.takeovers.entry(node).or_default();
        let allowed = *count < limit;
        *count += usize::from(allowed);
        allowed
    }
}

fn busy<'a>(row: &'a Row, to: &'a Chain) -> impl Iterator<Item = NodeId> + 'a {
    let built = to.nodes().iter().filter(|node| !row.chain.holds(**node));
    row.chain.active().into_iter().chain(built.copied())
}
