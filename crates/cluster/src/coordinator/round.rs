//! The transaction of a round: an order, states of nodes, new maps, or rows.

use std::collections::{BTreeMap, BTreeSet};

use super::decide::Decision;
use super::draft::{self, Draft};
use super::hand_over;
use super::machine::{Coordinator, Tick};
use super::moves::{Load, Open, members};
use super::orders;
use super::policy::Situation;
use super::progress::{LackingVBucket, Progress, Promoted};
use super::renewal::Renewal;
use super::unsafe_failover::{self, AcceptedLoss};
use crate::agreed::{CHUNK_VBUCKETS, NodeState, Rebalance, View};
use crate::coord::Txn;
use crate::map::{NodeId, Phase, Row, Vb};
use crate::message::Order;

impl Coordinator {
    /// Records since which revision each row of a move is unchanged. Every such row is seen here before the next one.
    fn follow_moves(&mut self, view: &View) {
        let before = std::mem::take(&mut self.moving);
        let rows = view.rows().filter(|(_, _, row)| row.change.is_some());
        let since = rows.map(|(vb, version, row)| {
            let same = before.get(&vb).filter(|(held, _)| held == row);
            (
                vb,
                (*row, same.map_or(version.revision, |(_, since)| *since)),
            )
        });
        self.moving = since.collect();
    }

    /// Returns the next transaction, and whether it is that of the first order.
    pub(super) fn next_txn(&mut self, tick: &Tick<'_>, term: u64) -> (Option<Txn>, bool) {
        let view = tick.view;
        let returning = self.returning(tick);
        while let Some(order) = self.orders.front() {
            let mut draft = Draft::new(self.cluster, view, term);
            match order {
                Order::FailOverUnsafe {
                    node,
                    epoch,
                    revision,
                    lost,
                } => {
                    let (epoch, revision) = (*epoch, *revision);
                    let accepted = AcceptedLoss {
                        epoch,
                        revision,
                        lost,
                    };
                    unsafe_failover::obey(view, &mut draft, *node, accepted);
                }
                Order::FailOverGracefully(node) => hand_over::obey(view, &mut draft, *node),
                _ => orders::obey(view, &mut draft, order, &self.gone(tick, &returning)),
            }
            if let Some(txn) = draft.finish() {
                return (Some(txn), true);
            }
            self.orders.pop_front();
        }
        let txn = self.change_nodes(tick, term, returning);
        let txn = txn.or_else(|| self.make_maps(tick, term));
        (txn.or_else(|| self.change_rows(tick, term)), false)
    }

    /// Returns the nodes whose keys were written recently, while they were not alive. Writes from before this
    /// node became the controller count as old.
    fn returning(&mut self, tick: &Tick<'_>) -> BTreeSet<NodeId> {
        let first = self.written.is_empty();
        let before = std::mem::take(&mut self.written);
        for (node, entry) in &tick.view.nodes {
            let revision = entry.mod_revision;
            let known = before.get(node).filter(|(of, _)| *of == revision);
            let old = first || tick.view.alive.contains_key(node);
            let now = (revision, (!old).then_some(tick.now_ms));
            self.written.insert(*node, known.copied().unwrap_or(now));
        }
        let limit_ms = self.settings.lease_ms;
        let soon = |since: &Option<u64>| since.is_some_and(|since| tick.now_ms < since + limit_ms);
        let returning = self.written.iter().filter(|(_, (_, since))| soon(since));
        returning.map(|(node, _)| *node).collect()
    }

    /// Returns the nodes that have not been alive for the time of a lease, except those that are returning.
    fn gone(&self, tick: &Tick<'_>, returning: &BTreeSet<NodeId>) -> BTreeSet<NodeId> {
        let has_watched = tick.now_ms >= tick.watching_since_ms + self.settings.lease_ms;
        let is_gone =
            |node: &&NodeId| !tick.view.alive.contains_key(*node) && !returning.contains(*node);
        let gone = tick.view.nodes.keys().filter(is_gone);
        gone.filter(|_| has_watched).copied().collect()
    }

