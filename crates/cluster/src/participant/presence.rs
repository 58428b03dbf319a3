//! The lease of a node, and its reports about itself.

use super::lease::NodeLease;
use super::machine::{Copies, Output, Participant, Purpose};
use crate::agent::Role;
use crate::agreed::{Alive, Entry, Key, Node, NodeState};
use crate::condition::Condition;
use crate::coord::{Compare, LeaseId, Op, Request, Txn};
use crate::map::{NodeId, Vb};
use crate::message::Message;

impl Participant {
    /// Whether an active copy of this node moves.
    fn is_moving(&self) -> bool {
        let row = |vb: &Vb| self.agent.row(*vb).map(|(_, row)| row);
        let mut rows = self.open.iter().filter_map(row);
        let me = Some(self.identity.node);
        rows.any(|row| row.change.is_some() && row.chain.active() == me)
    }

    /// Whether a seal or a move is in progress that each tick may advance.
    pub fn is_busy(&self) -> bool {
        !self.seals.is_empty() || self.is_moving()
    }

    pub(super) fn ping(&mut self, now_ms: u64) {
        let pause_ms = if self.pings_early || self.is_moving() {
            self.settings.moving_ms
        } else {
            self.settings.repeat_ms
        };
        if self.pinged_ms.is_some_and(|at| now_ms < at + pause_ms) {
            return;
        }
        self.pinged_ms = Some(now_ms);
        self.pings_early = false;
        let me = self.identity.node;
        let peers: Vec<NodeId> = self
            .view
            .nodes
            .keys()
            .filter(|node| **node != me)
            .copied()
            .collect();
        for peer in &peers {
            self.outputs.push(Output::Send(*peer, Message::Ping));
            if self.went_back_ms.is_some() {
                let news = Message::EtcdWentBack(self.newest);
                self.outputs.push(Output::Send(*peer, news));
            }
        }
        let limit_ms = self.settings.unheard_ms;
        let heard = |peer: &NodeId| {
            let since_ms = self.heard.get(peer).copied().or(self.watching_since_ms);
            since_ms.is_some_and(|at| now_ms < at + limit_ms)
        };
        self.health.unheard = peers.into_iter().filter(|peer| !heard(peer)).collect();
    }

    /// Records the condition of a copy for the next report. All copies are checked at a longer interval.
    pub(super) fn note_condition(&mut self, vb: Vb, condition: Option<Condition>) {
        if let Some(condition) = condition.filter(|known| *known != Condition::Whole) {
            let of_bucket = self.health.damaged.entry(vb.bucket).or_default();
            of_bucket.insert(vb.number, condition);
        }
    }

    pub(super) fn alive_value(&self) -> String {
        let alive = Alive {
            boot: self.identity.boot,
            health: self.health.clone(),
        };
        serde_json::to_string(&alive).expect("values of ours have no maps")
    }

    /// Whether the node must not take a lease: its disk died, or it is marked as failed while its disk is
    /// full. With a lease it would clear a mark that its replacement needs, since it answers no seals.
    fn waits_for_disk(&self) -> bool {
        let node = self.view.nodes.get(&self.identity.node);
        let marked = node.is_some_and(|entry| entry.value.state == NodeState::Failed);
        self.health.disk_dead || self.health.disk_full && marked
    }

    /// Whether an operator failed the node over: it takes no lease before it is recovered.
    fn is_failed_over(&self) -> bool {
        let node = self.view.nodes.get(&self.identity.node);
        node.is_some_and(|entry| entry.value.failed_over)
    }

    /// Ends the failover of this node by an operator. No controller may exist that could do so: a node that
    /// is failed over does not become the controller.
    pub(super) fn recover(&mut self, node: NodeId, now_ms: u64) {
        let entry = self.view.nodes.get(&node);
        let here = node == self.identity.node && !self.etcd_went_back();
        let Some(entry) = entry.filter(|entry| here && entry.value.failed_over) else {
            return;
        };
        let value = Node {
            failed_over: false,
            ..entry.value.clone()
        };
        let compare = vec![
            Compare::ModRevision(self.key(Key::Node(node)), entry.mod_revision),
            Compare::Version(self.key(Key::Controller), 0),
        ];
        let value = serde_json::to_string(&value).expect("values of ours have no maps");
        let (key, lease) = (self.key(Key::Node(node)), LeaseId(0));
        let then = vec![Op::Put { key, value, lease }];
        self.request(
            Purpose::OfItself,
            Request::Txn(Txn { compare, then }),
            now_ms,
        );
    }

