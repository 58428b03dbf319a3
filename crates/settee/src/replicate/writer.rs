//! Writer of the target: it sends each change to the active node of its vBucket by the newest map.
//!
//! Each node has one connection. Writes of a vBucket are on one connection at a time. Writes that a node refused since
//! the vBucket moved, or did not answer when the connection was lost, are queued and sent to the new node in their
//! order. Other vBuckets do not wait for them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use client::{Client, ClientError, Nodes, map_in, wait_for_any};
use model::{Datatype, Seqno, VbId, VbUuid};
use wire::request::{ObserveSeqno, WithMeta};
use wire::response::ObserveSeqnoReply;
use wire::{Envelope, Frame, Message as _, Opaque, Status};

use super::batch::QueuedWrite;
use super::counts::DirectionCounts;
use super::outbound::{Outbound, Reply, asking, is_for_the_moment};
use super::unpersisted::UnpersistedWrites;
use super::write_queues::WriteQueues;
use crate::exit::{Failure, Sysexit, code_of_status};
use crate::stderr::note;
use crate::stream::{Broken, ConnectRetries};

/// Limit of unanswered and queued writes, in bytes.
const ROOM_BYTES: usize = 16 * 1024 * 1024;

/// Options of the writer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Writing {
    /// Whether compressed values are sent compressed.
    pub(super) compressed: bool,
    pub(super) tells_conflicts: bool,
    /// Longest time in which no reachable node serves a vBucket.
    pub(super) patience: Duration,
}

/// The writer of the target.
#[derive(Debug)]
pub(super) struct TargetWriter<'a> {
    nodes: Nodes,
    retries: ConnectRetries,
    links: BTreeMap<usize, Outbound>,
    queues: WriteQueues,
    unpersisted: UnpersistedWrites,
    counts: &'a DirectionCounts,
    writing: Writing,
    /// Newest mark.
    mark: u64,
    next_opaque: u32,
}

impl<'a> TargetWriter<'a> {
    /// Creates a writer without connections.
    pub(super) fn new(nodes: Nodes, counts: &'a DirectionCounts, writing: Writing) -> Self {
        Self {
            queues: WriteQueues::new(nodes.vbuckets(), nodes.address(0)),
            nodes,
            retries: ConnectRetries::default(),
            links: BTreeMap::new(),
            unpersisted: UnpersistedWrites::default(),
            counts,
            writing,
            mark: 0,
            next_opaque: 1,
        }
    }

    /// Returns whether there is room for more changes.
    pub(super) fn has_room(&self) -> bool {
        let under_way: usize = self.links.values().map(Outbound::bytes).sum();
        under_way + self.queues.waiting_bytes() < ROOM_BYTES
    }

    /// Returns whether no write is unanswered or queued, and all observed changes are kept.
    pub(super) fn is_idle(&self) -> bool {
        let mut links = self.links.values();
        links.all(Outbound::is_idle) && self.queues.is_idle() && self.unpersisted.is_kept()
    }

    /// Sets a mark that separates earlier writes from later ones.
    pub(super) fn set_mark(&mut self) -> u64 {
        self.mark += 1;
        self.mark
    }

    /// Returns whether all writes before this mark are answered.
    pub(super) fn is_done_before(&self, mark: u64) -> bool {
        let mut links = self.links.values();
        links.all(|link| link.is_done_before(mark)) && self.queues.is_done_before(mark)
    }

    /// Skips a change that the target has already at this seqno of this history; it is observed until it is kept.
    pub(super) fn skip(&mut self, vbucket: VbId, history: VbUuid, seqno: Seqno) {
        self.unpersisted.add(vbucket, history, seqno);
    }

    /// Begins to observe whether all changes written so far are kept.
    pub(super) fn begin_observing(&mut self) {
        self.unpersisted.begin();
    }

    /// Returns whether all observed changes are on the active node's disk, and at most of the copies.
    pub(super) fn is_kept(&self) -> bool {
        self.unpersisted.is_kept()
    }