    /// Makes the first members of a cluster, and marks failed nodes.
    fn change_nodes(
        &mut self,
        tick: &Tick<'_>,
        term: u64,
        returning: BTreeSet<NodeId>,
    ) -> Option<Txn> {
        let view = tick.view;
        let mut draft = Draft::new(self.cluster, view, term);
        let (none, empty) = (members(view).is_empty(), view.specs.is_empty());
        for node in view.alive.keys() {
            let state = view.nodes.get(node).map(|entry| entry.value.state);
            // Without buckets nothing has to move.
            if none || empty && state == Some(NodeState::New) {
                orders::set_state(view, &mut draft, *node, NodeState::Active);
            }
        }
        hand_over::end(view, &mut draft);
        let stuck = view.rows().filter(|(vb, version, row)| {
            let facts = self.facts(tick, Some((*vb, version.revision, row)));
            row.intent.is_some() && facts.is_stuck(*vb, row)
        });
        let situation = Situation {
            facts: self.facts(tick, None),
            watching_since_ms: tick.watching_since_ms,
            heard: tick.heard,
            stuck: stuck.filter_map(|(_, _, row)| row.chain.active()).collect(),
            returning,
        };
        let nodes = view.nodes.keys();
        let judged = nodes.filter_map(|node| Some((*node, situation.judge(*node)?)));
        let judged: Vec<_> = judged.collect();
        let failed = judged.iter().find(|(_, verdict)| verdict.is_ok());
        if let Some((node, _)) = failed {
            draft = Draft::new(self.cluster, view, term);
            orders::fail(view, &mut draft, *node);
            let mut orders = orders::current(view);
            orders.failovers += u32::from(situation.replaces(*node));
            if orders.rebalance == Rebalance::Running {
                orders.rebalance = Rebalance::Paused;
            }
            orders::put(view, &mut draft, &orders);
        }
        let held = judged
            .iter()
            .filter_map(|(node, held)| Some((*node, held.err()?)));
        self.progress.held = held.collect();
        draft.finish()
    }

    /// Writes the maps of new buckets. No copy of them is on a full disk.
    fn make_maps(&mut self, tick: &Tick<'_>, term: u64) -> Option<Txn> {
        let view = tick.view;
        let lacks = |bucket, chunk| !view.maps.contains_key(&(bucket, chunk));
        let mut draft = Draft::new(self.cluster, view, term);
        let mut left = draft::CHUNKS_MAX;
        for (bucket, spec) in &view.specs {
            let vbuckets = spec.value.vbuckets;
            for chunk in 0..vbuckets.div_ceil(CHUNK_VBUCKETS) {
                if left > 0 && lacks(*bucket, chunk) {
                    self.wanted.refresh_with_space(view);
                    let rows = self.wanted.new_rows(*bucket, chunk, vbuckets)?;
                    draft.new_chunk(*bucket, chunk, rows);
                    left -= 1;
                }
            }
        }
        self.spare.leave_full_disks(view, &mut draft);
        draft.finish()
    }

    /// Makes progress with elections and moves.
    fn change_rows(&mut self, tick: &Tick<'_>, term: u64) -> Option<Txn> {
        let view = tick.view;
        let rebalance = orders::current(view).rebalance;
        if rebalance == Rebalance::Running {
            self.wanted.refresh(view, members(view));
        }
        self.follow_moves(view);
        let (mut draft, mut load) = (Draft::new(self.cluster, view, term), Load::of(view));
        let mut progress = Progress {
            held: std::mem::take(&mut self.progress.held),
            ..Progress::default()
        };
        let (mut promoted, mut ready, mut going) = (Vec::new(), Vec::new(), 0);
        for (vb, version, row) in view.rows() {
            progress.elections += usize::from(row.intent.is_some());
            progress.moves += usize::from(row.change.is_some());
            let lacks = |(to, _)| view.lacks_space(vb.bucket, row, &to);
            progress.moves_without_space += usize::from(row.change.is_some_and(lacks));
            let starves = |(to, _)| view.lacks_memory(vb.bucket, &to);
            progress.moves_without_memory += usize::from(row.change.is_some_and(starves));
            let facts = self.facts(tick, Some((vb, version.revision, row)));
            let mut decision = facts.decide(vb, row);
            if decision == Decision::Keep && row.change.is_none() {
                decision = self.begin_move((vb, row), view, &mut load, &mut progress);
            }
            going += usize::from(row.phase() == Some(Phase::TakeOver));
            let takes_over = |to: &Row| to.phase() == Some(Phase::TakeOver) && row.intent.is_none();
            match decision {
                Decision::Keep => {}
                Decision::Write(new) if takes_over(&new) => ready.push((vb, new)),
                Decision::Refuse(missing) => progress.waiting.push(LackingVBucket { vb, missing }),
                Decision::Write(_) | Decision::WriteIfFailed(..) if !draft.takes(vb) => {}
                Decision::Write(new) => {
                    promoted.extend(self.promoted_by(vb, row, &new));
                    draft.row(vb, new);
                }
                Decision::WriteIfFailed(new, node) => {
                    promoted.extend(self.promoted_by(vb, row, &new));
                    draft.row(vb, new);
                    draft.require_node(node);
                }
            }
        }
        self.begin_takeovers(tick, (&ready, going), &progress, &mut draft);
        // An election may end with a chain that the plan does not want.
        let open = progress.moves + progress.moves_left + progress.elections;
        if rebalance == Rebalance::Running && open == 0 {
            let mut orders = orders::current(view);
            orders.rebalance = Rebalance::Idle;
            orders::put(view, &mut draft, &orders);
        }
        self.promoted
            .extend(promoted.into_iter().map(|one| (one.vb, one)));
        progress.promoted = self.promoted.values().copied().collect();
        self.progress = progress;
        draft.finish()
    }

