//! The decision on one row of the map.

use super::renewal;
use super::seals::Seals;
use crate::agreed::{NodeState, View};
use crate::condition::Condition;
use crate::map::{Chain, NodeId, Phase, Row, Vb};
use crate::message::Need;
use crate::quorum;
use crate::settings::Settings;

/// Input of a decision, besides the row.
#[derive(Clone, Copy)]
pub(super) struct DecisionInput<'a> {
    pub(super) settings: &'a Settings,
    pub(super) now_ms: u64,
    pub(super) view: &'a View,
    /// Answers to the seals at the row's intent.
    pub(super) seals: Option<&'a Seals>,
    /// Need that the active copy reported for this row.
    pub(super) need: Option<Need>,
    /// Time when the lease of the active copy's failed node was revoked.
    pub(super) revoked_ms: Option<u64>,
    /// Whether there is no rebalance.
    pub(super) idle: bool,
}

/// A decision on a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// The row stays.
    Keep,
    /// Write this row.
    Write(Row),
    /// Write this row, provided that the old active copy's node is still marked as failed at the revision
    /// that was seen.
    WriteIfFailed(Row, NodeId),
    /// An election lacks this number of copies.
    Refuse(usize),
}

impl DecisionInput<'_> {
    fn state(&self, node: NodeId) -> Option<NodeState> {
        self.view.nodes.get(&node).map(|entry| entry.value.state)
    }

    fn is_failed(&self, node: NodeId) -> bool {
        self.state(node) == Some(NodeState::Failed)
    }

    /// Decides on a row.
    pub(super) fn decide(&self, vb: Vb, row: &Row) -> Decision {
        let Some(active) = row.chain.active() else {
            return Decision::Keep;
        };
        if row.intent.is_some() {
            return self.elect(vb, row, active);
        }
        let lacking = match self.need {
            Some(Need::Election { term }) => Some(term),
            _ if self.is_failed(active) => Some(0),
            _ => None,
        };
        if let Some(term) = lacking {
            return self.begin_election(vb, row, term);
        }
        row.change
            .map_or(Decision::Keep, |change| self.advance(vb, row, change))
    }

    /// Returns the number of copies that an election of `row` lacks. The active copy's node counts if it is the only
    /// one, or as [`quorum::seals_missing`] describes. In the first election it is enough.
    pub(super) fn seals_missing(&self, vb: Vb, row: &Row) -> usize {
        let nodes = row.chain.nodes();
        let others = &nodes[usize::from(nodes.len() > 1)..];
        let stopped = |node: NodeId| self.view.condition(node, vb) == Condition::Unreadable;
        let there = |node: NodeId| {
            let sealed = self.seals.is_some_and(|seals| seals.answer(node).is_some());
            let can = self.view.is_well(node) && !self.view.has_no_disk(node, vb.bucket);
            sealed || can && !stopped(node)
        };
        let sealed = others.iter().filter(|node| there(**node)).count();
        let open = others.iter().filter(|node| !there(**node));
        let lost = open.filter(|node| stopped(**node)).count();
        let active = row.chain.active().is_some_and(there);
        if row.term == 0 && active {
            return 0;
        }
        quorum::seals_missing(nodes.len(), sealed, lost, active)
    }

    /// Returns the number of copies that a running election lacks.
    fn election_lacks(&self, vb: Vb, row: &Row, seals: &Seals) -> usize {
        let Some(without) = row.without else {
            let missing = self.seals_missing(vb, row);
            // The first election is that of the first copy, whatever the others answer.
            let first = row.chain.active().filter(|_| row.term == 0);
            let waits = first.is_some_and(|node| {
                self.view.has_no_disk(node, vb.bucket) && seals.answer(node).is_none()
            });
            return missing.max(usize::from(waits || self.lacks_adopted(row, seals)));
        };
        let gone = |node: &&NodeId| {
            let there = seals.answer(**node).is_some() || self.view.is_well(**node);
            !there && !without.holds(**node)
        };
        row.chain.nodes().iter().filter(gone).count()
    }

    /// Whether no copy that answered has everything that was adopted, and the others are away.
    fn lacks_adopted(&self, row: &Row, seals: &Seals) -> bool {
        let open = |node: &NodeId| seals.answer(*node).is_none();
        let mut open = row.chain.nodes().iter().filter(|node| open(node));
        !seals.has_adopted(row) && open.all(|node| !self.view.is_well(*node))
    }

    /// Decides to write the intent to seal. A restarted active copy serves nothing, so its election begins even
    /// if it lacks seals: the row shows that the vBucket is not served.
    fn begin_election(&self, vb: Vb, row: &Row, term: u64) -> Decision {
        let missing = self.seals_missing(vb, row);
        let nodes = row.chain.nodes();
        let sole_is_failed = nodes.len() == 1 && self.is_failed(nodes[0]);
        if missing > 0 && !self.is_restarted(row) || sole_is_failed {
            return Decision::Refuse(missing.max(1));
        }
        let intent = Some(row.highest_term().max(term) + 1);
        Decision::Write(Row { intent, ..*row })
    }

    /// Whether the active copy reported that it does not serve. A report of a replica has a term above the row's.
    fn is_restarted(&self, row: &Row) -> bool {
        let Some(Need::Election { term }) = self.need else {
            return false;
        };
        row.term > 0 && term <= row.highest_term()
    }

    /// Ends an election or a takeover, if possible.
    fn elect(&self, vb: Vb, row: &Row, active: NodeId) -> Decision {
        let (Some(seals), Some(term)) = (self.seals, row.intent) else {
            return Decision::Keep;
        };
        let new = |chain| row.ended(chain, term);
        if let Some(chain) = drained(row, seals) {
            return Decision::Write(new(chain));
        }
        let elects = !self.takes_over(vb, row, seals);
        if elects && seals.has_everything(active) && !self.is_failed(active) {
            // The copy acknowledged nothing since it was sealed or stopped, and no other copy can have more.
            return Decision::Write(new(row.chain));
        }
        if elects && let Some(chain) = self.elected(vb, row, seals) {
            let cannot_begin = chain.active() == Some(active) && self.is_away(active);
            match seals.answer(active) {
                Some(_) if cannot_begin => {
                    let others = seals.elected_without(row, active);
                    if let (Some(chain), true) = (others, self.has_waited(seals)) {
                        return Decision::WriteIfFailed(new(chain), active);
                    }
                }
                Some(_) => return Decision::Write(new(chain)),
                None if seals.is_stopped(active) => return Decision::Write(new(chain)),
                None if self.is_over(active, seals) => {
                    return Decision::WriteIfFailed(new(chain), active);
                }
                None => {}
            }
        }
        match seals.refused {
            Some(current) if self.has_waited(seals) => Decision::Write(Row {
                intent: Some(current.max(term) + 1),
                ..*row
            }),
            _ => match self.election_lacks(vb, row, seals) {
                0 => Decision::Keep,
                missing => Decision::Refuse(missing),
            },
        }
    }

    fn elected(&self, vb: Vb, row: &Row, seals: &Seals) -> Option<Chain> {
        seals.elected(row, |node| {
            self.view.has_no_disk(node, vb.bucket) || self.is_failed(node)
        })
    }

    /// Whether messages had time to be repeated, and a marked node had time to come back.
    fn has_waited(&self, seals: &Seals) -> bool {
        self.now_ms >= seals.since_ms + 4 * self.settings.repeat_ms
    }

    /// Whether a node is marked as failed and does not come back: it may answer seals, but does not see the map.
    fn is_away(&self, node: NodeId) -> bool {
        self.is_failed(node) && !self.view.alive.contains_key(&node)
    }

    /// Whether a takeover still has time, and has an old active copy with everything that it acknowledged.
    /// Otherwise the old chain elects, which takes the move back.
    fn takes_over(&self, vb: Vb, row: &Row, seals: &Seals) -> bool {
        let Some((to, Phase::TakeOver)) = row.change else {
            return false;
        };
        let mut both = row.chain.active().into_iter().chain(to.active());
        let over = self.now_ms >= seals.since_ms + self.settings.takeover_ms;
        let restarted = row
            .chain
            .active()
            .is_some_and(|active| seals.answer(active).is_some() && !seals.is_complete(active));
        let seals_not = |node| {
            self.is_failed(node) || self.view.has_no_disk(node, vb.bucket) || seals.is_stopped(node)
        };
        !over && !restarted && !both.any(seals_not)
    }

    /// Whether the old active copy, on a failed node, cannot serve any longer: its lease has expired by its
    /// own clock, and the confirmations of replicas from before their seals have expired, too.
    fn is_over(&self, active: NodeId, seals: &Seals) -> bool {
        let Some(entry) = self
            .view
            .nodes
            .get(&active)
            .filter(|_| self.is_failed(active))
        else {
            return false;
        };
        let Settings {
            lease_ms,
            margin_ms,
            confirmed_ms,
            ..
        } = *self.settings;
        let revoked = || {
            self.revoked_ms
                .is_some_and(|at| self.now_ms >= at + lease_ms + margin_ms)
        };
        let lease = entry.value.revoke.is_none() || revoked();
        lease && self.now_ms >= seals.newest_ms + confirmed_ms + margin_ms
    }

    /// Whether an election has waited for too long, and only for the old active copy's node, which does not
    /// answer. A node with a full disk cannot answer.
    pub(super) fn is_stuck(&self, vb: Vb, row: &Row) -> bool {
        let (Some(seals), Some(active)) = (self.seals, row.chain.active()) else {
            return false;
        };
        let over = self.now_ms >= seals.since_ms + self.settings.takeover_ms;
        let full = self.view.has_no_disk(active, vb.bucket);
        let late = over || full && self.has_waited(seals);
        // A new row gets another active copy without a mark, which would concern all buckets of the node.
        let is_planned_again = row.term == 0 && full;
        late && !is_planned_again
            && self.elected(vb, row, seals).is_some()
            && seals.answer(active).is_none()
            && !seals.is_stopped(active)
            && !self.is_failed(active)
    }

    /// Returns the copies that must be sealed, each with the position that it must have first.
    pub(super) fn unsealed(&self, vb: Vb, row: &Row) -> Vec<(NodeId, Option<crate::Position>)> {
        let Some(seals) = self.seals else {
            return Vec::new();
        };
        let open = |node: &NodeId| seals.answer(*node).is_none();
        if let (true, Some((to, _)), Some(active)) = (
            self.takes_over(vb, row, seals),
            row.change,
            row.chain.active(),
        ) {
            return match seals.answer(active) {
                None => vec![(active, None)],
                has => to
                    .active()
                    .filter(open)
                    .map(|node| (node, has))
                    .into_iter()
                    .collect(),
            };
        }
        let chain = row.chain.nodes().iter().copied();
        chain.filter(open).map(|node| (node, None)).collect()
    }

    /// Decides on the next phase of a move, or on its end before it had an effect.
    fn advance(&self, vb: Vb, row: &Row, (to, phase): (Chain, Phase)) -> Decision {
        let gone = |node: &NodeId| self.state(*node).is_none() || self.is_failed(*node);
        // Copies are renewed, active ones handed over, and unmade ones replaced, with or without a rebalance.
        let active = row
            .chain
            .active()
            .and_then(|node| self.view.nodes.get(&node));
        let hands_over = active.is_some_and(|entry| entry.value.hands_over);
        let leaves = row.chain.nodes().iter().filter(|node| !to.holds(**node));
        let mut replaced = leaves.filter(|node| self.view.lacks(**node, vb.bucket));
        let ended = self.idle && row.renew.is_none() && !hands_over && replaced.next().is_none();
        let hindered = || renewal::hinders(self.view, vb, row, &to);
        if ended || to.nodes().iter().any(gone) || hindered() {
            return Decision::Write(Row {
                change: None,
                ..*row
            });
        }
        if self.view.lacks_space(vb.bucket, row, &to) {
            // From the phase of two chains on, durable writes wait for the disks of new copies.
            let built =
                |node: &NodeId| !row.chain.holds(*node) && self.view.has_no_disk(*node, vb.bucket);
            return if phase == Phase::TwoChains && to.nodes().iter().any(built) {
                Decision::Write(Row {
                    change: None,
                    ..*row
                })
            } else {
                Decision::Keep
            };
        }
        if self.need != Some(Need::NextPhase(phase)) {
            return Decision::Keep;
        }
        let next = match phase {
            Phase::Build => Phase::CatchUp,
            Phase::CatchUp => Phase::TwoChains,
            Phase::TwoChains | Phase::TakeOver => Phase::TakeOver,
        };
        if next == Phase::TakeOver && !to.active().is_some_and(|node| self.view.is_well(node)) {
            return Decision::Keep;
        }
        let intent = (next == Phase::TakeOver).then(|| row.highest_term() + 1);
        Decision::Write(Row {
            intent,
            change: Some((to, next)),
            ..*row
        })
    }
}

/// Returns the new chain of a takeover, once the old active copy is sealed and the new one has all of its data.
fn drained(row: &Row, seals: &Seals) -> Option<Chain> {
    let (to, phase) = row.change?;
    let old = seals.answer(row.chain.active()?)?;
    let new = seals.answer(to.active()?)?;
    let complete = seals.is_complete(row.chain.active()?);
    (phase == Phase::TakeOver && complete && new >= old).then_some(to)
}
