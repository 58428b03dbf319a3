//! The state machine of a participant.

use std::collections::{BTreeMap, BTreeSet};

use super::lease::NodeLease;
use crate::adoption::Adoption;
use crate::agent::{Agent, Copy, SealReply, Step, seal};
use crate::agreed::{ClusterId, Health, Key, Node, Seen, View};
use crate::coord::{Answer, LeaseId, Request, RequestId};
use crate::coordinator::Coordinator;
use crate::map::{BucketId, NodeId, Vb};
use crate::message::{CopyReport, Message, Order};
use crate::promotion::Position;
use crate::settings::Settings;

/// Number of message repetitions between two checks of damaged copies.
const LOOKS: u64 = 2;
/// Number of message repetitions between two checks of every copy, and between two rounds of a quiet controller:
/// changes are handled as they come.
pub(super) const LOOKS_AT_ALL: u64 = 20;

/// Identity of a node.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The cluster.
    pub cluster: ClusterId,
    /// The node.
    pub node: NodeId,
    /// Number of the start, different for each one.
    pub boot: u64,
    /// Value for etcd when the node joins for the first time.
    pub new: Node,
}

/// The copies of a node, in their present state.
pub trait Copies {
    /// Returns the copy of a vBucket.
    fn copy(&self, vb: Vb) -> Option<Copy>;
    /// Returns all vBuckets with a copy.
    fn vbuckets(&self) -> Vec<Vb>;
    /// Returns those with a copy that may not be whole.
    fn damaged(&self) -> Vec<Vb>;
    /// Returns the manifest that the node has of a bucket, if it is newer than `agreed`. Both are JSON texts as in etcd.
    fn newer_manifest(&self, bucket: BucketId, agreed: Option<&str>) -> Option<String>;
}

/// Output of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a request to etcd, and pass its answer to [`Participant::answer`].
    Request(RequestId, Request),
    /// Send a message to a node, which may be this one.
    Send(NodeId, Message),
    /// Make a step of a copy, and call [`Participant::stepped`] after that.
    Step(Step),
}

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Watch,
    Grant,
    Read(LeaseId),
    Join,
    ClearMark(LeaseId),
    /// A renewal, with the revision that the node had seen when it asked.
    KeepAlive(LeaseId, u64),
    /// A check whether etcd has the state that this node, or another one, had seen.
    Check(Seen),
    /// A write of the node about itself, or of what it has; the watch delivers its effect.
    OfItself,
    Elect,
    Control(u64),
    Revoke(NodeId, LeaseId),
    /// A request of the adoption with this number.
    Adopt(u64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PendingSeal {
    pub(super) from: NodeId,
    pub(super) term: u64,
    pub(super) at_least: Option<Position>,
    pub(super) since_ms: u64,
}

/// Reason why a process is out of the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exclusion {
    /// An operator removed the node.
    Removed,
    /// Another process took its number.
    Replaced,
}

/// A node's part in its cluster.
#[derive(Clone, Debug)]
pub struct Participant {
    pub(super) identity: Identity,
    pub(super) settings: Settings,
    pub(super) view: View,
    pub(super) agent: Agent,
    pub(super) coordinator: Coordinator,
    pub(super) lease: NodeLease,
    pub(super) health: Health,
    pub(super) requests: BTreeMap<RequestId, (Purpose, u64)>,
    pub(super) last_request: u64,
    pub(super) watch: Option<RequestId>,
    pub(super) watching_since_ms: Option<u64>,
    /// Time since which the watch lags behind etcd.
    pub(super) behind_since_ms: Option<u64>,
    pub(super) heard: BTreeMap<NodeId, u64>,
    pub(super) pinged_ms: Option<u64>,
    /// Whether the next ping is sent early, because another node may wait for it.
    pub(super) pings_early: bool,
    pub(super) seals: BTreeMap<Vb, PendingSeal>,
    /// Reports that the controller got without asking.
    pub(super) reported: BTreeSet<CopyReport>,
    /// Copies to check at each tick; all others are checked at a longer interval.
    pub(super) open: BTreeSet<Vb>,
    /// Buckets whose manifests were not compared with those in etcd since it was read.
    pub(super) uncompared: BTreeSet<BucketId>,
    /// Times of the next checks of damaged copies and of all.
    look_ms: u64,
    look_at_all_ms: u64,
    /// Revision at which the lease was taken.
    pub(super) joined: u64,
    /// The reason why this process is out of the cluster until its next start.
    pub(super) excluded: Option<Exclusion>,
    /// Newest state of etcd that this node has seen, also before its start.
    pub(super) newest: Seen,
    /// Value of `newest` when etcd was last read.
    pub(super) newest_when_asked: Seen,
    /// Set while etcd lacks a state that this node had seen: it was restored from a backup, and is not
    /// followed before copies are adopted. The time when this was detected, or when a lease was last
    /// requested.
    pub(super) went_back_ms: Option<u64>,
    /// Epoch and term of the adoption for which all copies are sealed. No other step is made before the
    /// adoption is followed.
    pub(super) sealed_for: Option<(u64, u64)>,
    /// Number and state of an adoption that an operator ordered here.
    pub(super) adoption: Option<(u64, Adoption)>,
    /// Whether there was input that the controller has not handled.
    pub(super) undecided: bool,
    /// Time of the controller's last round.
    pub(super) controlled_ms: Option<u64>,
    pub(super) outputs: Vec<Output>,
}

