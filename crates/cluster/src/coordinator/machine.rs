//! The controller: its input, its rounds, its actions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::decide::{Decision, Facts};
use super::draft::{self, Draft};
use super::hand_over;
use super::moves::{Load, Open, PlannedChains, Takeovers, members};
use super::orders;
use super::policy::Situation;
use super::progress::{LackingVBucket, Progress, Promoted};
use super::renewal::Renewal;
use super::seals::Seals;
use super::unsafely::{self, AcceptedLoss};
use crate::agreed::{CHUNK_VBUCKETS, ClusterId, NodeState, Rebalance, View};
use crate::coord::{Answer, LeaseId, Txn};
use crate::map::{NodeId, Phase, Row, Vb};
use crate::message::{CopyReport, Message, Need, Order};
use crate::settings::Settings;

/// Output of the controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Send a transaction, and pass its answer to [`Coordinator::answered`]. There is one at a time.
    Txn(Txn),
    /// Revoke the lease of a failed node, and call [`Coordinator::revoked`] after that.
    Revoke(NodeId, LeaseId),
    /// Send a message.
    Send(NodeId, Message),
}

/// Input of a round.
#[derive(Clone, Copy, Debug)]
pub struct Tick<'a> {
    /// State of etcd, as this node has seen it.
    pub view: &'a View,
    /// Time of this node's clock.
    pub now_ms: u64,
    /// Start of this node's watch of etcd.
    pub watching_since_ms: u64,
    /// Times when this node last heard the other nodes.
    pub heard: &'a BTreeMap<NodeId, u64>,
}

/// The controller; it is active while this node is elected.
#[derive(Clone, Debug)]
pub struct Coordinator {
    cluster: ClusterId,
    pub(super) settings: Settings,
    /// Create revision of the controller's key; `None` while another node is the controller.
    term: Option<u64>,
    seals: BTreeMap<Vb, Seals>,
    reports: BTreeMap<Vb, CopyReport>,
    pub(super) revoked: BTreeMap<(NodeId, LeaseId), u64>,
    orders: VecDeque<Order>,
    /// Number of transactions that were issued since the node started.
    issued: u64,
    /// Whether the transaction in flight is that of the first order; `None` without one.
    in_flight: Option<bool>,
    /// Revision that the view must reach before the next write.
    wait_revision: u64,
    /// Whether a transaction was refused, because of a change that the view did not have yet.
    refused: bool,
    /// View revision of a refused transaction, and the time for a new attempt with the same view.
    retry: Option<(u64, u64)>,
    /// Revision of each node's last write, and the time when it was seen if the node was not alive then.
    written: BTreeMap<NodeId, (u64, Option<u64>)>,
    pub(super) asked_ms: Option<u64>,
    /// vBuckets whose seals are sent at once, without waiting for the next repetition.
    due: BTreeSet<Vb>,
    /// Rows of moves, each with the revision of the view in which it was first seen.
    moving: BTreeMap<Vb, (Row, u64)>,
    wanted: PlannedChains,
    /// The plan for copies that have no disk where they should be.
    spare: PlannedChains,
    takeovers: Takeovers,
    promoted: BTreeMap<Vb, Promoted>,
    progress: Progress,
}

impl Coordinator {
    /// Creates the controller of a node, inactive.
    pub fn new(cluster: ClusterId, settings: Settings) -> Self {
        Self {
            cluster,
            settings,
            term: None,
            seals: BTreeMap::new(),
            reports: BTreeMap::new(),
            revoked: BTreeMap::new(),
            orders: VecDeque::new(),
            issued: 0,
            in_flight: None,
            wait_revision: 0,
            refused: false,
            retry: None,
            written: BTreeMap::new(),
            asked_ms: None,
            due: BTreeSet::new(),
            moving: BTreeMap::new(),
            wanted: PlannedChains::default(),
            spare: PlannedChains::default(),
            takeovers: Takeovers::default(),
            promoted: BTreeMap::new(),
            progress: Progress::default(),
        }
    }

