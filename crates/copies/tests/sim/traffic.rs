//! Streams between copies, writes to disks, and clients.

use std::sync::Arc;

use bucket::{Clock as _, DurableWait};
use cluster::agent::Role;
use cluster::{BucketId, Copies as _, Message, NodeId, Vb};
use consumer::Unusable;
use copies::{Confirmation, ConfirmedPosition, node_name};
use engine::{Decision, Requirement};
use model::{DurabilityLevel, Seqno, VbId};

use crate::buckets::{KEYS, KEYS_DEFAULT, Written, WrittenValue, key};
use crate::bugs::Bug;
use crate::link::{Bytes, Got, SILENCE_MS, Served};
use crate::node::Node;
use crate::producer::{Peer, Producer};
use crate::world::{Packet, World};

/// Silence of a consumer, in milliseconds, after which its connection is given up.
const CONSUMER_SILENCE_MS: u64 = 4_000;
/// Probability that a flush gets only some of the changes on disk.
const PARTS_PER_MILLE: u64 = 600;
/// Probability that a tick of a node purges all its tombstones.
const PURGES_PER_MILLE: u64 = 20;
/// Probability that a tick of a node looks for expired documents.
const EXPIRIES_PER_MILLE: u64 = 30;
/// Probability that memory of a node is short at a tick.
const SQUEEZES_PER_MILLE: u64 = 100;
/// Probability that the collection of a bucket is made or dropped before a write.
const COLLECTION_CHANGES_PER_MILLE: u64 = 10;
/// Number of ticks between signs of life on connections.
const SIGN_TICKS: u64 = 5;

/// A durable write that a client waits for, or that is not on the disks of a majority.
pub(crate) struct Wait {
    pub(crate) vb: Vb,
    pub(crate) number: u64,
    pub(crate) term: u64,
    pub(crate) to_disk: bool,
    seqno: Seqno,
    decision: Option<Arc<DurableWait>>,
}

impl World {
    /// Writes some of a node's memory to disk.
    pub(crate) fn persist(&mut self, index: usize) {
        if self.rng.per_mille(self.sync_per_mille) {
            let part = self.divides && self.rng.per_mille(PARTS_PER_MILLE);
            for bucket in self.nodes[index].vbs.buckets.values() {
                if part {
                    bucket.flush_parts(&mut self.rng);
                    continue;
                }
                bucket.flush();
                if self.collects {
                    bucket.copies.bucket.erase_step();
                }
            }
        }
        if self.deletes && self.rng.per_mille(PURGES_PER_MILLE) {
            for bucket in self.nodes[index].vbs.buckets.values() {
                bucket.purge();
            }
        }
        if self.expires && self.rng.per_mille(EXPIRIES_PER_MILLE) {
            let on_disk = self.rng.per_mille(500);
            for bucket in self.nodes[index].vbs.buckets.values() {
                bucket.expire(on_disk);
            }
        }
        if self.squeezes && self.rng.per_mille(SQUEEZES_PER_MILLE) {
            let keys_too = self.rng.per_mille(500);
            for bucket in self.nodes[index].vbs.buckets.values() {
                bucket.squeeze(keys_too);
            }
        }
    }

    /// Sends signs of life on connections, and gives up silent ones.
    pub(crate) fn keep_connections(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.ticks += 1;
        let signs = node.ticks.is_multiple_of(SIGN_TICKS);
        let now_ms = node.clock_ms(self.now_ms);
        let mut packets = Vec::new();
        for (id, bucket) in &mut node.vbs.buckets {
            for (to, link) in bucket.links.get_mut() {
                if link.broken_until_ms.is_some() {
                    continue;
                }
                if now_ms > link.heard_ms + SILENCE_MS {
                    link.breaks(now_ms);
                } else if signs {
                    let bytes = link.places.send(link.number, Vec::new());
                    packets.push((usize::from(to.0), Packet::Asked(*id, bytes)));
                }
            }
            bucket
                .served
                .retain(|_, served| now_ms <= served.heard_ms + CONSUMER_SILENCE_MS);
            for (to, served) in bucket.served.iter_mut().filter(|_| signs) {
                let bytes = served.places.send(served.number, Vec::new());
                packets.push((*to, Packet::Told(*id, bytes)));
            }
        }
        for (to, packet) in packets {
            self.send_in_order(index, to, packet);
        }
    }

