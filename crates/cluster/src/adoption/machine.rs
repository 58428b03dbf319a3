//! The order of an adoption: the controller's key, seals, writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::key::{AdoptionKey, Found};
use super::writes::{Sealed, transactions};
use crate::agreed::{ClusterId, Controller, Mark, View};
use crate::coord::{Answer, KeyValue, Op, Range, Request};
use crate::map::{NodeId, Vb};
use crate::message::Message;
use crate::promotion::Position;

/// How far the term of an adoption is above all that are known: copies that are given up may have newer ones.
const TERMS_ABOVE: u64 = 1_000;

/// What an adoption wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// A message.
    Send(NodeId, Message),
    /// A request, whose answer is told to [`Adoption::answered`]. There is one at a time.
    Request(Request),
}

/// A request that is under way.
#[derive(Clone, Copy, Debug)]
enum Sent {
    /// A read of everything.
    Look,
    /// A transaction that writes the key, with this term.
    Write(u64),
}

/// An adoption of all copies, on the node that an operator gave the order to.
#[derive(Clone, Debug)]
pub(crate) struct Adoption {
    cluster: ClusterId,
    key: AdoptionKey,
    /// The epoch that the operator was told, and the nodes that are given up.
    pub(crate) told: (u64, Vec<NodeId>),
    /// What the node knew of etcd before it was restored.
    known: View,
    mark: Mark,
    /// Nodes that must answer: all that the node knew, or those in etcd if it knew nothing, but those that are given up.
    nodes: BTreeSet<NodeId>,
    epoch: u64,
    term: u64,
    /// Of each node how many copies it has, and those that it told.
    answers: BTreeMap<NodeId, (usize, BTreeMap<Vb, Position>)>,
    asked_ms: Option<u64>,
    /// The writes of each transaction that is left, once all is sealed.
    left: VecDeque<Vec<Op>>,
    in_flight: Option<Sent>,
    /// The key is not written, and etcd not read, before that, but to go on.
    next_ms: u64,
    /// Copies were adopted, by this adoption or another one.
    is_done: bool,
}

