//! Choice of the moves that begin.

use std::collections::BTreeMap;

use super::draft::Draft;
use crate::agreed::{CHUNK_VBUCKETS, NodeState, View};
use crate::map::{BucketId, Chain, Member, NodeId, Phase, Row, Vb};
use crate::planner::{BucketChains, plan};
use crate::settings::Settings;

/// The planned chains, and the input of the plan.
#[derive(Clone, Debug, Default)]
pub(super) struct PlannedChains {
    members: Vec<Member>,
    /// Buckets with their numbers of copies.
    buckets: Vec<(BucketId, usize)>,
    chains: BTreeMap<BucketId, Vec<Chain>>,
}

/// Returns the nodes that shall have copies.
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

/// Returns the number of vBuckets of which a rebalance would move copies, or give the active role to another one.
pub fn misplaced(view: &View) -> usize {
    let mut wanted = PlannedChains::default();
    wanted.refresh(view, members(view));
    let rows = view.rows();
    let moves =
        rows.filter(|(vb, ..)| wanted.chain(*vb).is_some_and(|to| to != present(view, *vb)));
    moves.count()
}

impl PlannedChains {
    /// Computes the plan again if members or buckets changed.
    pub(super) fn refresh(&mut self, view: &View, members: Vec<Member>) {
        let specs = view.specs.iter();
        let buckets: Vec<_> = specs.map(|(id, spec)| (*id, spec.value.copies)).collect();
        if members == self.members && buckets == self.buckets {
            return;
        }
        let maps: Vec<BucketChains> = view
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
                BucketChains {
                    chains: (0..spec.value.vbuckets).map(of).collect(),
                    copies: spec.value.copies,
                }
            })
            .collect();
        let chains = plan(&members, &maps);
        self.chains = view.specs.keys().copied().zip(chains).collect();
        (self.members, self.buckets) = (members, buckets);
    }

    /// Computes the plan without the nodes whose disks are full.
    pub(super) fn refresh_with_space(&mut self, view: &View) {
        let mut members = members(view);
        members.retain(|member| !view.is_full(member.node));
        self.refresh(view, members);
    }

    /// Computes the plan without the nodes that have no disk for any of the buckets.
    fn refresh_elsewhere(&mut self, view: &View) {
        let lacks = |node| {
            let mut buckets = view.specs.keys();
            view.is_full(node) || buckets.any(|bucket| view.lacks(node, *bucket))
        };
        let mut members = members(view);
        members.retain(|member| !lacks(member.node));
        self.refresh(view, members);
    }

    /// Plans rows again whose disk proves to be full before their first election: no copy of them was active.
    pub(super) fn leave_full_disks(&mut self, view: &View, draft: &mut Draft<'_>) {
        let is_new = |row: &Row| row.term == 0 && row.intent.is_some() && row.without.is_none();
        for (vb, _, row) in view.rows().filter(|(_, _, row)| is_new(row)) {
            let lacks_disk = |chain: &Chain| {
                let active = chain.active();
                active.is_some_and(|node| view.has_no_disk(node, vb.bucket))
            };
            if !lacks_disk(&row.chain) {
                continue;
            }
            self.refresh_elsewhere(view);
            // If all disks are full, the plan is the present chain.
            let chain = self.chain(vb).filter(|chain| !lacks_disk(chain));
            if let (Some(chain), true) = (chain, draft.takes(vb)) {
                let intent = Some(row.highest_term() + 1);
                let new = Row {
                    chain,
                    intent,
                    ..*row
                };
                draft.row(vb, new);
            }
        }
    }

    /// Returns a chain of the same length without nodes that cannot make the bucket; `None` if none is needed, or possible.
    pub(super) fn replacement(&mut self, view: &View, vb: Vb, row: &Row) -> Option<Chain> {
        let lacks = |chain: &Chain| {
            let mut nodes = chain.nodes().iter();
            nodes.any(|node| view.lacks(*node, vb.bucket))
        };
        if !lacks(&row.chain) {
            return None;
        }
        self.refresh_elsewhere(view);
        let is_as_long = |to: &Chain| to.nodes().len() == row.chain.nodes().len();
        self.chain(vb).filter(|to| is_as_long(to) && !lacks(to))
    }

    /// Returns the planned chain of a vBucket.
    pub(super) fn chain(&self, vb: Vb) -> Option<Chain> {
        let chain = *self.chains.get(&vb.bucket)?.get(usize::from(vb.number))?;
        chain.active().map(|_| chain)
    }

    /// Returns the rows of a new chunk, before their first election.
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

