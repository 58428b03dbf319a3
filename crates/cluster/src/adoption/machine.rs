//! The state machine of an adoption: controller's key, seals, writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::key::{AdoptionKey, KeyState};
use super::writes::{Sealed, transactions};
use crate::agreed::{ClusterId, Controller, Mark, View};
use crate::coord::{Answer, KeyValue, Op, Range, Request};
use crate::map::{NodeId, Vb};
use crate::message::Message;
use crate::promotion::Position;

/// Distance of an adoption's term above all known terms: copies that are given up may have newer ones.
const TERMS_ABOVE: u64 = 1_000;

/// Output of an adoption.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AdoptionOutput {
    /// Send a message to a node.
    Send(NodeId, Message),
    /// Send a request to etcd, and pass its answer to [`Adoption::answered`]. There is one at a time.
    Request(Request),
}

/// A request that is in flight.
#[derive(Clone, Copy, Debug)]
enum InFlight {
    /// A read of all keys.
    Look,
    /// A transaction that writes the key with this term.
    Write(u64),
}

/// An adoption of all copies, on the node that got the operator's order.
#[derive(Clone, Debug)]
pub(crate) struct Adoption {
    cluster: ClusterId,
    key: AdoptionKey,
    /// Epoch that the operator saw, and the nodes that are given up.
    pub(crate) ordered: (u64, Vec<NodeId>),
    /// View of etcd that the node had before the restore.
    known: View,
    mark: Mark,
    /// Nodes that must answer: all that the node knew, or those in etcd if it knew none, without those that
    /// are given up.
    nodes: BTreeSet<NodeId>,
    epoch: u64,
    term: u64,
    /// Answers by node: its number of copies, and the copies that it has listed so far.
    answers: BTreeMap<NodeId, (usize, BTreeMap<Vb, Position>)>,
    /// Copies with rows that cannot be read, as their nodes answered.
    damaged: BTreeSet<(NodeId, Vb)>,
    asked_ms: Option<u64>,
    /// Writes of each transaction that is left, once all copies are sealed.
    left: VecDeque<Vec<Op>>,
    in_flight: Option<InFlight>,
    /// Earliest time for the next read of etcd or refresh of the key; a request that makes progress does not
    /// wait for it.
    next_ms: u64,
    /// Whether copies were adopted, by this adoption or by another one.
    is_done: bool,
}

impl Adoption {
    /// Creates an adoption on a node with the view `known`.
    pub(crate) fn new(
        cluster: ClusterId,
        me: Controller,
        known: &View,
        ordered: (u64, Vec<NodeId>),
        issued: u64,
    ) -> Self {
        let highest = known.rows().map(|(_, _, row)| row.highest_term()).max();
        Self {
            cluster,
            mark: Mark {
                number: 0,
                node: me.node,
                boot: me.boot,
                issued,
            },
            key: AdoptionKey::new(cluster, me),
            nodes: BTreeSet::new(),
            known: known.clone(),
            epoch: ordered.0 + 1,
            ordered,
            term: highest.unwrap_or(0) + TERMS_ABOVE,
            answers: BTreeMap::new(),
            damaged: BTreeSet::new(),
            asked_ms: None,
            left: VecDeque::new(),
            in_flight: None,
            next_ms: 0,
            is_done: false,
        }
    }

    /// Returns the nodes whose copies are not sealed yet, while this adoption has the key.
    pub(crate) fn waits(&self) -> impl Iterator<Item = NodeId> {
        self.open().filter(|_| self.key.term().is_some())
    }

    /// Returns the nodes whose copies are not all known to be sealed.
    fn open(&self) -> impl Iterator<Item = NodeId> {
        let is_open = |node: &&NodeId| {
            let answer = self.answers.get(node);
            answer.is_none_or(|(count, copies)| copies.len() < *count)
        };
        self.nodes.iter().filter(is_open).copied()
    }

    /// Records that copies of a node are sealed; the node has `count` copies.
    pub(crate) fn sealed(
        &mut self,
        from: NodeId,
        (epoch, term): (u64, u64),
        count: usize,
        copies: &[(Vb, Position)],
    ) {
        if (epoch, term) == (self.epoch, self.term) && self.nodes.contains(&from) {
            let answer = self.answers.entry(from).or_default();
            answer.0 = count;
            answer.1.extend(copies.iter().copied());
        }
    }

    /// Records copies of a node with rows that cannot be read.
    pub(crate) fn note_damaged(&mut self, from: NodeId, vbs: &[Vb]) {
        self.damaged.extend(vbs.iter().map(|vb| (from, *vb)));
    }

    /// Records that a node refused: it has seen this epoch, or has a copy of this term. A refusal after all
    /// copies are sealed is ignored: writes may have been made, and copies sealed above their term would
    /// follow no active copy. A copy that started again is elected later.
    pub(crate) fn refused(&mut self, epoch: u64, term: u64) {
        if !self.is_sealed() && (epoch >= self.epoch || term >= self.term) {
            self.epoch = self.epoch.max(epoch + 1);
            self.begin_at(self.term.max(term + TERMS_ABOVE));
        }
    }

    fn is_sealed(&self) -> bool {
        self.open().next().is_none()
    }

    /// Whether etcd has the term, so that copies may be sealed at it.
    fn is_agreed(&self) -> bool {
        self.key.term() == Some(self.term)
    }