    /// Returns the progress as of the last round.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Whether a round may find something to do before the next input.
    pub fn is_busy(&self, view: &View) -> bool {
        let gone = |node| !view.alive.contains_key(node);
        self.progress.is_open() || !self.orders.is_empty() || view.nodes.keys().any(gone)
    }

    /// Whether a round has nothing to do before the next input: it does not even repeat a transaction.
    pub(crate) fn is_quiet(&self, view: &View) -> bool {
        let retries = self.refused || self.retry.is_some_and(|(of, _)| of == view.revision);
        let writes = self.in_flight.is_some() || view.revision < self.wait_revision || retries;
        // A new controller asks in its first round.
        self.asked_ms.is_some() && !writes && !self.is_busy(view)
    }

    /// Returns the term as controller.
    pub fn term(&self) -> Option<u64> {
        self.term
    }

    /// Sets the term after this node was elected; `None` if another node is the controller.
    pub fn set_term(&mut self, term: Option<u64>) {
        if self.term != term {
            *self = Self {
                term,
                issued: self.issued,
                ..Self::new(self.cluster, self.settings)
            };
        }
    }

    /// Returns the number of the next transaction of this node.
    pub(crate) fn issue(&mut self) -> u64 {
        self.issued += 1;
        self.issued
    }

    /// Takes an order.
    pub fn order(&mut self, order: Order) {
        if self.term.is_some() && !self.orders.contains(&order) {
            self.orders.push_back(order);
        }
    }

    /// Takes the answer to a transaction of the controller with `term`.
    pub fn answered(&mut self, term: u64, answer: &Answer) {
        if self.term != Some(term) {
            return;
        }
        let was_order = self.in_flight.take();
        self.refused = *answer == Answer::Refused;
        if let Answer::Committed(revision) = answer {
            self.wait_revision = *revision;
            match (was_order, self.orders.front_mut()) {
                // The order continues with the epoch that it raised, until nothing is left to write.
                (Some(true), Some(Order::FailOverUnsafe { epoch, .. })) => *epoch += 1,
                (Some(true), _) => drop(self.orders.pop_front()),
                _ => {}
            }
        }
    }

    /// Records that a lease has ended in etcd.
    pub fn revoked(&mut self, node: NodeId, lease: LeaseId, now_ms: u64) {
        self.revoked.entry((node, lease)).or_insert(now_ms);
    }

    /// Takes a message of a node.
    pub fn message(&mut self, from: NodeId, message: &Message, now_ms: u64) {
        match message {
            Message::Report(copies) => {
                self.reports
                    .extend(copies.iter().map(|copy| (copy.vb, *copy)));
            }
            Message::Sealed {
                vb,
                term,
                position,
                complete,
                kept,
            } => {
                if let Some(seals) = self.seals.get_mut(vb) {
                    self.due.insert(*vb);
                    seals.sealed(from, *term, *position, now_ms);
                    if *complete {
                        seals.note_complete(from, *term);
                    }
                    if *kept {
                        seals.note_kept(from, *term);
                    }
                }
            }
            Message::Stopped { vb, term } => {
                let seals = self.seals.get_mut(vb);
                if seals.is_some_and(|seals| seals.note_stopped(from, *term)) {
                    self.due.insert(*vb);
                }
            }
            Message::SealRefused { vb, term, current } => {
                if let Some(seals) = self.seals.get_mut(vb) {
                    seals.refused(*term, *current);
                }
            }
            Message::Order(order) => self.order(order.clone()),
            _ => {}
        }
    }

