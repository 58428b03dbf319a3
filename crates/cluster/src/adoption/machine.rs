//! The order of an adoption: seals, the controller's key, writes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::writes::{Sealed, transactions};
use crate::agreed::{ClusterId, Controller, Key, Mark, View};
use crate::coord::{Answer, Compare, KeyValue, LeaseId, Op, Range, Request, Txn};
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

/// What is done about etcd once all is sealed.
#[derive(Clone, Debug)]
enum Stage {
    /// It is to be read.
    Look,
    /// The controller's key is being taken.
    Take,
    /// These are left to be written.
    Write(VecDeque<Txn>),
}

/// An adoption of all copies, on the node that an operator gave the order to.
#[derive(Clone, Debug)]
pub(crate) struct Adoption {
    cluster: ClusterId,
    me: Controller,
    /// The epoch that the operator was told, and the nodes that are given up.
    pub(crate) told: (u64, Vec<NodeId>),
    /// What the node knew of etcd before it was restored.
    known: View,
    mark: Mark,
    /// Nodes that must answer.
    nodes: BTreeSet<NodeId>,
    epoch: u64,
    term: u64,
    /// Of each node how many copies it has, and those that it told.
    answers: BTreeMap<NodeId, (usize, BTreeMap<Vb, Position>)>,
    asked_ms: Option<u64>,
    stage: Stage,
    in_flight: bool,
    /// The create revision of the controller's key that it wrote.
    taken: Option<u64>,
}

impl Adoption {
    /// By a node that has seen `known`; every node of it must answer but those that are given up.
    pub(crate) fn new(
        cluster: ClusterId,
        me: Controller,
        known: &View,
        told: (u64, Vec<NodeId>),
        issued: u64,
    ) -> Self {
        let nodes = known.nodes.keys().copied().chain([me.node]);
        let highest = known.rows().map(|(_, _, row)| row.highest_term()).max();
        Self {
            cluster,
            mark: Mark {
                number: 0,
                node: me.node,
                boot: me.boot,
                issued,
            },
            me,
            nodes: nodes.filter(|node| !told.1.contains(node)).collect(),
            known: known.clone(),
            epoch: told.0 + 1,
            told,
            term: highest.unwrap_or(0) + TERMS_ABOVE,
            answers: BTreeMap::new(),
            asked_ms: None,
            stage: Stage::Look,
            in_flight: false,
            taken: None,
        }
    }

    /// Nodes whose copies are not known to be sealed.
    pub(crate) fn open(&self) -> impl Iterator<Item = NodeId> {
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
        let open = self.open().next().is_some();
        if open && (epoch >= self.epoch || term >= self.term) {
            self.epoch = self.epoch.max(epoch + 1);
            self.term = self.term.max(term + TERMS_ABOVE);
            self.answers.clear();
            self.asked_ms = None;
            self.stage = Stage::Look;
        }
    }

    /// What is to be done now.
    pub(crate) fn tick(&mut self, now_ms: u64, repeat_ms: u64) -> Vec<Action> {
        let open: Vec<NodeId> = self.open().collect();
        if !open.is_empty() {
            if self.asked_ms.is_some_and(|at| now_ms < at + repeat_ms) {
                return Vec::new();
            }
            self.asked_ms = Some(now_ms);
            let seal = Message::SealAll {
                told: self.told.0,
                epoch: self.epoch,
                term: self.term,
            };
            let ask = |node| Action::Send(node, seal.clone());
            return open.into_iter().map(ask).collect();
        }
        if self.in_flight {
            return Vec::new();
        }
        let request = match &self.stage {
            Stage::Look | Stage::Take => Request::Get(Range::Prefix(self.cluster.prefix())),
            Stage::Write(left) => match left.front() {
                Some(txn) => Request::Txn(txn.clone()),
                None => return Vec::new(),
            },
        };
        self.in_flight = true;
        vec![Action::Request(request)]
    }

    /// Takes an answer of etcd; maybe there is another request.
    pub(crate) fn answered(&mut self, answer: &Answer) -> Option<Request> {
        self.in_flight = false;
        let stage = std::mem::replace(&mut self.stage, Stage::Look);
        match (stage, answer) {
            (Stage::Look, Answer::Got { revision, found }) => {
                if self.open().next().is_some() {
                    return None;
                }
                let mut read = View::default();
                read.load(self.cluster, *revision, found);
                if read.history.value.adopted > self.told.0 {
                    // Its last transaction was made, though no answer came, or that of another one.
                    self.stage = Stage::Write(VecDeque::new());
                    return None;
                }
                self.take_read(&read, found)
            }
            (Stage::Take, Answer::Committed(revision)) => {
                self.taken = Some(*revision);
                None
            }
            (Stage::Write(mut left), Answer::Committed(_)) => {
                left.pop_front();
                self.stage = Stage::Write(left);
                None
            }
            // Another one came first, or it is not known whether it was made: all of it is looked at anew.
            _ => None,
        }
    }

    /// No controller writes any more once its key is this node's; then all is written.
    fn take_read(&mut self, read: &View, found: &[KeyValue]) -> Option<Request> {
        let key = Key::Controller.text(self.cluster);
        let created = read.controller.as_ref().map(|entry| entry.create_revision);
        let txn = match created {
            Some(created) if Some(created) == self.taken => {
                let sealed = Sealed {
                    epoch: self.epoch,
                    term: self.term,
                    mark: self.mark,
                    copies: self.copies(),
                    nodes: self.nodes.iter().copied().collect(),
                    lost: self.told.1.clone(),
                };
                let compare = vec![Compare::CreateRevision(key, created)];
                let txns = transactions(self.cluster, (&self.known, read), found, &sealed);
                let txns = txns.into_iter().map(|then| Txn {
                    compare: compare.clone(),
                    then,
                });
                self.stage = Stage::Write(txns.collect());
                return None;
            }
            Some(created) => Txn {
                compare: vec![Compare::CreateRevision(key.clone(), created)],
                then: vec![Op::Delete { key }],
            },
            None => {
                self.stage = Stage::Take;
                let value = serde_json::to_string(&self.me);
                let value = value.expect("values of ours have no maps");
                let lease = LeaseId(0);
                Txn {
                    compare: vec![Compare::Version(key.clone(), 0)],
                    then: vec![Op::Put { key, value, lease }],
                }
            }
        };
        self.in_flight = true;
        Some(Request::Txn(txn))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_counts_until_all_copies_are_sealed() {
        let (me, other) = (NodeId(1), NodeId(2));
        let mut known = View::default();
        for node in [me, other] {
            known.nodes.insert(node, crate::agreed::Entry::default());
        }
        let controller = Controller { node: me, boot: 1 };
        let told = (4, Vec::new());
        let mut adoption = Adoption::new(ClusterId(7), controller, &known, told, 1);
        let asked = |adoption: &mut Adoption, now_ms| -> Vec<u64> {
            let actions = adoption.tick(now_ms, 500);
            let terms = actions.into_iter().filter_map(|action| match action {
                Action::Send(_, Message::SealAll { term, .. }) => Some(term),
                _ => None,
            });
            terms.collect()
        };
        assert_eq!(asked(&mut adoption, 0), [1_000, 1_000]);
        adoption.refused(4, 1_000);
        assert_eq!(asked(&mut adoption, 1), [2_000, 2_000]);
        for node in [me, other] {
            adoption.sealed(node, (5, 2_000), 0, &[]);
        }
        adoption.refused(4, 2_000);
        assert_eq!(adoption.open().count(), 0);
        assert!(asked(&mut adoption, 1_000).is_empty());
    }
}