    /// Starts again with sealing, at another term.
    fn begin_at(&mut self, term: u64) {
        self.term = term;
        self.answers.clear();
        self.asked_ms = None;
    }

    /// Returns the next actions.
    pub(crate) fn tick(&mut self, now_ms: u64, repeat_ms: u64) -> Vec<AdoptionOutput> {
        let mut actions = self.seal(now_ms, repeat_ms);
        if self.in_flight.is_none()
            && let Some((sent, request)) = self.next_request(now_ms)
        {
            self.in_flight = Some(sent);
            self.next_ms = now_ms + repeat_ms;
            actions.push(AdoptionOutput::Request(request));
        }
        actions
    }

    /// Asks for the copies that are not sealed yet.
    fn seal(&mut self, now_ms: u64, repeat_ms: u64) -> Vec<AdoptionOutput> {
        let soon = self.asked_ms.is_some_and(|at| now_ms < at + repeat_ms);
        if self.is_done || soon || !self.is_agreed() {
            return Vec::new();
        }
        self.asked_ms = Some(now_ms);
        let seal = Message::SealAll {
            told: self.ordered.0,
            epoch: self.epoch,
            term: self.term,
        };
        let ask = |node| AdoptionOutput::Send(node, seal.clone());
        self.open().map(ask).collect()
    }

    fn next_request(&self, now_ms: u64) -> Option<(InFlight, Request)> {
        if self.is_done {
            return None;
        }
        if let Some(ops) = self.left.front() {
            return Some(self.write(ops.clone()));
        }
        let (agreed, due) = (self.is_agreed(), now_ms >= self.next_ms);
        if agreed && self.is_sealed() || self.key.term().is_none() && due {
            let all = Range::Prefix(self.cluster.prefix());
            return Some((InFlight::Look, Request::Get(all)));
        }
        let is_ours = self.key.term().is_some();
        (is_ours && (due || !agreed)).then(|| self.write(Vec::new()))
    }

    fn write(&self, ops: Vec<Op>) -> (InFlight, Request) {
        let txn = self.key.txn(ops, self.term);
        (InFlight::Write(self.term), Request::Txn(txn))
    }

    /// Takes an answer of etcd; may return the next request.
    pub(crate) fn answered(
        &mut self,
        answer: &Answer,
        now_ms: u64,
        lease_ms: u64,
    ) -> Option<Request> {
        match (self.in_flight.take()?, answer) {
            (InFlight::Look, Answer::Got { revision, found }) => {
                let mut read = View::default();
                read.load(self.cluster, *revision, found);
                if read.history.value.adopted > self.ordered.0 {
                    // The last transaction was made though its answer was lost, or another adoption ended.
                    self.is_done = true;
                    return None;
                }
                let (sent, request) = self.take_read(&read, found, (now_ms, lease_ms))?;
                self.in_flight = Some(sent);
                return Some(request);
            }
            (InFlight::Write(term), Answer::Committed(revision)) => {
                self.key.written(*revision, term);
                self.is_done = self.left.pop_front().is_some() && self.left.is_empty();
            }
            // Another adoption has the key, or the result is unknown: read everything again.
            (InFlight::Write(_), _) => {
                self.next_ms = now_ms;
                self.key.doubt();
                self.left.clear();
            }
            (InFlight::Look, _) => {}
        }
        None
    }

    /// Takes a read of etcd. No controller writes once its key belongs to this adoption, and no copy is
    /// sealed at a term that is not in the key. So an adoption that takes over the key seals above all seals
    /// of the former one. When all copies are sealed, everything is written again.
    fn take_read(
        &mut self,
        read: &View,
        found: &[KeyValue],
        (now_ms, lease_ms): (u64, u64),
    ) -> Option<(InFlight, Request)> {
        let knows = self.known.revision > 0;
        let all = if knows { &self.known } else { read }.nodes.keys();
        let all = all.copied().chain([self.mark.node]);
        self.nodes = all.filter(|node| !self.ordered.1.contains(node)).collect();
        let (key, term) = self.key.found(read, now_ms, lease_ms);
        match key {
            KeyState::Ours if term > self.term => self.begin_at(term),
            KeyState::Ours if self.is_agreed() && self.is_sealed() => {
                let sealed = Sealed {
                    epoch: self.epoch,
                    term: self.term,
                    mark: self.mark,
                    copies: self.copies(),
                    damaged: self.damaged.clone(),
                    nodes: self.nodes.iter().copied().collect(),
                    lost: self.ordered.1.clone(),
                };
                self.left = transactions(self.cluster, (&self.known, read), found, &sealed).into();
            }
            KeyState::Ours | KeyState::Waits => {}
            KeyState::Free => {
                if term >= self.term {
                    self.begin_at(term + TERMS_ABOVE);
                }
                return Some(self.write(Vec::new()));
            }
        }
        None
    }

    /// Returns the copies of each vBucket.
    fn copies(&self) -> BTreeMap<Vb, Vec<(NodeId, Position)>> {
        let mut all: BTreeMap<Vb, Vec<(NodeId, Position)>> = BTreeMap::new();
        for (node, (_, copies)) in &self.answers {
            for (vb, position) in copies {
                all.entry(*vb).or_default().push((*node, *position));
            }
        }
        all
    }
}