impl Adoption {
    /// By a node that has seen `known`.
    pub(crate) fn new(
        cluster: ClusterId,
        me: Controller,
        known: &View,
        told: (u64, Vec<NodeId>),
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
            epoch: told.0 + 1,
            told,
            term: highest.unwrap_or(0) + TERMS_ABOVE,
            answers: BTreeMap::new(),
            asked_ms: None,
            left: VecDeque::new(),
            in_flight: None,
            next_ms: 0,
            is_done: false,
        }
    }

    /// Nodes whose copies hold it up.
    pub(crate) fn waits(&self) -> impl Iterator<Item = NodeId> {
        self.open().filter(|_| self.key.term().is_some())
    }

    /// Nodes whose copies are not known to be sealed.
    fn open(&self) -> impl Iterator<Item = NodeId> {
        let is_open = |node: &&NodeId| {
            let answer = self.answers.get(node);
            answer.is_none_or(|(count, copies)| copies.len() < *count)
        };
        self.nodes.iter().filter(is_open).copied()
    }

    /// Copies of a node are sealed; it has `count`.
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

    /// A node has seen this epoch, or has a copy of this term. Once all are sealed that comes too late: what is being written
    /// may be there, and copies that are sealed above it would follow none. A copy that started again is elected later.
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

    /// Copies are to be sealed at another term.
    fn begin_at(&mut self, term: u64) {
        self.term = term;
        self.answers.clear();
        self.asked_ms = None;
    }

    /// What is to be done now.
    pub(crate) fn tick(&mut self, now_ms: u64, repeat_ms: u64) -> Vec<Action> {
        let mut actions = self.seal(now_ms, repeat_ms);
        if self.in_flight.is_none()
            && let Some((sent, request)) = self.next_request(now_ms)
        {
            self.in_flight = Some(sent);
            self.next_ms = now_ms + repeat_ms;
            actions.push(Action::Request(request));
        }
        actions
    }

    /// Asks for copies that are not sealed yet.
    fn seal(&mut self, now_ms: u64, repeat_ms: u64) -> Vec<Action> {
        let soon = self.asked_ms.is_some_and(|at| now_ms < at + repeat_ms);
        if self.is_done || soon || !self.is_agreed() {
            return Vec::new();
        }
        self.asked_ms = Some(now_ms);
        let seal = Message::SealAll {
            told: self.told.0,
            epoch: self.epoch,
            term: self.term,
        };
        let ask = |node| Action::Send(node, seal.clone());
        self.open().map(ask).collect()
    }

    fn next_request(&self, now_ms: u64) -> Option<(Sent, Request)> {
        if self.is_done {
            return None;
        }
        if let Some(ops) = self.left.front() {
            return Some(self.write(ops.clone()));
        }
        let (agreed, due) = (self.is_agreed(), now_ms >= self.next_ms);
        if agreed && self.is_sealed() || self.key.term().is_none() && due {
            let all = Range::Prefix(self.cluster.prefix());
            return Some((Sent::Look, Request::Get(all)));
        }
        let is_ours = self.key.term().is_some();
        (is_ours && (due || !agreed)).then(|| self.write(Vec::new()))
    }

    fn write(&self, ops: Vec<Op>) -> (Sent, Request) {
        let txn = self.key.txn(ops, self.term);
        (Sent::Write(self.term), Request::Txn(txn))
    }

    /// Takes an answer of etcd; maybe there is another request.
    pub(crate) fn answered(
        &mut self,
        answer: &Answer,
        now_ms: u64,
        lease_ms: u64,
    ) -> Option<Request> {
        match (self.in_flight.take()?, answer) {
            (Sent::Look, Answer::Got { revision, found }) => {
                let mut read = View::default();
                read.load(self.cluster, *revision, found);
                if read.history.value.adopted > self.told.0 {
                    // Its last transaction was made, though no answer came, or that of another one.
                    self.is_done = true;
                    return None;
                }
                let (sent, request) = self.take_read(&read, found, (now_ms, lease_ms))?;
                self.in_flight = Some(sent);
                return Some(request);
            }
            (Sent::Write(term), Answer::Committed(revision)) => {
                self.key.written(*revision, term);
                self.is_done = self.left.pop_front().is_some() && self.left.is_empty();
            }
            // Another one has the key, or it is not known whether it was made: all of it is looked at anew.
            (Sent::Write(_), _) => {
                self.next_ms = now_ms;
                self.key.doubt();
                self.left.clear();
            }
            (Sent::Look, _) => {}
        }
        None
    }

    /// No controller writes any more once its key is this adoption's, and no copy is sealed at a term that is not in it. So
    /// one that takes the key from another one seals above all that the other one sealed. When all is sealed, all is written.
    fn take_read(
        &mut self,
        read: &View,
        found: &[KeyValue],
        (now_ms, lease_ms): (u64, u64),
    ) -> Option<(Sent, Request)> {
        let knows = self.known.revision > 0;
        let all = if knows { &self.known } else { read }.nodes.keys();
        let all = all.copied().chain([self.mark.node]);
        self.nodes = all.filter(|node| !self.told.1.contains(node)).collect();
        let (key, term) = self.key.found(read, now_ms, lease_ms);
        match key {
            Found::Ours if term > self.term => self.begin_at(term),
            Found::Ours if self.is_agreed() && self.is_sealed() => {
                let sealed = Sealed {
                    epoch: self.epoch,
                    term: self.term,
                    mark: self.mark,
                    copies: self.copies(),
                    nodes: self.nodes.iter().copied().collect(),
                    lost: self.told.1.clone(),
                };
                self.left = transactions(self.cluster, (&self.known, read), found, &sealed).into();
            }
            Found::Ours | Found::Waits => {}
            Found::Free => {
                if term >= self.term {
                    self.begin_at(term + TERMS_ABOVE);
                }
                return Some(self.write(Vec::new()));
            }
        }
        None
    }

    /// The copies of each vBucket.
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
