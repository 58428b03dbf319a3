//! The thread of the participant: events come in, requests, messages and work go out.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use cluster::agreed::{Seen, View};
use cluster::coord::Answer;
use cluster::{BucketId, Message, NodeId, Output, Participant, Settings, Vb};
use copies::{Confirmation, ConfirmationReceiver, ConfirmationSender, vb_of};
use registry::cluster::MemberStatus;

use crate::events::{DriverEvent, Work};
use crate::hosted::Hosted;
use crate::news::LoggedChange;
use crate::packet::{Envelope, Packet, PingStamp};
use crate::peers::Peers;
use crate::shared::{REPLACED, Shared};

/// Interval between two ticks; the next constant is the interval while copies move.
const TICK_MS: u64 = 50;
const BUSY_TICK_MS: u64 = 10;
/// Number of queued events to handle between two ticks, if there are as many. On a busy machine a tick may
/// take longer than the interval, and its messages come back as events.
const EVENTS: usize = 8 * 1024;

pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) settings: Settings,
    pub(crate) participant: Participant,
    pub(crate) events: Receiver<DriverEvent>,
    pub(crate) work: Sender<Work>,
    pub(crate) peers: Peers,
    /// Confirmations to other nodes, and those of other nodes.
    pub(crate) confirms_to: BTreeMap<NodeId, ConfirmationSender>,
    pub(crate) confirmed_by: ConfirmationReceiver,
    /// Copies with a step in progress.
    pub(crate) busy: BTreeSet<Vb>,
    /// Packets of the node to itself.
    pub(crate) own: Vec<Envelope>,
    /// Revision of the published view.
    pub(crate) published: u64,
    /// State of etcd that was last stored, at a step or at a new mark: it is on disk before the step is made.
    pub(crate) kept: Seen,
    /// State of etcd from which the newest maps were made.
    pub(crate) published_maps: PublishedMaps,
    /// Time of the last answer from etcd, in milliseconds.
    pub(crate) heard_ms: u64,
    /// Whether the next tick comes at once: moves, seals or steps got on, or other nodes may wait for a ping.
    pub(crate) got_on: bool,
}

/// State of etcd from which maps were made.
#[derive(Default)]
pub(crate) struct PublishedMaps {
    /// Newest revision of each bucket's chunks.
    chunks: BTreeMap<BucketId, u64>,
    /// Newest revision of the nodes, and their number.
    nodes: (u64, usize),
}

impl Driver {
    /// Runs until a stop event.
    pub(crate) fn run(mut self) {
        let mut tick_ms = self.shared.now_ms();
        loop {
            let wait_ms = tick_ms.saturating_sub(self.shared.now_ms());
            let mut next = match self.events.recv_timeout(Duration::from_millis(wait_ms)) {
                Err(RecvTimeoutError::Disconnected) => return,
                first => first.ok(),
            };
            let mut left = EVENTS;
            while let Some(event) = next {
                if matches!(event, DriverEvent::Stop) {
                    return;
                }
                self.take(event);
                left -= 1;
                next = (left > 0).then(|| self.events.try_recv().ok()).flatten();
            }
            self.decide();
            let ticks = std::mem::take(&mut self.got_on) || self.shared.now_ms() >= tick_ms;
            if ticks {
                self.tick();
                self.decide();
                let busy = self.participant.is_busy();
                tick_ms = self.shared.now_ms() + if busy { BUSY_TICK_MS } else { TICK_MS };
            }
            self.publish(ticks);
        }
    }

    /// Runs the controller after input, and handles the messages of the node to itself.
    fn decide(&mut self) {
        loop {
            while !self.own.is_empty() {
                for envelope in std::mem::take(&mut self.own) {
                    self.packet(envelope);
                }
            }
            let outputs = self.participant.decide(self.shared.now_ms());
            self.carry(outputs);
            if self.own.is_empty() {
                return;
            }
        }
    }

    fn tick(&mut self) {
        if self.shared.has_dead_disk() {
            self.participant.disk_died();
        }
        let full = self.shared.has_full_disk();
        self.participant.set_disk_full(full);
        let unmade = self.shared.unmade.lock().clone();
        self.participant.set_unmade(unmade);
        self.participant.set_starved(self.shared.starved());
        let now_ms = self.shared.now_ms();
        let outputs = self.participant.tick(now_ms, &self.shared.table);
        self.carry(outputs);
        if self.participant.is_replaced() {
            self.leave();
        }
        self.renew();
        self.shared.problems.log(now_ms);
        let users = self.participant.view().users.as_ref();
        let taken = self.shared.users.load(Ordering::Acquire);
        let newest = users.is_none_or(|users| taken == users.mod_revision);
        self.shared.pause.tick(now_ms, newest);
    }

