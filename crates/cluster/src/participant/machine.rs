//! The state machine of a participant.

use std::collections::{BTreeMap, BTreeSet};

use super::lease::Lease;
use crate::adoption::Adoption;
use crate::agent::{Agent, Copy, SealReply, Step, seal};
use crate::agreed::{ClusterId, Controller, Entry, Health, Key, Node, Seen, View};
use crate::coord::{Answer, Compare, LeaseId, Op, Request, RequestId, Txn};
use crate::coordinator::{Action, Coordinator, Tick};
use crate::map::{NodeId, Vb};
use crate::message::{CopyReport, Message, Order};
use crate::promotion::Position;
use crate::settings::Settings;

/// Repeats of a message between two looks at every copy.
const LOOKS: u64 = 2;

/// Which node this is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// Different for each start of the node.
    pub boot: u64,
    /// What etcd shall say of the node when it comes for the first time.
    pub new: Node,
}

/// The copies of a node, as they are at this moment.
pub trait Copies {
    /// The copy of a vBucket.
    fn copy(&self, vb: Vb) -> Option<Copy>;
    /// All vBuckets with a copy.
    fn vbuckets(&self) -> Vec<Vb>;
}

/// What a participant wants done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// A request to etcd; its answer is told to [`Participant::answer`].
    Request(RequestId, Request),
    /// A message to a node, maybe to this one.
    Send(NodeId, Message),
    /// A step of a copy; when it is made, that is told to [`Participant::stepped`].
    Step(Step),
}