    /// Sends pending bytes on the connections of a node, and reports decisions of durable writes to clients.
    pub(crate) fn pump(&mut self, index: usize) {
        if !self.nodes[index].runs(self.now_ms) {
            return;
        }
        self.decided(index);
        let node = &mut self.nodes[index];
        let now_ms = node.clock_ms(self.now_ms);
        let mut packets = Vec::new();
        for (id, bucket) in &mut node.vbs.buckets {
            let broken = bucket.links.get_mut().iter();
            let broken = broken.filter(|(_, link)| {
                link.broken_until_ms
                    .is_some_and(|until_ms| now_ms >= until_ms)
            });
            let broken: Vec<NodeId> = broken.map(|(to, _)| *to).collect();
            for to in broken {
                let link = bucket.link(to, &node.numbers);
                bucket.links.get_mut().insert(to, link);
            }
            for (to, link) in bucket.links.get_mut() {
                let mut out = Vec::new();
                link.speak(now_ms, &mut out);
                if !out.is_empty() {
                    let bytes = link.places.send(link.number, out);
                    packets.push((usize::from(to.0), Packet::Asked(*id, bytes)));
                }
            }
            for (to, served) in &mut bucket.served {
                let mut out = Vec::new();
                served.producer.produce(self.changes_max, &mut out);
                if !out.is_empty() {
                    let bytes = served.places.send(served.number, out);
                    packets.push((*to, Packet::Told(*id, bytes)));
                }
            }
        }
        for (to, packet) in packets {
            self.send_in_order(index, to, packet);
        }
    }

    /// Handles bytes from a consumer.
    pub(crate) fn take_asked(&mut self, from: usize, to: usize, (id, bytes): (BucketId, Bytes)) {
        let node = &mut self.nodes[to];
        let now_ms = node.clock_ms(self.now_ms);
        let number = bytes.number;
        let Some(bucket) = node.vbs.buckets.get_mut(&id) else {
            return self.send(to, from, Packet::Reset(id, number));
        };
        let known = bucket.served.get(&from).map(|served| served.number);
        if known.is_none_or(|known| known < number) && bytes.place == 0 {
            let name = node_name(NodeId(from as u16));
            let served = Served {
                number,
                places: crate::link::Places::default(),
                heard_ms: now_ms,
                producer: Producer::new(
                    Peer::node(name, bucket.bug),
                    Arc::clone(&bucket.copies.bucket),
                ),
            };
            // The old connection is removed first: its cursors have the same names.
            drop(bucket.served.remove(&from));
            bucket.served.insert(from, served);
        }
        let served = bucket.served.get_mut(&from);
        let served = served.filter(|served| served.number == number);
        let Some(served) = served else {
            return self.send(to, from, Packet::Reset(id, number));
        };
        match served.places.got(bytes.place) {
            Got::Next => {
                let mut out = Vec::new();
                served.take(&bytes.frames, now_ms, &mut out);
                if !out.is_empty() {
                    let bytes = served.places.send(number, out);
                    self.send_in_order(to, from, Packet::Told(id, bytes));
                }
            }
            Got::Again => {}
            Got::Gap => {
                bucket.served.remove(&from);
                self.send(to, from, Packet::Reset(id, number));
            }
        }
    }

    /// Handles bytes from a producer.
    pub(crate) fn take_told(&mut self, from: usize, to: usize, (id, bytes): (BucketId, Bytes)) {
        let node = &mut self.nodes[to];
        let now_ms = node.clock_ms(self.now_ms);
        let Some(bucket) = node.vbs.buckets.get_mut(&id) else {
            return;
        };
        let link = bucket.links.get_mut().get_mut(&NodeId(from as u16));
        let link =
            link.filter(|link| link.number == bytes.number && link.broken_until_ms.is_none());
        let Some(link) = link else {
            return;
        };
        match link.places.got(bytes.place) {
            Got::Next => {}
            Got::Again => return,
            Got::Gap => return link.breaks(now_ms),
        }
        let mut out = Vec::new();
        match link.take(&bytes.frames, now_ms, &mut out) {
            Ok(()) => {}
            Err(Unusable::Violation(vb, violation)) => {
                let what = format!("n{from} to n{to}, bucket {}, {vb}: {violation}", id.0);
                self.checks.fail(what);
                return;
            }
            Err(Unusable::Stuck(vb, reason)) => {
                link.breaks(now_ms);
                self.tell(|| format!("n{to} cannot follow n{from} with {vb}: {reason}"));
                return;
            }
        }
        if !out.is_empty() {
            let bytes = link.places.send(link.number, out);
            self.send_in_order(to, from, Packet::Asked(id, bytes));
        }
    }