    fn take(&mut self, event: DriverEvent) {
        let now_ms = self.shared.now_ms();
        let outputs = match event {
            DriverEvent::Answer(id, answered) => {
                if answered.is_ok() {
                    self.heard_ms = now_ms;
                }
                let answer = answered.unwrap_or_else(|problem| {
                    self.shared.note_problem(&problem);
                    Answer::Unavailable
                });
                self.participant
                    .answer(id, &answer, now_ms, &self.shared.table)
            }
            DriverEvent::Packet(envelope) => return self.packet(envelope),
            DriverEvent::Order(order) => self.participant.order(order),
            DriverEvent::Stepped(vbs) => {
                self.got_on = true;
                let mut outputs = Vec::new();
                for vb in vbs {
                    self.busy.remove(&vb);
                    // A step of a bucket that is not there would be requested again at once.
                    if self.shared.table.get(vb.bucket).is_some() {
                        outputs.extend(self.participant.stepped(vb, &self.shared.table));
                    }
                }
                outputs
            }
            DriverEvent::Made(bucket) => {
                let of_bucket = |vb: &Vb| vb.bucket == bucket;
                let vbs: Vec<Vb> = self
                    .participant
                    .agent()
                    .vbuckets()
                    .filter(of_bucket)
                    .collect();
                let stepped = |vb| self.participant.stepped(vb, &self.shared.table);
                vbs.into_iter().flat_map(stepped).collect()
            }
            DriverEvent::Applied => {
                self.got_on = true;
                return self.participant.ping_early();
            }
            DriverEvent::Stop => return,
        };
        self.carry(outputs);
    }

    fn packet(&mut self, envelope: Envelope) {
        if self.participant.is_replaced() {
            return;
        }
        let (from, now_ms) = (envelope.from, self.shared.now_ms());
        let table = &self.shared.table;
        match envelope.packet {
            Packet::Message(message) => {
                let outputs = self.participant.message(from, &message, now_ms, table);
                self.carry(outputs);
            }
            Packet::Ping(ping) => {
                self.shared.note_taken(from, ping.taken);
                let runs = Message::Ping;
                let outputs = self.participant.message(from, &runs, now_ms, table);
                self.carry(outputs);
                let all = self.shared.table.all();
                let published_maps = self.confirms_to.entry(from).or_default();
                let (to, boot) = ((from, ping.known), self.shared.boot);
                let answer =
                    published_maps.answer(to, boot, all.iter().map(|hosted| &hosted.copies));
                if let Some(Confirmation { since, at, buckets }) = answer {
                    let confirm = Packet::Confirm {
                        ping,
                        since,
                        at,
                        buckets,
                    };
                    self.send(from, confirm);
                }
            }
            Packet::Confirm {
                ping,
                since,
                at,
                buckets,
            } if ping.boot == self.shared.boot => {
                self.got_on |= self.participant.is_busy();
                let answer = Confirmation { since, at, buckets };
                let all = table.all();
                let all = all.iter().map(|hosted| &hosted.copies);
                self.confirmed_by
                    .take((from, ping.at_ms.min(now_ms)), &answer, all);
            }
            Packet::Confirm { .. } => {}
        }
    }