    /// Sends or queues a write.
    ///
    /// # Errors
    /// The write does not fit a frame.
    pub(super) fn write(
        &mut self,
        change: &WithMeta<'_>,
        vbucket: VbId,
        datatype: Datatype,
    ) -> Result<(), ClientError> {
        let opaque = Opaque(self.next_opaque.to_be_bytes());
        self.next_opaque = self.next_opaque.wrapping_add(1);
        let envelope = Envelope {
            vbucket,
            opaque,
            datatype,
            ..Envelope::default()
        };
        DirectionCounts::add(&self.counts.sent);
        let mark = self.mark;
        let node = self.queues.route(vbucket, self.nodes.owner(vbucket));
        if let Some(node) = node.filter(|node| self.links.contains_key(node)) {
            return self.append(vbucket, node, mark, |frames| {
                Ok(change.encode(&envelope, frames)?)
            });
        }
        let mut bytes = Vec::new();
        change.encode(&envelope, &mut bytes)?;
        let held = QueuedWrite {
            mark,
            opaque,
            bytes,
        };
        self.queues.hold(vbucket, held);
        Ok(())
    }

    /// Appends a write to those that go to a node.
    fn append(
        &mut self,
        vbucket: VbId,
        node: usize,
        mark: u64,
        write: impl FnOnce(&mut Vec<u8>) -> Result<(), ClientError>,
    ) -> Result<(), ClientError> {
        if let Some(link) = self.links.get_mut(&node)
            && link.append(vbucket, mark, write)?
        {
            self.queues.begin(vbucket, node);
        }
        Ok(())
    }

    /// Sends due writes and requests, and waits for answers, but not longer than `at_most`.
    ///
    /// # Errors
    /// A node refused a write for good, written changes are lost, or no node serves a vBucket for too long.
    pub(super) fn turn(&mut self, at_most: Duration) -> Result<(), Broken> {
        for node in self.queues.cut_off() {
            let address = self.nodes.address(node);
            let reason = format!("{address} does not answer for vBuckets that moved away");
            self.lose(node, Failure::new(Sysexit::Unavailable, reason));
        }
        self.send_waiting()?;
        self.observe()?;
        self.queues.look(self.writing.patience)?;
        self.each(Outbound::send)?;
        let ready = wait_for_any(self.links.values().map(|link| &link.feed), at_most)?;
        let mut ready = ready.into_iter();
        self.each(|link| link.read(ready.next().unwrap_or(false)))?;
        let nodes: Vec<usize> = self.links.keys().copied().collect();
        nodes.into_iter().try_for_each(|node| self.take(node))
    }

    /// Calls `act` for each connection, and drops lost connections.
    fn each(
        &mut self,
        mut act: impl FnMut(&mut Outbound) -> Result<(), ClientError>,
    ) -> Result<(), Broken> {
        let mut lost = Vec::new();
        for (node, link) in &mut self.links {
            match act(link) {
                Ok(()) => {}
                Err(error) if error.is_lost() => lost.push((*node, error.into())),
                Err(error) => return Err(error.into()),
            }
        }
        for (node, failure) in lost {
            self.lose(node, failure);
        }
        Ok(())
    }

    /// Sends due queued writes whose node can be reached.
    fn send_waiting(&mut self) -> Result<(), Broken> {
        for vbucket in self.queues.due() {
            match self.nodes.owner(vbucket) {
                Some(node) if self.reach(node)? => {
                    for held in self.queues.take_waiting(vbucket).into_values() {
                        self.append(vbucket, node, held.mark, |frames| {
                            frames.extend_from_slice(&held.bytes);
                            Ok(())
                        })?;
                    }
                }
                _ => self.queues.is_unserved(vbucket),
            }
        }
        Ok(())
    }

    /// Asks all copies of observed vBuckets for their seqnos.
    fn observe(&mut self) -> Result<(), Broken> {
        if !self.unpersisted.is_due() {
            return Ok(());
        }
        for vbucket in self.unpersisted.vbuckets() {
            let row = self.nodes.copies(vbucket).to_vec();
            let active = self.nodes.owner(vbucket);
            for node in row.iter().copied().flatten() {
                if !self.reach(node)? {
                    continue;
                }
                let histories = self.unpersisted.ask(vbucket, node, active == Some(node));
                let link = self.links.get_mut(&node);
                let Some(link) = link else { continue };
                for uuid in histories {
                    let question = ObserveSeqno { uuid };
                    link.feed.output().post(&question, &asking(vbucket))?;
                }
            }
            match active.filter(|node| self.links.contains_key(node)) {
                Some(_) => self.queues.is_reached(vbucket),
                None => self.queues.is_unserved(vbucket),
            }
            self.settle(vbucket);
        }
        Ok(())
    }

