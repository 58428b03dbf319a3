//! The controller: its input, its rounds, its actions.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::decide::DecisionInput;
use super::draft;
use super::moves::{PlannedChains, Takeovers};
use super::progress::{Progress, Promoted};
use super::seals::Seals;
use crate::agreed::{ClusterId, Rebalance, View};
use crate::coord::{Answer, LeaseId, Txn};
use crate::map::{NodeId, Row, Vb};
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
    pub(super) cluster: ClusterId,
    pub(super) settings: Settings,
    /// Create revision of the controller's key; `None` while another node is the controller.
    term: Option<u64>,
    pub(super) seals: BTreeMap<Vb, Seals>,
    reports: BTreeMap<Vb, CopyReport>,
    pub(super) revoked: BTreeMap<(NodeId, LeaseId), u64>,
    pub(super) orders: VecDeque<Order>,
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
    pub(super) written: BTreeMap<NodeId, (u64, Option<u64>)>,
    pub(super) asked_ms: Option<u64>,
    /// vBuckets whose seals are sent at once, without waiting for the next repetition.
    due: BTreeSet<Vb>,
    /// Rows of moves, each with the revision of the view in which it was first seen.
    pub(super) moving: BTreeMap<Vb, (Row, u64)>,
    pub(super) wanted: PlannedChains,
    /// The plan for copies that have no disk where they should be.
    pub(super) spare: PlannedChains,
    pub(super) takeovers: Takeovers,
    pub(super) promoted: BTreeMap<Vb, Promoted>,
    pub(super) progress: Progress,
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

    pub(super) fn facts<'a>(
        &'a self,
        tick: &Tick<'a>,
        row: Option<(Vb, u64, &Row)>,
    ) -> DecisionInput<'a> {
        let view = tick.view;
        let report = row.and_then(|(vb, revision, _)| {
            let report = self.reports.get(&vb);
            report.filter(|report| report.revision == revision || self.is_of_move(report))
        });
        let active = row.and_then(|(_, _, row)| row.chain.active());
        let failed = active.and_then(|node| Some((node, view.nodes.get(&node)?.value.revoke?)));
        let orders = view.orders.as_ref();
        DecisionInput {
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
}