    fn carry(&mut self, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Request(id, request) => self.shared.etcd.request(id, request),
                Output::Send(to, Message::Ping) => {
                    let all = self.shared.table.all();
                    let all = all.iter().map(|hosted| &hosted.copies);
                    let ping = PingStamp {
                        known: self.confirmed_by.position(to, all),
                        boot: self.shared.boot,
                        at_ms: self.shared.now_ms(),
                        taken: self.shared.taken_here(),
                    };
                    self.send(to, Packet::Ping(ping));
                }
                Output::Send(to, message) => self.send(to, Packet::Message(message)),
                Output::Step(step) => {
                    let vb = vb_of(&step);
                    if self.busy.insert(vb) {
                        self.keep();
                        self.work(Work::Step(step));
                    }
                }
            }
        }
    }

    /// Stores the newest seen state, before later work.
    fn keep(&mut self) {
        let newest = self.participant.newest();
        if self.kept != newest {
            self.kept = newest;
            self.work(Work::Keep(newest));
        }
    }

    fn work(&self, work: Work) {
        let sent = self.work.send(work);
        debug_assert!(sent.is_ok(), "the worker lives as long as the driver");
    }

    fn send(&mut self, to: NodeId, packet: Packet) {
        let from = self.shared.me;
        let envelope = Envelope { from, packet };
        if to == from {
            self.own.push(envelope);
        } else {
            let view = self.participant.view();
            self.peers.send(view, to, envelope.to_bytes());
        }
    }

    /// Ends the part of this process in the cluster: another one has its number. What it acknowledged from here on would
    /// pass for an acknowledgement of the other one.
    fn leave(&self) {
        for hosted in self.shared.table.all() {
            hosted.links.lock().clear();
        }
    }

    /// Extends the leases of the node's copies as far as its own lease and the last confirmations allow.
    fn renew(&self) {
        let alive = !self.participant.is_disk_dead() && !self.participant.is_replaced();
        let until_ms = alive.then(|| self.participant.lease_until_ms());
        let now_ms = self.shared.now_ms();
        self.shared.pause.renew(now_ms, until_ms.unwrap_or(0));
        for hosted in self.shared.table.all() {
            hosted.copies.renew(&self.settings, until_ms);
        }
    }

    /// Returns the node's status as of `view`.
    fn status(&self, view: Arc<View>) -> MemberStatus {
        let now_ms = self.shared.now_ms();
        let coordinator = self.participant.coordinator();
        let heard = self.participant.heard().iter();
        let silent = heard.map(|(node, at_ms)| (*node, now_ms.saturating_sub(*at_ms)));
        let here = coordinator.term().is_some();
        MemberStatus {
            etcd_problem: self.shared.etcd_failures.lock().reason(now_ms),
            removed: self.participant.is_removed(),
            replaced: self.participant.is_replaced(),
            controller: view.controller.as_ref().map(|entry| entry.value.node),
            etcd_silent_ms: now_ms.saturating_sub(self.heard_ms),
            lease_left_ms: self.participant.lease_until_ms().saturating_sub(now_ms),
            silent_ms: silent.collect(),
            etcd_went_back: self.participant.etcd_went_back(),
            seen_epoch: self.participant.newest().version.epoch,
            adoption_waits: self.participant.adoption_waits(),
            progress: here.then(|| coordinator.progress().clone()),
            view,
        }
    }

    /// Publishes the status at each tick and with each new view, and makes buckets and maps follow the view.
    fn publish(&mut self, ticks: bool) {
        let before = self.shared.view();
        let seen = self.participant.view();
        let is_new = seen.revision != self.published;
        // Addresses of other nodes may be known before any revision is followed.
        let early = seen.revision == 0 && before.nodes.len() != seen.nodes.len();
        if !(ticks || is_new || early) {
            return;
        }
        let view = if is_new || early {
            Arc::new(seen.clone())
        } else {
            Arc::clone(&before)
        };
        let status = self.status(Arc::clone(&view));
        if status.replaced && !self.shared.status.read().replaced {
            tracing::error!("{REPLACED}");
        }
        *self.shared.status.write() = status;
        if !is_new {
            return;
        }
        self.published = view.revision;
        if self.participant.newest().mark != self.kept.mark {
            self.keep();
        }
        for news in LoggedChange::between(&before, &view, (self.shared.me, self.shared.boot)) {
            news.log();
        }
        self.work(Work::Buckets(Arc::clone(&view)));
        self.tell_maps(&view);
    }

    /// Notifies clients of changed maps.
    fn tell_maps(&mut self, view: &View) {
        // The removal of a node does not change the newest revision: the number of nodes shows it.
        let newest = view.nodes.values().map(|entry| entry.mod_revision).max();
        let nodes = (newest.unwrap_or_default(), view.nodes.len());
        let changed = std::mem::replace(&mut self.published_maps.nodes, nodes) != nodes;
        if changed {
            registry::publish_cluster_nodes(&self.shared.node);
        }
        let all = self.shared.table.all();
        let kept = |hosted: &&Arc<Hosted>| view.specs.contains_key(&hosted.id);
        for hosted in all.iter().filter(kept) {
            let chunks = view.maps.range((hosted.id, 0)..=(hosted.id, u16::MAX));
            let newest = chunks.map(|(_, entry)| entry.mod_revision).max();
            let newest = newest.unwrap_or_default();
            if self.published_maps.chunks.insert(hosted.id, newest) != Some(newest) || changed {
                registry::publish_cluster(&self.shared.node, &hosted.served);
            }
        }
    }
}