/// What a request was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Watch,
    Grant,
    Read(LeaseId),
    Join,
    ClearMark(LeaseId),
    /// With the revision that the node had seen when it asked.
    KeepAlive(LeaseId, u64),
    /// Whether etcd has what this node, or another one, had seen.
    Check(Seen),
    /// What the node wrote of itself; its watch tells what came of it.
    OfItself,
    Elect,
    Control(u64),
    Revoke(NodeId, LeaseId),
    /// Of the adoption with this number.
    Adopt(u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingSeal {
    pub(super) from: NodeId,
    pub(super) term: u64,
    pub(super) at_least: Option<Position>,
    pub(super) since_ms: u64,
}

/// A node's part in its cluster.
#[derive(Clone, Debug)]
pub struct Participant {
    pub(super) identity: Identity,
    pub(super) settings: Settings,
    pub(super) view: View,
    pub(super) agent: Agent,
    pub(super) coordinator: Coordinator,
    pub(super) lease: Lease,
    pub(super) health: Health,
    pub(super) requests: BTreeMap<RequestId, (Purpose, u64)>,
    pub(super) last_request: u64,
    pub(super) watch: Option<RequestId>,
    pub(super) watching_since_ms: Option<u64>,
    /// Since when etcd has had more than the watch told.
    pub(super) behind_since_ms: Option<u64>,
    pub(super) heard: BTreeMap<NodeId, u64>,
    pub(super) pinged_ms: Option<u64>,
    pub(super) seals: BTreeMap<Vb, PendingSeal>,
    /// What the controller was told of copies without being asked.
    pub(super) reported: BTreeSet<CopyReport>,
    /// Copies that something may be done about at each tick; all others are looked at from time to time.
    pub(super) open: BTreeSet<Vb>,
    pub(super) look_ms: u64,
    /// The revision by which the lease was taken.
    pub(super) joined: u64,
    /// An operator removed the node.
    pub(super) removed: bool,
    /// What this node has seen, also before it started.
    pub(super) newest: Seen,
    /// What `newest` was when etcd was read last.
    pub(super) newest_when_asked: Seen,
    /// etcd does not have what this node had seen: it was restored from a backup, and is not followed before copies are
    /// adopted. When that was noted, or a lease was asked for last.
    pub(super) went_back_ms: Option<u64>,
    /// The epoch and the term of the adoption that all copies are sealed for. No other step is made before it is followed.
    pub(super) sealed_for: Option<(u64, u64)>,
    /// An adoption that an operator ordered here, and its number.
    pub(super) adoption: Option<(u64, Adoption)>,
    /// Something came that the controller has not seen.
    undecided: bool,
    pub(super) outputs: Vec<Output>,
}

impl Participant {
    /// A node that starts. `newest` is what [`Self::newest`] was, as far as the node has kept it.
    pub fn new(identity: Identity, settings: Settings, newest: Seen) -> Self {
        Self {
            agent: Agent::new(identity.node),
            coordinator: Coordinator::new(identity.cluster, settings),
            identity,
            settings,
            view: View::default(),
            lease: Lease::None,
            health: Health::default(),
            requests: BTreeMap::new(),
            last_request: 0,
            watch: None,
            watching_since_ms: None,
            behind_since_ms: None,
            heard: BTreeMap::new(),
            pinged_ms: None,
            seals: BTreeMap::new(),
            reported: BTreeSet::new(),
            open: BTreeSet::new(),
            look_ms: 0,
            joined: 0,
            removed: false,
            newest,
            newest_when_asked: newest,
            went_back_ms: None,
            sealed_for: None,
            adoption: None,
            undecided: false,
            outputs: Vec::new(),
        }
    }

    /// What etcd holds, as far as this node has seen it.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// The part of the map that this node goes by.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// The controller's part.
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// What this node has seen of etcd.
    pub fn newest(&self) -> Seen {
        self.newest
    }

    /// When something came of other nodes last.
    pub fn heard(&self) -> &BTreeMap<NodeId, u64> {
        &self.heard
    }

    /// Until when the node's lease lasts by its own clock.
    pub fn lease_until_ms(&self) -> u64 {
        if self.health.disk_dead {
            0
        } else {
            self.lease.until_ms()
        }
    }

    /// Whether an operator removed the node from the cluster. It comes back as a new one when it starts again.
    pub fn is_removed(&self) -> bool {
        self.removed
    }

    /// Whether etcd does not have what this node had seen, as after a restore from a backup. Then the node goes on by what
    /// it knew, without a lease, until an operator has copies adopted.
    pub fn etcd_went_back(&self) -> bool {
        self.went_back_ms.is_some()
    }

    /// A sync of this node failed. It tells that; no step of a copy is put out any more, nor is a seal answered. The
    /// node acknowledges and serves nothing, whatever replicas confirm.
    pub fn disk_died(&mut self) {
        self.health.disk_dead = true;
    }

    /// Whether commits of this node find no space. It tells that, and goes on in memory.
    pub fn set_disk_full(&mut self, full: bool) {
        self.health.disk_full = full;
    }

    /// Whether a sync of this node failed.
    pub fn is_disk_dead(&self) -> bool {
        self.health.disk_dead
    }

    /// Takes an operator's order, and sends it to the controller. An adoption begins here; without a controller a node that is
    /// to be recovered does that itself.
    pub fn order(&mut self, order: Order) -> Vec<Output> {
        if let Order::Adopt { epoch, lost } = &order {
            self.begin_adoption(*epoch, lost);
        } else if let Some(to) = self.obeyed_by(&order) {
            self.outputs.push(Output::Send(to, Message::Order(order)));
        }
        std::mem::take(&mut self.outputs)
    }

    /// The node that an order is for.
    fn obeyed_by(&self, order: &Order) -> Option<NodeId> {
        match (&self.view.controller, order) {
            (Some(controller), _) => Some(controller.value.node),
            (None, Order::Recover(node)) => Some(*node),
            (None, _) => None,
        }
    }

    /// Some time has passed. It is called every few ten milliseconds.
    #[must_use]
    pub fn tick(&mut self, now_ms: u64, copies: &impl Copies) -> Vec<Output> {
        let limit_ms = self.settings.request_ms;
        let late = self.requests.iter().filter(|(_, (purpose, sent_ms))| {
            *purpose != Purpose::Watch && now_ms >= sent_ms + limit_ms
        });
        let late: Vec<RequestId> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.take_answer(id, &Answer::Unavailable, now_ms, copies);
        }
        self.ping(now_ms);
        self.keep_lease(now_ms, copies);
        self.keep_watch(now_ms);
        self.elect(now_ms);
        self.control(now_ms);
        self.adopt(now_ms);
        let kept_ms = 2 * self.settings.repeat_ms;
        self.seals
            .retain(|_, pending| now_ms < pending.since_ms + kept_ms);
        let mut open = std::mem::take(&mut self.open);
        if now_ms >= self.look_ms {
            self.look_ms = now_ms + LOOKS * self.settings.repeat_ms;
            open.extend(copies.vbuckets());
            open.extend(self.agent.vbuckets());
            self.health.damaged.clear();
        }
        open.extend(self.seals.keys());
        let mut reports = BTreeSet::new();
        for vb in open {
            let steps = self.outputs.len();
            self.look(vb, copies);
            let copy = copies.copy(vb);
            self.note_condition(vb, copy.map(|copy| copy.condition));
            let report = copy.and_then(|copy| self.agent.report(vb, &copy));
            let changes = self
                .agent
                .row(vb)
                .is_some_and(|(_, row)| row.change.is_some());
            if changes || report.is_some() || self.outputs.len() > steps {
                self.open.insert(vb);
            }
            reports.extend(report);
        }
        self.report(reports);
        std::mem::take(&mut self.outputs)
    }

    /// Tells the controller what copies need that they did not need before; it asks as well.
    fn report(&mut self, reports: BTreeSet<CopyReport>) {
        let news: Vec<_> = reports.difference(&self.reported).copied().collect();
        self.reported = reports;
        if let Some(controller) = self.view.controller.as_ref().filter(|_| !news.is_empty()) {
            let to = controller.value.node;
            self.outputs.push(Output::Send(to, Message::Report(news)));
        }
    }

    /// Takes an answer of etcd; [`Self::decide`] comes after it.
    #[must_use]
    pub fn answer(
        &mut self,
        id: RequestId,
        answer: &Answer,
        now_ms: u64,
        copies: &impl Copies,
    ) -> Vec<Output> {
        self.take_answer(id, answer, now_ms, copies);
        self.undecided = true;
        std::mem::take(&mut self.outputs)
    }

    /// Does what the controller makes of what came: once for all answers and messages that came together, as it looks at
    /// every vBucket.
    #[must_use]
    pub fn decide(&mut self, now_ms: u64) -> Vec<Output> {
        if std::mem::take(&mut self.undecided) {
            self.elect(now_ms);
            self.control(now_ms);
        }
        std::mem::take(&mut self.outputs)
    }

    /// Takes a message of a node; [`Self::decide`] comes after it.
    #[must_use]
    pub fn message(
        &mut self,
        from: NodeId,
        message: &Message,
        now_ms: u64,
        copies: &impl Copies,
    ) -> Vec<Output> {
        self.heard.insert(from, now_ms);
        match message {
            Message::Ping => {}
            Message::Ask => {
                if !self.reported.is_empty() {
                    let reports = self.reported.iter().copied().collect();
                    self.outputs
                        .push(Output::Send(from, Message::Report(reports)));
                }
            }
            Message::EtcdWentBack(seen) => self.doubt(*seen, now_ms),
            Message::SealAll { told, epoch, term } => {
                let went_back = self.went_back_ms.is_some();
                if went_back || self.newest.version.epoch <= *told {
                    self.seal_all(from, (*epoch, *term), now_ms, copies);
                }
            }
            Message::AllSealed { .. } | Message::SealAllRefused { .. } => {
                self.take_sealed(from, message);
            }
            // Of a controller that goes by an etcd that is not followed, or may not be.
            Message::Seal { .. } if self.etcd_went_back() || self.view.revision == 0 => {}
            Message::Seal { vb, term, at_least } => {
                let (term, at_least) = (*term, *at_least);
                let pending = PendingSeal {
                    from,
                    term,
                    at_least,
                    since_ms: now_ms,
                };
                if self.seals.get(vb).is_none_or(|held| held.term <= term) {
                    self.seals.insert(*vb, pending);
                }
                self.look(*vb, copies);
            }
            Message::Order(Order::Recover(node)) if self.view.controller.is_none() => {
                self.recover(*node, now_ms);
            }
            Message::Report(_)
            | Message::Sealed { .. }
            | Message::Stopped { .. }
            | Message::SealRefused { .. }
            | Message::Order(_) => {
                self.coordinator.message(from, message, now_ms);
                self.undecided = true;
            }
        }
        std::mem::take(&mut self.outputs)
    }

    /// A step of a copy was made.
    #[must_use]
    pub fn stepped(&mut self, vb: Vb, copies: &impl Copies) -> Vec<Output> {
        self.look(vb, copies);
        std::mem::take(&mut self.outputs)
    }

    /// Puts out the next step of a copy, or the answer to its seal.
    pub(super) fn look(&mut self, vb: Vb, copies: &impl Copies) {
        if self.health.disk_dead {
            return;
        }
        let copy = copies.copy(vb);
        if let Some((_, term)) = self.sealed_for {
            let open = copy.filter(|copy| copy.term < term && copy.is_readable());
            let step = open.map(|_| Output::Step(Step::Seal { vb, term }));
            self.outputs.extend(step);
            return;
        }
        if let Some(pending) = self.seals.remove(&vb) {
            match seal(vb, pending.term, pending.at_least, copy.as_ref()) {
                // Looked at again, until the controller repeats itself.
                SealReply::Wait => drop(self.seals.insert(vb, pending)),
                SealReply::Answer(message) => {
                    self.outputs.push(Output::Send(pending.from, message));
                }
                SealReply::Make(step) => {
                    self.seals.insert(vb, pending);
                    self.outputs.push(Output::Step(step));
                    return;
                }
            }
        }
        let step = self.agent.step(vb, copy.as_ref());
        self.outputs.extend(step.map(Output::Step));
    }

    pub(super) fn request(&mut self, purpose: Purpose, request: Request, now_ms: u64) -> RequestId {
        self.last_request += 1;
        let id = RequestId(self.last_request);
        self.requests.insert(id, (purpose, now_ms));
        self.outputs.push(Output::Request(id, request));
        id
    }

    pub(super) fn is_under_way(&self, is: impl Fn(Purpose) -> bool) -> bool {
        self.requests.values().any(|(purpose, _)| is(*purpose))
    }

    pub(super) fn key(&self, key: Key) -> String {
        key.text(self.identity.cluster)
    }

    /// Becomes the controller if there is none.
    fn elect(&mut self, now_ms: u64) {
        let Identity { node, boot, .. } = self.identity;
        let me = Controller::new(node, boot);
        let mine = |entry: &&Entry<Controller>| entry.value == me;
        let controller = self.view.controller.as_ref();
        let term = controller.filter(mine).map(|entry| entry.mod_revision);
        self.coordinator.set_term(term);
        let Lease::Held { lease, .. } = self.lease else {
            return;
        };
        let known = self.watching_since_ms.is_some() && self.is_alive_by(lease);
        if controller.is_some() || !known || self.is_under_way(|p| p == Purpose::Elect) {
            return;
        }
        let key = self.key(Key::Controller);
        let compare = vec![Compare::Version(key.clone(), 0)];
        let value = serde_json::to_string(&me);
        let value = value.expect("values of ours have no maps");
        let then = vec![Op::Put { key, value, lease }];
        self.request(Purpose::Elect, Request::Txn(Txn { compare, then }), now_ms);
    }

    /// A round of the controller, if this node is it.
    fn control(&mut self, now_ms: u64) {
        let Some(watching_since_ms) = self.watching_since_ms else {
            return;
        };
        let tick = Tick {
            view: &self.view,
            now_ms,
            watching_since_ms,
            heard: &self.heard,
        };
        for action in self.coordinator.tick(&tick) {
            match action {
                Action::Send(to, message) => self.outputs.push(Output::Send(to, message)),
                Action::Txn(txn) => {
                    let term = self.coordinator.term().unwrap_or_default();
                    self.request(Purpose::Control(term), Request::Txn(txn), now_ms);
                }
                Action::Revoke(node, lease) => {
                    self.request(Purpose::Revoke(node, lease), Request::Revoke(lease), now_ms);
                }
            }
        }
    }
}