    fn settle(&mut self, vbucket: VbId) {
        let row = self.nodes.copies(vbucket).to_vec();
        let links = &self.links;
        self.unpersisted
            .settle(vbucket, &row, |node| links.contains_key(&node));
    }

    /// Connects to a node, unless it is connected or its back-off runs; returns whether it is connected.
    fn reach(&mut self, node: usize) -> Result<bool, Broken> {
        if self.links.contains_key(&node) {
            return Ok(true);
        }
        if !self.retries.is_due(node) {
            return Ok(false);
        }
        match self.nodes.open(node) {
            Ok(client) => {
                self.check(&client)?;
                self.links.insert(node, Outbound::new(client));
                Ok(true)
            }
            Err(error) => {
                self.queues.note(error.into());
                self.retries.failed(&mut self.nodes, node)?;
                self.follow()?;
                Ok(false)
            }
        }
    }

    /// Checks that a node accepts values in the same form as the other nodes: compressed or not.
    fn check(&self, client: &Client) -> Result<(), Broken> {
        if client.is_compressed() == self.writing.compressed {
            return Ok(());
        }
        let reason = "the nodes that are written take values in different forms";
        Err(again(reason))
    }

    /// Handles all received frames of a node.
    fn take(&mut self, node: usize) -> Result<(), Broken> {
        while let Some(link) = self.links.get_mut(&node) {
            let nodes = &mut self.nodes;
            let taken = link.feed.take(|frame, _| {
                let is_newer = map_in(frame).is_some_and(|map| nodes.learn(map, node));
                Ok::<_, ClientError>((Reply::of(frame)?, is_newer))
            })?;
            let Some((answered, is_newer)) = taken else {
                return Ok(());
            };
            if is_newer {
                self.follow()?;
            }
            self.on_answer(answered, node)?;
        }
        Ok(())
    }

    /// Applies a newer map.
    fn follow(&mut self) -> Result<(), Broken> {
        for (node, link) in &mut self.links {
            let nodes = &self.nodes;
            link.histories
                .retain(|vbucket, _| nodes.owner(*vbucket) == Some(*node));
        }
        if !self.queues.follow(&self.nodes) {
            return Err(again("the bucket that is written has other vBuckets now"));
        }
        Ok(())
    }

    fn on_answer(&mut self, answered: Reply, node: usize) -> Result<(), Broken> {
        match answered {
            Reply::Nothing => Ok(()),
            Reply::Batch(active) => {
                self.on_batch(active, node);
                Ok(())
            }
            Reply::History(vbucket, history) => {
                let link = self.links.get_mut(&node);
                let known = link.and_then(|link| link.histories.get_mut(&vbucket));
                if let Some(known) = known {
                    *known = Some(history);
                }
                Ok(())
            }
            Reply::Observed(reply) => self.on_observed(&reply, node),
            Reply::OtherHistory(vbucket) if self.nodes.owner(vbucket) == Some(node) => {
                Err(again(NEW_HISTORY))
            }
            Reply::OtherHistory(vbucket) | Reply::NotObserved(vbucket) => {
                self.unpersisted.unanswered(Some(vbucket), node);
                Ok(())
            }
            Reply::Refused { opaque, status } => self.on_refused(opaque, status, node),
        }
    }