    pub(crate) fn take_reset(&mut self, from: usize, to: usize, (id, number): (BucketId, u64)) {
        let node = &mut self.nodes[to];
        let now_ms = node.clock_ms(self.now_ms);
        if let Some(bucket) = node.vbs.buckets.get_mut(&id)
            && let Some(link) = bucket.links.get_mut().get_mut(&NodeId(from as u16))
            && link.number == number
        {
            link.breaks(now_ms);
        }
    }

    pub(crate) fn take_ping(
        &mut self,
        from: usize,
        to: usize,
        (boot, at_ms): (u64, u64),
        known: ConfirmedPosition,
    ) {
        let node = &mut self.nodes[to];
        let (peer, now_ms) = (NodeId(from as u16), node.clock_ms(self.now_ms));
        let outputs = node
            .participant
            .message(peer, &Message::Ping, now_ms, &node.vbs);
        let told = node.confirms_to.entry(peer).or_default();
        let all = node.vbs.buckets.values().map(|bucket| &bucket.copies);
        if let Some(answer) = told.answer((peer, known), node.boot, all) {
            self.send(to, from, Packet::Confirm(boot, at_ms, answer));
        }
        self.carry(to, outputs);
    }

    pub(crate) fn take_confirmation(
        &mut self,
        from: usize,
        to: usize,
        (boot, at_ms): (u64, u64),
        answer: &Confirmation,
    ) {
        let node = &mut self.nodes[to];
        if node.boot != boot {
            return;
        }
        let now_ms = node.clock_ms(self.now_ms);
        let of = (NodeId(from as u16), at_ms.min(now_ms));
        let all = node.vbs.buckets.values().map(|bucket| &bucket.copies);
        node.confirmed_by.take(of, answer, all);
        node.renew();
        self.on_disk(to);
    }

    /// Reports the decisions of durable writes to clients.
    fn decided(&mut self, index: usize) {
        let astray = self.is_astray(index);
        let node = &mut self.nodes[index];
        for wait in std::mem::take(&mut node.waits) {
            let decision = wait.decision.as_ref().and_then(|wait| wait.decision());
            match decision {
                None => node.waits.push(wait),
                Some(Decision::Committed(mutated)) if !astray => {
                    if let Some(place) = self.checks.place(wait.number)
                        && let Some(subscriber) = &mut self.subscriber
                    {
                        subscriber.changed(place, mutated);
                    }
                    let alone = node.vbs.is_alone(wait.vb);
                    let how = (wait.to_disk, alone);
                    self.checks
                        .acknowledged((wait.vb, wait.number), wait.term, how);
                    if !wait.to_disk {
                        node.in_memory.push(wait);
                    }
                }
                Some(_) => {}
            }
        }
    }

    /// Records writes, acknowledged from memory, that are on the disks of a majority.
    pub(crate) fn on_disk(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        let (me, vbs, checks) = (node.id, &node.vbs, &mut self.checks);
        node.in_memory.retain(|wait| {
            let (Some(state), Some(bucket)) =
                (vbs.state(wait.vb), vbs.buckets.get(&wait.vb.bucket))
            else {
                return false;
            };
            let of = bucket
                .copies
                .bucket
                .with_vbucket(VbId(wait.vb.number), |vbucket| {
                    let entry = vbucket.failover_log().newest().seqno;
                    (vbucket.term(), vbucket.persisted_seqno(), entry)
                });
            let Some((term, persisted, entry)) = of else {
                return false;
            };
            let (Some(topology), true) = (
                state.topology.filter(|_| state.role == Role::Active),
                term == wait.term,
            ) else {
                return false;
            };
            let needed = wait.seqno.max(entry).0;
            let has = |node: NodeId| {
                let of_other = state.acknowledged.get(&node).copied();
                let own = (node == me).then_some(persisted.0);
                of_other.or(own).is_some_and(|at| at >= needed)
            };
            let is = topology.is_durable(has);
            if is {
                checks.on_disk(wait.number);
            }
            !is
        });
    }

    /// Lets clients write to the copies that they believe to be active.
    pub(crate) fn clients(&mut self) {
        let nodes = (0..self.nodes.len()).filter(|index| !self.is_astray(*index));
        let nodes: Vec<usize> = nodes.collect();
        for vb in self.vbs.clone() {
            let nodes = nodes.iter().map(|index| &self.nodes[*index]);
            self.checks.one_serves(nodes, vb, self.now_ms);
        }
        if self.quiet {
            return;
        }
        let changes = self.collects && self.restored.is_none();
        if changes && self.rng.per_mille(COLLECTION_CHANGES_PER_MILLE) {
            let vb = self.vbs[self.rng.index(self.vbs.len())];
            self.change_collection(vb.bucket);
        }
        let vb = self.vbs[self.rng.index(self.vbs.len())];
        let serving = (0..self.nodes.len()).filter(|at| self.nodes[*at].serves(vb, self.now_ms));
        let serving: Vec<usize> = serving.collect();
        for index in serving {
            if !self.is_astray(index) {
                self.checks.history(&self.nodes[index], vb);
            }
            self.write(index, vb);
            self.pump(index);
        }
    }

