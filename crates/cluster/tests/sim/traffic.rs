//! Streams between copies, what gets on disk, and clients.

use std::collections::BTreeMap;

use cluster::{NodeId, Vb};

use crate::bugs::Bug;
use crate::copy::{Changes, Pull};
use crate::log::Write;
use crate::world::{Packet, World};

impl World {
    /// Some of what is in memory gets on disk.
    pub(crate) fn persist(&mut self, index: usize) {
        let all = self.rng.per_mille(self.sync_per_mille);
        if !all || self.nodes[index].full || self.nodes[index].participant.is_disk_dead() {
            return;
        }
        let me = self.nodes[index].id;
        let mut touched = Vec::new();
        for (vb, copy) in &mut self.nodes[index].vbs.copies {
            copy.persisted = copy.log.high();
            if copy.is_active() {
                copy.note_own(me);
                touched.push(*vb);
            }
        }
        for vb in touched {
            self.acknowledge(index, vb);
        }
    }

    /// Replicas ask for changes.
    pub(crate) fn pull(&mut self, index: usize) {
        let mut pulls: BTreeMap<usize, Vec<Pull>> = BTreeMap::new();
        if self.nodes[index].participant.is_disk_dead() {
            return;
        }
        for (vb, copy) in &self.nodes[index].vbs.copies {
            if let Some(from) = copy.follows {
                pulls
                    .entry(usize::from(from.0))
                    .or_default()
                    .push(copy.pull(*vb));
            }
        }
        for (to, pulls) in pulls {
            self.send(index, to, Packet::Pulls(pulls));
        }
    }

    pub(crate) fn take_pulls(&mut self, from: usize, to: usize, pulls: &[Pull]) {
        let mut answers = Vec::new();
        if self.nodes[to].participant.is_disk_dead() {
            return;
        }
        let sent_ms = self.nodes[to].clock_ms(self.now_ms);
        for pull in pulls {
            let Some(copy) = self.nodes[to].vbs.copies.get_mut(&pull.vb) else {
                continue;
            };
            let node = NodeId(from as u16);
            if copy.pulled(node, pull) {
                answers.push(Changes {
                    vb: pull.vb,
                    term: pull.term,
                    stream: pull.stream,
                    log: copy.log.clone(),
                    sent_ms,
                });
                self.acknowledge(to, pull.vb);
            }
        }
        if !answers.is_empty() {
            self.send(to, from, Packet::Changes(answers));
        }
    }

    pub(crate) fn take_changes(&mut self, from: usize, to: usize, changes: &[Changes]) {
        let mut pulls = Vec::new();
        let node = NodeId(from as u16);
        if self.nodes[to].participant.is_disk_dead() {
            return;
        }
        for change in changes {
            let Some(copy) = self.nodes[to].vbs.copies.get_mut(&change.vb) else {
                continue;
            };
            if copy.take_changes(node, change, (self.changes_max, self.bug)) {
                let mut pull = copy.pull(change.vb);
                if self.bug == Some(Bug::ZombieStreamAccepted) {
                    pull.term = change.term;
                    pull.has = Some(crate::copy::Acknowledged {
                        memory: copy.log.high(),
                        disk: copy.persisted,
                    });
                }
                pulls.push(pull);
            }
        }
        if !pulls.is_empty() {
            self.send(to, from, Packet::Pulls(pulls));
        }
    }

    /// Tells clients of writes that a majority has.
    fn acknowledge(&mut self, index: usize, vb: Vb) {
        let bug = self.bug;
        let Some(copy) = self.nodes[index].vbs.copies.get_mut(&vb) else {
            return;
        };
        let (Some(mut topology), true) = (copy.topology, copy.is_active()) else {
            return;
        };
        if bug == Some(Bug::TwoChainsForgotten) {
            topology.change = None;
        }
        let entry = copy.log.failover_seqno(copy.term);
        let entry = if bug == Some(Bug::FailoverEntryNotAwaited) {
            0
        } else {
            entry
        };
        let mut told = Vec::new();
        let mut pending = std::mem::take(&mut copy.pending);
        pending.retain_mut(|write| {
            let needed = write.seqno.max(entry);
            let has = |disk: bool| {
                let at = |node: NodeId| copy.acknowledged.get(&node).copied().unwrap_or_default();
                let on = |node| if disk { at(node).disk } else { at(node).memory };
                topology.is_durable(|node| on(node) >= needed)
            };
            let disk = has(true);
            let from_memory = !write.to_disk || bug == Some(Bug::AcknowledgedFromMemory);
            if !write.told && (disk || from_memory && has(false)) {
                write.told = true;
                told.push((write.number, Some(write.to_disk)));
            }
            if disk {
                told.push((write.number, None));
            }
            !disk
        });
        copy.pending = pending;
        let (term, alone) = (copy.term, copy.is_alone());
        let astray = self.is_astray(index);
        for (number, told) in told {
            match told {
                Some(_) if astray => {}
                Some(to_disk) => self
                    .checks
                    .acknowledged((vb, number), term, (to_disk, alone)),
                None => self.checks.on_disk(number),
            }
        }
    }

    /// Clients write to what they take for the active copies.
    pub(crate) fn clients(&mut self) {
        let nodes = (0..self.nodes.len()).filter(|index| !self.is_astray(*index));
        let nodes: Vec<usize> = nodes.collect();
        for vb in self.vbs.clone() {
            let nodes = nodes.iter().map(|index| &self.nodes[*index]);
            self.checks.one_serves(nodes, vb, self.now_ms);
        }
        let vb = self.vbs[self.rng.index(self.vbs.len())];
        let (durable, to_disk) = (self.rng.per_mille(700), self.rng.per_mille(500));
        let serving = (0..self.nodes.len()).filter(|at| self.nodes[*at].serves(vb, self.now_ms));
        let serving: Vec<usize> = serving.collect();
        for index in serving {
            self.writes += 1;
            let number = self.writes;
            self.checks.written(vb, number);
            let sent_ms = self.nodes[index].clock_ms(self.now_ms);
            let node = &mut self.nodes[index];
            let me = node.id;
            let Some(copy) = node.vbs.copies.get_mut(&vb) else {
                continue;
            };
            let write = Write {
                number,
                durable,
                to_disk,
            };
            copy.write(me, write);
            let change = |stream| Changes {
                vb,
                term: copy.term,
                stream,
                log: copy.log.clone(),
                sent_ms,
            };
            let streams = copy.streams.iter();
            let changes: Vec<_> = streams.map(|(to, stream)| (*to, change(*stream))).collect();
            for (to, change) in changes {
                self.send(index, usize::from(to.0), Packet::Changes(vec![change]));
            }
            self.acknowledge(index, vb);
        }
    }
}