    /// Whether a lease may be requested: not by a removed node, nor by one that waits for its disk, and
    /// rarely from an etcd that is not followed.
    fn may_ask(&self, now_ms: u64) -> bool {
        let pause_ms = self.settings.request_ms;
        let soon = self.went_back_ms.is_some_and(|at| now_ms < at + pause_ms);
        self.excluded.is_none() && !self.waits_for_disk() && !soon
    }

    /// Takes a lease, or renews it, and writes the node's health.
    pub(super) fn keep_lease(&mut self, now_ms: u64, copies: &impl Copies) {
        match self.lease {
            NodeLease::None
                if self.may_ask(now_ms)
                    && !self.is_under_way(|p| matches!(p, Purpose::Grant | Purpose::Read(_))) =>
            {
                self.lease = NodeLease::Asked;
                self.went_back_ms = self.went_back_ms.map(|_| now_ms);
                let ttl_ms = self.settings.lease_ms;
                self.request(Purpose::Grant, Request::Grant { ttl_ms }, now_ms);
            }
            // The read is old. Read again, so that a waiting node sees changes that a lost watch does not deliver.
            NodeLease::Read { sent_ms, .. } if now_ms >= sent_ms + self.settings.lease_ms => {
                self.lease = NodeLease::None;
            }
            NodeLease::Read {
                lease,
                sent_ms,
                seen,
            } if !self.waits_for_disk() && !self.is_failed_over() => {
                let old = |vb: &Vb| {
                    let copy = copies.copy(*vb);
                    let active = copy.is_some_and(|copy| copy.role == Role::Active);
                    active && self.agent.step(*vb, copy.as_ref()).is_some()
                };
                if !copies.vbuckets().iter().any(old) {
                    self.lease = NodeLease::Joining { lease, sent_ms };
                    self.join(lease, seen, now_ms);
                }
            }
            NodeLease::Held {
                lease, renewed_ms, ..
            } => {
                if now_ms >= renewed_ms + self.settings.lease_ms / 5 {
                    if let NodeLease::Held { renewed_ms, .. } = &mut self.lease {
                        *renewed_ms = now_ms;
                    }
                    let purpose = Purpose::KeepAlive(lease, self.view.revision);
                    self.request(purpose, Request::KeepAlive(lease), now_ms);
                }
                self.tell_health(lease, now_ms);
            }
            _ => {}
        }
    }

    /// Makes the node alive. A node that is marked as failed first clears the mark, and reads the map again.
    pub(super) fn join(&mut self, lease: LeaseId, (seen, alive): (u64, u64), now_ms: u64) {
        let me = self.identity.node;
        let mut node = self.view.nodes.get(&me).map_or_else(
            || self.identity.new.clone(),
            |entry: &Entry<Node>| entry.value.clone(),
        );
        let key = self.key(Key::Node(me));
        let mut then = vec![Op::Put {
            key: self.key(Key::Alive(me)),
            value: self.alive_value(),
            lease,
        }];
        let marked = node.state == NodeState::Failed;
        let is_new = seen == 0 || marked;
        if is_new {
            (node.state, node.revoke) = (NodeState::New, None);
        }
        let starts = self.identity.new.starts;
        let is_later = node.starts < starts;
        if is_new || is_later {
            node.starts = node.starts.max(starts);
            let value = serde_json::to_string(&node).expect("values of ours have no maps");
            let (key, lease) = (key.clone(), LeaseId(0));
            then.push(Op::Put { key, value, lease });
        }
        if marked {
            // Promotions that require the mark are possible until it is cleared. The map is read again after that.
            then.remove(0);
        }
        let purpose = if marked {
            Purpose::ClearMark(lease)
        } else {
            Purpose::Join
        };
        let compare = vec![
            Compare::ModRevision(key, seen),
            Compare::ModRevision(self.key(Key::Alive(me)), alive),
        ];
        self.request(purpose, Request::Txn(Txn { compare, then }), now_ms);
    }

    pub(super) fn tell_health(&mut self, lease: LeaseId, now_ms: u64) {
        let Some(entry) = self.view.alive.get(&self.identity.node) else {
            return;
        };
        let is_published = entry.lease != lease || entry.value.health == self.health;
        if is_published || self.is_under_way(|purpose| purpose == Purpose::OfItself) {
            return;
        }
        let key = self.key(Key::Alive(self.identity.node));
        let compare = vec![Compare::ModRevision(key.clone(), entry.mod_revision)];
        let value = self.alive_value();
        let then = vec![Op::Put { key, value, lease }];
        self.request(
            Purpose::OfItself,
            Request::Txn(Txn { compare, then }),
            now_ms,
        );
    }
}