impl Participant {
    /// Creates the participant of a node that starts. `newest` is the last value of [`Self::newest`] that the
    /// node stored.
    pub fn new(identity: Identity, settings: Settings, newest: Seen) -> Self {
        Self {
            agent: Agent::new(identity.node),
            coordinator: Coordinator::new(identity.cluster, settings),
            identity,
            settings,
            view: View::default(),
            lease: NodeLease::None,
            health: Health::default(),
            requests: BTreeMap::new(),
            last_request: 0,
            watch: None,
            watching_since_ms: None,
            behind_since_ms: None,
            heard: BTreeMap::new(),
            pinged_ms: None,
            pings_early: false,
            seals: BTreeMap::new(),
            reported: BTreeSet::new(),
            open: BTreeSet::new(),
            uncompared: BTreeSet::new(),
            look_ms: 0,
            look_at_all_ms: 0,
            joined: 0,
            excluded: None,
            newest,
            newest_when_asked: newest,
            went_back_ms: None,
            sealed_for: None,
            adoption: None,
            undecided: false,
            controlled_ms: None,
            outputs: Vec::new(),
        }
    }

    /// Returns the state of etcd, as far as this node has seen it.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Returns the part of the map that this node follows.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Returns the controller.
    pub fn coordinator(&self) -> &Coordinator {
        &self.coordinator
    }

    /// Returns the newest state of etcd that this node has seen.
    pub fn newest(&self) -> Seen {
        self.newest
    }

    /// Returns the times of the last messages from other nodes.
    pub fn heard(&self) -> &BTreeMap<NodeId, u64> {
        &self.heard
    }

    /// Returns the end of the node's lease by its own clock.
    pub fn lease_until_ms(&self) -> u64 {
        if self.health.disk_dead {
            0
        } else {
            self.lease.until_ms()
        }
    }

    /// Whether an operator removed the node from the cluster. It comes back as a new node at its next start.
    pub fn is_removed(&self) -> bool {
        self.excluded == Some(Exclusion::Removed)
    }

    /// Whether another process took this node's number: another node after an adoption, or one that was started on a copy
    /// of this node's data directory. This one makes no step, sends nothing and must serve nothing, whatever replicas confirm.
    pub fn is_replaced(&self) -> bool {
        self.excluded == Some(Exclusion::Replaced)
    }

    /// Whether etcd lacks a state that this node had seen, as after a restore from a backup. The node then
    /// continues with the map that it knew, without a lease, until an operator orders an adoption.
    pub fn etcd_went_back(&self) -> bool {
        self.went_back_ms.is_some()
    }

    /// Records that a sync of this node failed. The node reports this, puts out no more steps, and answers no
    /// seals. It acknowledges and serves nothing, whatever replicas confirm.
    pub fn disk_died(&mut self) {
        self.health.disk_dead = true;
    }

    /// Sets whether commits of this node fail for lack of space. The node reports this, and continues in memory.
    pub fn set_disk_full(&mut self, full: bool) {
        self.health.disk_full = full;
    }

    /// Sets the buckets that this node cannot make.
    pub fn set_unmade(&mut self, buckets: BTreeSet<BucketId>) {
        self.health.unmade = buckets;
    }

    /// Sets the buckets of this node that have no memory for changes of other nodes.
    pub fn set_starved(&mut self, buckets: BTreeSet<BucketId>) {
        self.health.starved = buckets;
    }

    /// Sends the next ping early: it reports a state for which another node may wait.
    pub fn ping_early(&mut self) {
        self.pings_early = true;
    }

    /// Whether a sync of this node failed.
    pub fn is_disk_dead(&self) -> bool {
        self.health.disk_dead
    }

    /// Takes an operator's order, and sends it to the controller. An adoption begins on this node. Without a
    /// controller, a node that is to be recovered obeys the order itself.
    pub fn order(&mut self, order: Order) -> Vec<Output> {
        if let Order::Adopt { epoch, lost } = &order {
            self.begin_adoption(*epoch, lost);
        } else if let Some(to) = self.obeyed_by(&order) {
            self.outputs.push(Output::Send(to, Message::Order(order)));
        }
        std::mem::take(&mut self.outputs)
    }