/// Returns the chain of a vBucket, or the chain to which it is moving.
fn present(view: &View, vb: Vb) -> Chain {
    let row = view.row(vb);
    let chain = row.map(|row| row.change.map_or(row.chain, |(to, _)| to));
    chain.unwrap_or_else(|| Chain::new(&[]).expect("an empty chain"))
}

/// Running moves, by node.
#[derive(Debug, Default)]
pub(super) struct Load {
    /// Moves whose new copies are being filled, by the sending node and by the receiving ones.
    filling: BTreeMap<NodeId, usize>,
    /// All other moves, by the node of the old active copy.
    filled: BTreeMap<NodeId, usize>,
}

impl Load {
    /// Counts the moves in all rows. A move that waits for space on a disk does not take the place of another one.
    pub(super) fn of(view: &View) -> Self {
        let mut load = Self::default();
        for (vb, _, row) in view.rows() {
            match (row.change, row.chain.active()) {
                (Some((to, _)), _) if view.lacks_space(vb.bucket, row, &to) => {}
                (Some((to, phase)), _) if phase < Phase::TwoChains => load.add(row, &to),
                (Some(_), Some(active)) => *load.filled.entry(active).or_default() += 1,
                _ => {}
            }
        }
        load
    }

    /// Counts a new move of a row to another chain.
    pub(super) fn add(&mut self, row: &Row, to: &Chain) {
        for node in busy(row, to) {
            *self.filling.entry(node).or_default() += 1;
        }
    }

    /// Whether a move of a row to another chain may begin.
    pub(super) fn allows(&self, row: &Row, to: &Chain, settings: &Settings) -> bool {
        let fewer = |of: &BTreeMap<NodeId, usize>, node, limit| {
            of.get(&node).is_none_or(|count| *count < limit)
        };
        let mut busy = busy(row, to);
        let active = row.chain.active();
        busy.all(|node| fewer(&self.filling, node, settings.moves_per_node))
            && active.is_none_or(|node| fewer(&self.filled, node, 2 * settings.takeovers_per_node))
    }
}

fn busy<'a>(row: &'a Row, to: &'a Chain) -> impl Iterator<Item = NodeId> + 'a {
    let built = to.nodes().iter().filter(|node| !row.chain.holds(**node));
    row.chain.active().into_iter().chain(built.copied())
}

/// Batches of takeovers: clients get a new map each time that some takeovers end.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Takeovers {
    /// Start of the present wait for more takeovers.
    since_ms: Option<u64>,
}

/// Counts of takeovers.
pub(super) struct Open {
    /// Takeovers that could begin, by the node of their old active copies.
    pub(super) ready: BTreeMap<NodeId, usize>,
    /// Takeovers in progress.
    pub(super) going: usize,
    /// Moves that will be ready later.
    pub(super) coming: usize,
}

impl Takeovers {
    /// Whether the ready takeovers begin. They begin if none is in progress, and a node has enough of them or
    /// no more moves are coming. They also begin if one of them has waited for long enough.
    pub(super) fn begin(&mut self, now_ms: u64, open: &Open, settings: &Settings) -> bool {
        if open.ready.is_empty() {
            self.since_ms = None;
            return false;
        }
        let since_ms = *self.since_ms.get_or_insert(now_ms);
        let enough = |count: &usize| *count >= settings.takeovers_per_node;
        let all = open.coming == 0 || open.ready.values().any(enough);
        let begin = all && open.going == 0 || now_ms >= since_ms + settings.together_ms;
        if begin {
            self.since_ms = None;
        }
        begin
    }
}