    /// Runs a round and returns the next actions. Call it after each input, and every few milliseconds.
    #[must_use]
    pub fn tick(&mut self, tick: &Tick<'_>) -> Vec<Action> {
        let Some(term) = self.term else {
            return Vec::new();
        };
        self.follow_intents(tick);
        let mut actions = Vec::new();
        let known = tick.view.revision >= self.wait_revision;
        if self.in_flight.is_none() && known && !self.waits_to_retry(tick) {
            let (txn, is_order) = self.next_txn(tick, term);
            if let Some(mut txn) = txn {
                let issued = self.issue();
                draft::mark(self.cluster, tick.view, issued, &mut txn);
                self.in_flight = Some(is_order);
                actions.push(Action::Txn(txn));
            }
        }
        let repeat_ms = self.settings.repeat_ms;
        if self.asked_ms.is_none_or(|at| tick.now_ms >= at + repeat_ms) {
            self.asked_ms = Some(tick.now_ms);
            self.reports.retain(|vb, _| tick.view.row(*vb).is_some());
            self.promoted.retain(|vb, _| tick.view.row(*vb).is_some());
            self.ask(tick, &mut actions);
        } else {
            for vb in &self.due {
                if let Some(row) = tick.view.row(*vb) {
                    self.send_seals(tick, *vb, row, &mut actions);
                }
            }
        }
        self.due.clear();
        actions
    }

    /// Whether a transaction was refused and the view is unchanged: the next one would be refused, too.
    fn waits_to_retry(&mut self, tick: &Tick<'_>) -> bool {
        let revision = tick.view.revision;
        if std::mem::take(&mut self.refused) {
            self.retry = Some((revision, tick.now_ms + self.settings.repeat_ms));
        }
        let waits = |(of, until_ms)| of == revision && tick.now_ms < until_ms;
        self.retry.is_some_and(waits)
    }

    /// Prepares for the answers to seals of all intents in the map.
    fn follow_intents(&mut self, tick: &Tick<'_>) {
        let mut found = BTreeSet::new();
        for (vb, _, row) in tick.view.rows() {
            let Some(term) = row.intent else {
                continue;
            };
            found.insert(vb);
            if self.seals.get(&vb).is_none_or(|seals| seals.term != term) {
                self.seals.insert(vb, Seals::new(term, tick.now_ms));
                self.due.insert(vb);
            }
        }
        self.seals.retain(|vb, _| found.contains(vb));
    }

    pub(super) fn facts<'a>(&'a self, tick: &Tick<'a>, row: Option<(Vb, u64, &Row)>) -> Facts<'a> {
        let view = tick.view;
        let report = row.and_then(|(vb, revision, _)| {
            let report = self.reports.get(&vb);
            report.filter(|report| report.revision == revision || self.is_of_move(report))
        });
        let active = row.and_then(|(_, _, row)| row.chain.active());
        let failed = active.and_then(|node| Some((node, view.nodes.get(&node)?.value.revoke?)));
        let orders = view.orders.as_ref();
        Facts {
            settings: &self.settings,
            now_ms: tick.now_ms,
            view,
            seals: row.and_then(|(vb, _, _)| self.seals.get(&vb)),
            need: report.map(|report| report.need),
            revoked_ms: failed.and_then(|key| self.revoked.get(&key).copied()),
            idle: orders.is_none_or(|entry| entry.value.rebalance == Rebalance::Idle),
        }
    }

    /// Whether a report about a move concerns the current row, even if other rows of its chunk changed since.
    fn is_of_move(&self, report: &CopyReport) -> bool {
        let since = self.moving.get(&report.vb);
        let of_row = since.is_some_and(|(_, since)| report.revision >= *since);
        of_row && matches!(report.need, Need::NextPhase(_))
    }

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
    fn next_txn(&mut self, tick: &Tick<'_>, term: u64) -> (Option<Txn>, bool) {
        let view = tick.view;
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
                    let told = AcceptedLoss {
                        epoch,
                        revision,
                        lost,
                    };
                    unsafely::obey(view, &mut draft, *node, told);
                }
                Order::FailOverGracefully(node) => hand_over::obey(view, &mut draft, *node),
                _ => orders::obey(view, &mut draft, order),
            }
            if let Some(txn) = draft.finish() {
                return (Some(txn), true);
            }
            self.orders.pop_front();
        }
        let txn = self.change_nodes(tick, term);
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

    /// Makes the first members of a cluster, and marks failed nodes.
    fn change_nodes(&mut self, tick: &Tick<'_>, term: u64) -> Option<Txn> {
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
        let returning = self.returning(tick);
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