    fn on_batch(&mut self, active: Vec<(VbId, Seqno)>, node: usize) {
        let Some(link) = self.links.get_mut(&node) else {
            return;
        };
        let Some(batch) = link.take_answered() else {
            return;
        };
        let active = active.into_iter();
        let its = active.filter(|(vbucket, _)| batch.vbuckets.contains(vbucket));
        let active: BTreeMap<VbId, Seqno> = its.collect();
        let mut moved = BTreeSet::new();
        for vbucket in &batch.vbuckets {
            self.queues.end(*vbucket);
            let history = link.histories.get(vbucket).copied().flatten();
            if let (Some(seqno), Some(history)) = (active.get(vbucket), history) {
                self.unpersisted.add(*vbucket, history, *seqno);
            } else {
                link.histories.remove(vbucket);
                moved.insert(*vbucket);
            }
        }
        for (vbucket, held) in batch.again(&moved) {
            DirectionCounts::add(&self.counts.retried);
            self.queues.pause(vbucket, self.nodes.owner(vbucket));
            self.queues.hold(vbucket, held);
        }
        for vbucket in &batch.vbuckets {
            if moved.contains(vbucket) {
                self.queues.is_unserved(*vbucket);
            } else {
                self.queues.is_served(*vbucket);
            }
        }
    }

    fn on_observed(&mut self, reply: &ObserveSeqnoReply, node: usize) -> Result<(), Broken> {
        let is_active = self.nodes.owner(reply.vbucket) == Some(node);
        if self.unpersisted.answered(reply, node, is_active) {
            return Err(again(NEW_HISTORY));
        }
        self.settle(reply.vbucket);
        Ok(())
    }

    fn on_refused(&mut self, opaque: Opaque, status: Status, node: usize) -> Result<(), Broken> {
        let link = self.links.get_mut(&node);
        let Some(batch) = link.and_then(Outbound::answered) else {
            return Ok(());
        };
        if status == Status::KEY_EEXISTS {
            DirectionCounts::add(&self.counts.not_newer);
            if self.writing.tells_conflicts {
                let what = batch.write(opaque).as_ref().map(described);
                let what = what.unwrap_or_default();
                note(format_args!("not newer than what is there: {what}"));
            }
            return Ok(());
        }
        let write = batch.write(opaque);
        let is_retried = |write: &Frame<'_>| !self.queues.is_refused_for_long(write.vbucket());
        // The node may learn of a new collection later than other nodes.
        let is_new = status == Status::UNKNOWN_COLLECTION && write.as_ref().is_some_and(is_retried);
        if is_new || is_for_the_moment(status) {
            batch.refused.insert(opaque.0);
            return Ok(());
        }
        let (name, number) = (status.description(), status.0);
        let what = write.as_ref().map(described).unwrap_or_default();
        let reason = format!("a write was refused: {name}, status 0x{number:02x}: {what}");
        Err(Broken {
            failure: Failure::new(code_of_status(status), reason),
            // A collection of this name may have been made anew: the next session looks it up.
            again: status == Status::UNKNOWN_COLLECTION,
        })
    }

    /// Drops a lost connection and queues its unanswered writes for the current owners of their vBuckets.
    fn lose(&mut self, node: usize, failure: Failure) {
        let Some(link) = self.links.remove(&node) else {
            return;
        };
        note(format_args!("{failure}; trying again"));
        self.retries.lost(node, link.was_of_use);
        self.unpersisted.unanswered(None, node);
        for batch in link.into_unanswered() {
            for vbucket in &batch.vbuckets {
                self.queues.end(*vbucket);
            }
            for (vbucket, held) in batch.again(&batch.vbuckets) {
                DirectionCounts::add(&self.counts.retried);
                self.queues.hold(vbucket, held);
            }
        }
        self.queues.note(failure);
    }
}

const NEW_HISTORY: &str =
    "the bucket that is written began anew, and lost changes that are sent again";

/// Returns an error after which the direction connects again and continues from the saved position.
fn again(reason: &str) -> Broken {
    Broken {
        failure: Failure::new(Sysexit::Unavailable, reason),
        again: true,
    }
}

/// Describes a write for a message.
fn described(write: &Frame<'_>) -> String {
    let Ok(change) = WithMeta::parse(write) else {
        return String::new();
    };
    let key = model::split_key(change.key).map_or(change.key, |(_, key)| key);
    let key = String::from_utf8_lossy(key);
    format!("{key:?}, rev {}, CAS {}", change.rev, change.cas.0)
}