    fn write(&mut self, index: usize, vb: Vb) {
        let durable = self.rng.per_mille(700);
        let to_disk = durable && self.rng.per_mille(500);
        let patience_ms = [300, 3_000, 30_000][self.rng.index(3)];
        let keys = if self.collects { KEYS } else { KEYS_DEFAULT };
        let at = self.rng.range(0, u64::from(keys)) as u8;
        let deletes = self.deletes && self.rng.per_mille(300);
        let number = self.checks.next_number();
        let lives_s = (self.expires && !deletes && self.rng.per_mille(400))
            .then(|| self.rng.range(1, 12) as u32);
        let node = &mut self.nodes[index];
        let now_s = node.clock.now().unix_s();
        let expiry_s = lives_s.map_or(0, |lives_s| now_s + lives_s);
        let from_memory = self.bug == Some(Bug::AcknowledgedFromMemory);
        let level = if to_disk && !from_memory {
            DurabilityLevel::PersistToMajority
        } else {
            DurabilityLevel::Majority
        };
        let deadline_ns = node.clock.now().mono_ns + patience_ms * 1_000_000;
        let durability = durable.then_some(Requirement { level, deadline_ns });
        let Some(bucket) = node.vbs.buckets.get(&vb.bucket) else {
            return;
        };
        let value = (!deletes).then_some(WrittenValue { number, expiry_s });
        let collection = node.vbs.collection(vb.bucket);
        let Some(key) = key(at, collection) else {
            return;
        };
        let newest_cas = self.checks.newest_cas(node, vb);
        let Some(written) = bucket.write(VbId(vb.number), (&key, value), durability) else {
            return;
        };
        let Written {
            mutated,
            term,
            decision,
        } = written;
        let cas = mutated.cas;
        if newest_cas >= Some(cas) {
            self.checks.fail(format!(
                "n{index} writes {number} to {vb:?} with {cas:?} after {newest_cas:?}"
            ));
        }
        self.checks.written((vb, at), deletes, expiry_s, cas);
        let done = decision.is_none();
        if let Some(subscriber) = self.subscriber.as_mut().filter(|_| done) {
            subscriber.changed((vb, at), mutated);
        }
        if !durable {
            return;
        }
        let wait = Wait {
            vb,
            number,
            term,
            to_disk,
            seqno: mutated.seqno,
            decision,
        };
        if done && !self.is_astray(index) {
            let alone = self.nodes[index].vbs.is_alone(vb);
            self.checks
                .acknowledged((vb, number), term, (to_disk, alone));
        } else if !done {
            self.nodes[index].waits.push(wait);
        }
    }

    /// Returns a difference between copies of a vBucket, while clients are quiet; `None` if all are equal.
    pub(crate) fn differs(&mut self) -> Option<String> {
        let view = self.agreed();
        for (bucket, entry) in &view.manifests {
            let agreed = registry::collections::of_json(entry.value.as_bytes()).ok();
            let has = |node: &Node| {
                let bucket = node.vbs.buckets.get(bucket)?;
                Some((node.id, bucket.copies.bucket.manifest()))
            };
            let mut all = self.nodes.iter().filter_map(has);
            if let Some(other) = all.find(|(_, has)| Some(&**has) != agreed.as_ref()) {
                return Some(format!("{bucket:?} has {}, not {other:?}", entry.value));
            }
        }
        for (vb, _, row) in view.rows() {
            let node = |node: &NodeId| &self.nodes[usize::from(node.0)];
            let read = |of: &NodeId| {
                let keys = 0..KEYS;
                keys.map(|at| node(of).vbs.read(vb, at)).collect::<Vec<_>>()
            };
            let position = |of: &NodeId| node(of).vbs.copy(vb).map(|copy| copy.position);
            let nodes = row.chain.nodes();
            for other in &nodes[1..] {
                let (ours, theirs) = (read(&nodes[0]), read(other));
                let at = (position(&nodes[0]), position(other));
                if ours != theirs || at.0 != at.1 {
                    let ends = (nodes[0], *other);
                    return Some(format!("{vb:?} {ends:?}: {at:?} {ours:?} {theirs:?}"));
                }
            }
        }
        None
    }
}
