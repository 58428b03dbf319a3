//! Planted bugs in messages.

use cluster::{Message, NodeId, Phase, Position, Vb};

use crate::bugs::Bug;
use crate::world::World;

impl World {
    /// Applies a planted bug to a message.
    pub(crate) fn spoil(&mut self, from: usize, to: usize, message: Message) -> Message {
        let takeover_to = |vb: Vb| {
            let row = self.nodes[to].participant.view().row(vb);
            let change = row.and_then(|row| row.change);
            let change = change.filter(|change| change.1 == Phase::TakeOver);
            change.and_then(|change| change.0.active())
        };
        match (message, self.bug) {
            (Message::Seal { vb, term, .. }, Some(Bug::TakeoverUndrained)) => {
                let at_least = None;
                Message::Seal { vb, term, at_least }
            }
            (
                Message::Sealed {
                    vb,
                    term,
                    position,
                    complete,
                    kept,
                },
                Some(bug),
            ) => {
                let mut position = position;
                match bug {
                    Bug::LowerPreparedChosen if takeover_to(vb).is_none() => {
                        position.prepared = u64::MAX - position.prepared;
                        position.seqno = u64::MAX - position.seqno;
                    }
                    Bug::BranchIgnored => position.branch = 0,
                    Bug::TakeoverUndrained if takeover_to(vb) == Some(NodeId(from as u16)) => {
                        position.branch = u64::MAX;
                    }
                    Bug::OneSealTooFew => self.invent_seal(to, vb, term),
                    _ => {}
                }
                Message::Sealed {
                    vb,
                    term,
                    position,
                    complete,
                    kept,
                }
            }
            (Message::Stopped { vb, term }, Some(Bug::UnreadableSealed)) => Message::Sealed {
                vb,
                term,
                position: Position::default(),
                complete: false,
                kept: false,
            },
            (mut message @ Message::AllSealed { .. }, Some(Bug::AnyCopyAdopted)) => {
                if let Message::AllSealed { copies, .. } = &mut message {
                    for (_, position) in copies {
                        *position = Position::default();
                    }
                }
                message
            }
            (message, _) => message,
        }
    }

    /// Makes the controller believe that a replica that is down has answered.
    fn invent_seal(&mut self, to: usize, vb: Vb, term: u64) {
        let row = self.nodes[to].participant.view().row(vb).copied();
        let Some(row) = row else {
            return;
        };
        let replicas = row.chain.nodes().iter().skip(1);
        let down = replicas.filter(|node| !self.nodes[usize::from(node.0)].runs(self.now_ms));
        let down: Vec<NodeId> = down.copied().collect();
        let position = Position::default();
        let message = Message::Sealed {
            vb,
            term,
            position,
            complete: false,
            kept: false,
        };
        for from in down {
            let node = &mut self.nodes[to];
            let now_ms = node.clock_ms(self.now_ms);
            let mut outputs = node.participant.message(from, &message, now_ms, &node.vbs);
            outputs.extend(node.participant.decide(now_ms));
            self.carry(to, outputs);
        }
    }
}