    /// Writes the rows of takeovers that are `ready`, if they shall begin while `going` takeovers run.
    fn begin_takeovers(
        &mut self,
        tick: &Tick<'_>,
        (ready, going): (&[(Vb, Row)], usize),
        progress: &Progress,
        draft: &mut Draft<'_>,
    ) {
        let others = ready.len() + going + progress.moves_without_space;
        let mut by_node = BTreeMap::new();
        for node in ready.iter().filter_map(|(_, row)| row.chain.active()) {
            *by_node.entry(node).or_default() += 1;
        }
        let open = Open {
            ready: by_node,
            going,
            coming: (progress.moves + progress.moves_left).saturating_sub(others),
        };
        if self.takeovers.begin(tick.now_ms, &open, &self.settings) {
            for (vb, row) in ready {
                if draft.takes(*vb) {
                    draft.row(*vb, *row);
                }
            }
        }
    }

    /// Returns the promotion if a new row ends an unsafe failover.
    fn promoted_by(&self, vb: Vb, row: &Row, new: &Row) -> Option<Promoted> {
        row.without.filter(|_| new.intent.is_none())?;
        let node = new.chain.active()?;
        let position = self.seals.get(&vb)?.answer(node)?;
        Some(Promoted {
            vb,
            node,
            term: new.term,
            seqno: position.seqno,
        })
    }

    /// Decides on a move of a row without one. First come damaged copies, then the hand-over of active
    /// copies, then copies that were never made, then the plan.
    fn begin_move(
        &mut self,
        (vb, row): (Vb, &Row),
        view: &View,
        load: &mut Load,
        progress: &mut Progress,
    ) -> Decision {
        let runs = orders::current(view).rebalance == Rebalance::Running;
        let planned = || self.wanted.chain(vb).filter(|to| runs && *to != row.chain);
        let replaced = self.spare.replacement(view, vb, row);
        let wanted = hand_over::taken_over(view, vb, row);
        let wanted = wanted.or(replaced).or_else(planned);
        let renewal = Renewal::of(view, vb, row);
        let new = match (renewal, wanted) {
            (Renewal::Row(new), _) => new,
            (Renewal::None | Renewal::Waits, None) => return Decision::Keep,
            (Renewal::None | Renewal::Waits, Some(to)) => Row {
                change: Some((to, Phase::Build)),
                ..*row
            },
        };
        let Some((to, _)) = new.change else {
            // No damaged copy is left to renew.
            return Decision::Write(new);
        };
        progress.moves_left += 1;
        if view.lacks_space(vb.bucket, row, &to) {
            progress.moves_without_space += 1;
            return Decision::Keep;
        }
        let waits = row.intent.is_some() || renewal == Renewal::Waits;
        if waits || !load.allows(row, &to, &self.settings) {
            return Decision::Keep;
        }
        load.add(row, &to);
        Decision::Write(new)
    }
}