    /// Returns the outputs. A node whose number another process has makes no step and sends nothing under that number.
    fn take_outputs(&mut self) -> Vec<Output> {
        let mut outputs = std::mem::take(&mut self.outputs);
        if self.is_replaced() {
            outputs.retain(|output| matches!(output, Output::Request(..)));
        }
        outputs
    }

    /// Returns the node that must obey an order.
    fn obeyed_by(&self, order: &Order) -> Option<NodeId> {
        match (&self.view.controller, order) {
            (Some(controller), _) => Some(controller.value.node),
            (None, Order::Recover(node)) => Some(*node),
            (None, _) => None,
        }
    }

    /// Handles timers. Call it every few tens of milliseconds.
    #[must_use]
    pub fn tick(&mut self, now_ms: u64, copies: &impl Copies) -> Vec<Output> {
        let limit_ms = self.settings.request_ms;
        let late = self.requests.iter().filter(|(_, (purpose, sent_ms))| {
            *purpose != Purpose::Watch && now_ms >= sent_ms + limit_ms
        });
        let late: Vec<RequestId> = late.map(|(id, _)| *id).collect();
        for id in late {
            self.take_answer(id, &Answer::Unavailable, now_ms, copies);
            self.undecided = true;
        }
        self.ping(now_ms);
        self.keep_lease(now_ms, copies);
        self.keep_watch(now_ms);
        self.elect(now_ms);
        let repeat_ms = self.settings.repeat_ms;
        self.control_late(now_ms);
        self.adopt(now_ms);
        let kept_ms = 2 * repeat_ms;
        self.seals
            .retain(|_, pending| now_ms < pending.since_ms + kept_ms);
        let mut open = std::mem::take(&mut self.open);
        if now_ms >= self.look_ms {
            self.look_ms = now_ms + LOOKS * repeat_ms;
            open.extend(copies.damaged());
            self.health.damaged.clear();
            self.keep_manifests(now_ms, copies);
        }
        if now_ms >= self.look_at_all_ms {
            self.look_at_all_ms = now_ms + LOOKS_AT_ALL * repeat_ms;
            open.extend(copies.vbuckets());
            open.extend(self.agent.vbuckets());
        }
        open.extend(self.seals.keys());
        let mut reports = BTreeSet::new();
        for vb in open {
            let steps = self.outputs.len();
            let copy = copies.copy(vb);
            self.look(vb, copy);
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
        self.take_outputs()
    }

    /// Reports new needs of copies to the controller, which also asks for them.
    fn report(&mut self, reports: BTreeSet<CopyReport>) {
        let news: Vec<_> = reports.difference(&self.reported).copied().collect();
        self.reported = reports;
        if let Some(controller) = self.view.controller.as_ref().filter(|_| !news.is_empty()) {
            let to = controller.value.node;
            self.outputs.push(Output::Send(to, Message::Report(news)));
        }
    }

    /// Takes an answer of etcd; call [`Self::decide`] after it.
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
        self.take_outputs()
    }

    /// Runs the election and the controller after input: once for all answers and messages of a batch, since
    /// the controller checks every vBucket.
    #[must_use]
    pub fn decide(&mut self, now_ms: u64) -> Vec<Output> {
        if std::mem::take(&mut self.undecided) {
            self.elect(now_ms);
            self.control(now_ms);
        }
        self.take_outputs()
    }

    /// Takes a message of a node; call [`Self::decide`] after it.
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
            // From a controller that follows an etcd which this node does not follow, at least not yet.
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
                self.look(*vb, copies.copy(*vb));
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
        self.take_outputs()
    }

    /// Records that a step of a copy was made.
    #[must_use]
    pub fn stepped(&mut self, vb: Vb, copies: &impl Copies) -> Vec<Output> {
        self.open.insert(vb);
        self.look(vb, copies.copy(vb));
        self.take_outputs()
    }

    /// Puts out the next step of a copy, or the answer to its seal.
    pub(super) fn look(&mut self, vb: Vb, copy: Option<Copy>) {
        if self.health.disk_dead {
            return;
        }
        if let Some((_, term)) = self.sealed_for {
            let open = copy.filter(|copy| copy.term < term && copy.is_readable());
            let step = open.map(|_| Output::Step(Step::Seal { vb, term }));
            self.outputs.extend(step);
            return;
        }
        if let Some(pending) = self.seals.remove(&vb) {
            match seal(vb, pending.term, pending.at_least, copy.as_ref()) {
                // Check it again, until the controller repeats the seal.
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
}
