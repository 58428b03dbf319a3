//! A participant's part in an adoption of copies.

use super::machine::{Copies, Output, Participant, Purpose};
use crate::adoption::{Adoption, AdoptionOutput};
use crate::agent::Copy;
use crate::agreed::Controller;
use crate::condition::Condition;
use crate::coord::Answer;
use crate::map::{NodeId, Vb};
use crate::message::Message;

/// Number of copies in a message.
const PART: usize = 500;

impl Participant {
    /// Begins an adoption, if etcd went back since this epoch.
    pub(super) fn begin_adoption(&mut self, epoch: u64, lost: &[NodeId]) {
        let order = (epoch, lost.to_vec());
        let goes_on = self
            .adoption
            .as_ref()
            .is_some_and(|(_, one)| one.ordered == order);
        if goes_on || self.went_back_ms.is_none() || self.newest.version.epoch != epoch {
            return;
        }
        let me = Controller::new(self.identity.node, self.identity.boot);
        let issued = self.coordinator.issue();
        let known = &self.view;
        let cluster = self.identity.cluster;
        let adoption = Adoption::new(cluster, me, known, order, issued);
        self.adoption = Some((issued, adoption));
    }

    /// Returns the nodes that an adoption of this node waits for, while no other adoption has the key.
    pub fn adoption_waits(&self) -> Vec<NodeId> {
        let adoption = self.adoption.iter();
        adoption
            .flat_map(|(_, adoption)| adoption.waits())
            .collect()
    }

    /// Makes progress with an adoption that was ordered at this node.
    pub(super) fn adopt(&mut self, now_ms: u64) {
        let Some((number, adoption)) = &mut self.adoption else {
            return;
        };
        let number = *number;
        for action in adoption.tick(now_ms, 2 * self.settings.repeat_ms) {
            match action {
                AdoptionOutput::Send(to, message) => self.outputs.push(Output::Send(to, message)),
                AdoptionOutput::Request(request) => {
                    self.request(Purpose::Adopt(number), request, now_ms);
                }
            }
        }
    }

    pub(super) fn adoption_answered(&mut self, number: u64, answer: &Answer, now_ms: u64) {
        let lease_ms = self.settings.lease_ms;
        let adoption = self.adoption.as_mut().filter(|(of, _)| *of == number);
        let request =
            adoption.and_then(|(_, adoption)| adoption.answered(answer, now_ms, lease_ms));
        if let Some(request) = request {
            self.request(Purpose::Adopt(number), request, now_ms);
        }
    }

    pub(super) fn take_sealed(&mut self, from: NodeId, message: &Message) {
        let Some((_, adoption)) = &mut self.adoption else {
            return;
        };
        match message {
            Message::AllSealed {
                epoch,
                term,
                count,
                copies,
                damaged,
            } => {
                adoption.note_damaged(from, damaged);
                adoption.sealed(from, (*epoch, *term), *count, copies);
            }
            Message::SealAllRefused { epoch, term } => adoption.refused(*epoch, *term),
            _ => {}
        }
    }

    /// Seals every copy, and reports when all are sealed. From then on the node does not follow etcd until
    /// copies were adopted.
    pub(super) fn seal_all(
        &mut self,
        from: NodeId,
        (epoch, term): (u64, u64),
        now_ms: u64,
        copies: &impl Copies,
    ) {
        if self.health.disk_dead {
            return;
        }
        let vbs = copies.vbuckets();
        let all = vbs.iter().filter_map(|vb| Some((*vb, copies.copy(*vb)?)));
        let all: Vec<_> = all.collect();
        let highest = all.iter().map(|(_, copy)| copy.term).max().unwrap_or(0);
        let held = self.sealed_for.map_or(0, |(_, term)| term);
        // A copy that cannot be read is listed as an empty one.
        let mut readable = all.iter().filter(|(_, copy)| copy.is_readable());
        let has_restarted = readable
            .clone()
            .any(|(_, copy)| copy.term == term && !copy.sealed);
        if epoch <= self.newest.version.epoch || term < highest.max(held) || has_restarted {
            let (epoch, term) = (self.newest.version.epoch, highest.max(held));
            let refused = Message::SealAllRefused { epoch, term };
            self.outputs.push(Output::Send(from, refused));
            return;
        }
        self.note_went_back(now_ms);
        self.seals.clear();
        self.sealed_for = Some((epoch, term));
        if readable.any(|(_, copy)| copy.term < term) {
            for vb in vbs {
                self.look(vb, copies.copy(vb));
            }
            return;
        }
        let count = all.len();
        let mut tell = |part: &[(Vb, Copy)]| {
            let copies = part.iter().map(|(vb, copy)| (*vb, copy.position));
            let damaged = part
                .iter()
                .filter(|(_, copy)| copy.condition != Condition::Whole);
            let (copies, damaged) = (copies.collect(), damaged.map(|(vb, _)| *vb).collect());
            let answer = Message::AllSealed {
                epoch,
                term,
                count,
                copies,
                damaged,
            };
            self.outputs.push(Output::Send(from, answer));
        };
        if all.is_empty() {
            tell(&[]);
        }
        all.chunks(PART).for_each(tell);
    }
}
