//! The model: its steps and its rules.

use stateright::{Model, Property};

use crate::bugs::Bug;
use crate::setup::{Cluster, Level};
use crate::state::{Chain, Copy, Log, NODES, Promise, State, TERMS, VBUCKETS, VBucket, WRITES};
use crate::{controller, node};

/// A step: of a node (first number) and a vBucket (second), or of the controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// The active copy prepares a durable write.
    Write(usize, usize),
    /// A change of a term, or the opening of its stream, arrives.
    Replicate(usize, usize, usize),
    /// The copy's data gets on disk.
    Persist(usize, usize),
    /// The active copy acknowledges the write with this seqno to its client.
    Acknowledge(usize, usize, u8),
    /// A seal of a term arrives.
    Seal(usize, usize, usize),
    /// The row of the map arrives, or the previous row.
    Apply(usize, usize),
    ApplyPrevious(usize, usize),
    /// W - 1 replicas confirm the term; their confirmation is older than L.
    Confirm(usize, usize),
    ConfirmationEnds(usize, usize),
    LeaseEnds(usize),
    LeaseRenewed(usize),
    /// A node crashes and starts again.
    Crash(usize),
    /// A node stops with all of its data on disk, and starts again.
    Stop(usize),
    /// A node crashes, and cannot read a copy at its start.
    Damage(usize, usize),
    /// A copy that is in no chain is removed.
    Remove(usize, usize),
    ReplaceController,
    /// The controller writes its intent to promote another copy.
    FailOver(usize),
    /// The controller marks a node with replicas only as failed.
    Mark(usize),
    /// The controller has the answers and writes the row.
    Promote(usize),
    /// The old active copy, which was active when it was sealed, becomes active again.
    TakeBack(usize),
    StartMove(usize),
    /// The move enters its next phase.
    Advance(usize),
    /// The new chain is written, and the move ends.
    FinishMove(usize),
    /// A replaced controller writes the row that it would have written.
    OldPromote(usize),
}

impl Model for Cluster {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            vbs: self.chains.map(VBucket::new),
            leases: [true; NODES],
            failed: [false; NODES],
            old_view: None,
            left: self.budget,
            promises: [Promise::default(); WRITES],
            lost: [false; NODES],
            went_back: false,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        for vb in (0..VBUCKETS).filter(|vb| !self.chains[*vb].is_empty()) {
            for node in 0..NODES {
                self.actions_of_copy(state, node, vb, actions);
            }
            let row = &state.vbs[vb].row;
            actions.extend([Action::FailOver(vb), Action::StartMove(vb)]);
            if row.intent > 0 {
                actions.extend([Action::Promote(vb), Action::TakeBack(vb)]);
            }
            if row.change.is_some() {
                actions.extend([Action::Advance(vb), Action::FinishMove(vb)]);
            }
            if self.has(Bug::OldControllerWrites) {
                actions.push(Action::OldPromote(vb));
            }
        }
        for node in 0..NODES {
            actions.extend([Action::Crash(node), Action::Stop(node)]);
            if self.clocks {
                actions.extend([
                    Action::LeaseEnds(node),
                    Action::LeaseRenewed(node),
                    Action::Mark(node),
                ]);
            }
        }
        actions.push(Action::ReplaceController);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut state = *last;
        let done = match action {
            Action::Write(node, vb) => node::write(self.budget.writes, &mut state, node, vb),
            Action::Replicate(node, vb, term) => {
                node::replicate(self, &mut state.vbs[vb], node, term)
            }
            Action::Persist(node, vb) => node::persist(&mut state.vbs[vb], node),
            Action::Acknowledge(node, vb, seqno) => {
                node::acknowledge(self, &mut state, node, vb, seqno)
            }
            Action::Seal(node, vb, term) => node::seal(self, &mut state.vbs[vb], node, term),
            Action::Apply(node, vb) => node::apply(self, &mut state, (node, vb), false),
            Action::ApplyPrevious(node, vb) => node::apply(self, &mut state, (node, vb), true),
            Action::Confirm(node, vb) => node::confirm(&mut state.vbs[vb], node),
            Action::ConfirmationEnds(node, vb) => {
                std::mem::take(&mut state.vbs[vb].copies[node].confirmed)
            }
            Action::LeaseEnds(node) => std::mem::take(&mut state.leases[node]),
            Action::LeaseRenewed(node) => node::renew_lease(self, &mut state, node),
            Action::Crash(node) => node::crash(self, &mut state, node),
            Action::Stop(node) => node::stop(self, &mut state, node),
            Action::Damage(node, vb) => node::damage(self, &mut state, (node, vb)),
            Action::Remove(node, vb) => node::remove(self, &mut state.vbs[vb], node),
            Action::ReplaceController => controller::replace(&mut state),
            Action::FailOver(vb) => controller::fail_over(&mut state, vb),
            Action::Mark(node) => controller::mark(self, &mut state, node),
            Action::Promote(vb) => controller::promote(self, &mut state, vb),
            Action::TakeBack(vb) => controller::take_back(&mut state, vb),
            Action::StartMove(vb) => controller::start_move(self, &mut state, vb),
            Action::Advance(vb) => controller::advance(self, &mut state, vb),
            Action::FinishMove(vb) => controller::finish_move(self, &mut state, vb),
            Action::OldPromote(vb) => controller::old_promote(self, &mut state, vb),
        };
        done.then(|| {
            self.forget(&mut state);
            state
        })
        .filter(|state| state != last)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        let mut properties = vec![
            Property::always(ONE_ACTIVE, |_, state: &State| {
                state.vbs.iter().all(one_active_per_term)
            }),
            Property::always(KEPT, Cluster::promises_are_kept),
            Property::always(ONE_SERVES, |cluster: &Cluster, state: &State| {
                !cluster.clocks || (0..VBUCKETS).all(|vb| serving(state, vb).count() <= 1)
            }),
            Property::always(MAPS_GROW, |_, state: &State| !state.went_back),
        ];
        if self.budget.failovers > 0 {
            properties.push(Property::sometimes(
                "a copy is promoted",
                |_, state: &State| state.vbs.iter().any(|vb| vb.copies.iter().any(is_promoted)),
            ));
            properties.push(Property::sometimes(
                "a node is passed over",
                |_, state: &State| state.lost.contains(&true),
            ));
        }
        if self.budget.stops > 0 {
            properties.push(Property::sometimes(
                "a stopped copy is active again without other copies",
                Cluster::has_begun_alone,
            ));
        }
        if self.budget.writes > 0 {
            properties.push(Property::sometimes(
                "all is acknowledged",
                |cluster: &Cluster, state: &State| {
                    let made = &state.promises[..usize::from(cluster.budget.writes)];
                    made.iter().all(|promise| promise.term > 0)
                },
            ));
        }
        if self.budget.damages > 0 && self.budget.moves > 1 {
            properties.push(Property::sometimes(
                "a copy is made anew",
                Cluster::has_renewed,
            ));
        } else if self.budget.moves > 0 {
            properties.push(Property::sometimes(
                "a move is finished",
                Cluster::has_moved,
            ));
        }
        properties
    }
}

pub(crate) const ONE_ACTIVE: &str = "one unsealed active per vBucket and term";
pub(crate) const KEPT: &str = "acknowledged writes are in the history of every later active";
pub(crate) const ONE_SERVES: &str = "one node serves a vBucket";
pub(crate) const MAPS_GROW: &str = "revisions at a node, and terms in the map, only grow";

fn is_promoted(copy: &Copy) -> bool {
    copy.is_active() && copy.term > 1
}

fn one_active_per_term(vb: &VBucket) -> bool {
    let active = |node: usize| vb.copies[node].is_active().then_some(vb.copies[node].term);
    (0..NODES).all(|node| {
        let others = 0..node;
        active(node).is_none_or(|term| others.into_iter().all(|other| active(other) != Some(term)))
    })
}

/// Returns the nodes that serve reads of a vBucket.
pub(crate) fn serving(state: &State, vb: usize) -> impl Iterator<Item = usize> {
    (0..NODES).filter(move |node| {
        state.vbs[vb].copies[*node].is_active() && controller::may_serve(state, *node, vb)
    })
}

impl Cluster {
    /// Whether the first copy of a new chain is active.
    fn has_moved(&self, state: &State) -> bool {
        let moved = |vb: &VBucket, to: &[usize]| {
            let first = vb.copies[vb.row.chain.active()];
            !to.is_empty() && vb.row.chain == Chain::new(to) && is_promoted(&first)
        };
        state.vbs.iter().zip(self.to).any(|(vb, to)| moved(vb, to))
    }

    /// Whether the first copy of the chain stopped and is active at a newer term, for which no other copy is sealed.
    fn has_begun_alone(_: &Self, state: &State) -> bool {
        let alone = |vb: &VBucket| {
            let first = vb.row.chain.active();
            let mut others = vb.row.chain.nodes().filter(|node| *node != first);
            is_promoted(&vb.copies[first]) && others.all(|node| vb.copies[node].term == 1)
        };
        state.left.stops == 0 && state.vbs.iter().any(alone)
    }

    /// Whether a copy that could not be read is in its chain again.
    fn has_renewed(&self, state: &State) -> bool {
        let is_whole = |vb: &VBucket| vb.copies.iter().all(|copy| !copy.unreadable);
        let mut vbs = state.vbs.iter().zip(self.chains);
        let all = |(vb, chain): (&VBucket, &[usize])| vb.row.chain.len() == chain.len();
        state.left.damages == 0 && state.vbs.iter().all(is_whole) && vbs.all(all)
    }

    fn actions_of_copy(&self, state: &State, node: usize, vb: usize, actions: &mut Vec<Action>) {
        let copy = &state.vbs[vb].copies[node];
        if copy.is_active() {
            actions.push(Action::Write(node, vb));
            for seqno in 1..=copy.log.len {
                actions.push(Action::Acknowledge(node, vb, seqno));
            }
            if self.clocks {
                actions.extend([
                    Action::Confirm(node, vb),
                    Action::ConfirmationEnds(node, vb),
                ]);
            }
        }
        if copy.persisted < copy.log.len {
            actions.push(Action::Persist(node, vb));
        }
        let sent = (1..TERMS).filter(|term| !state.vbs[vb].sent[*term].is_empty());
        actions.extend(sent.map(|term| Action::Replicate(node, vb, term)));
        let seals = usize::from(copy.term) + 1..=usize::from(state.vbs[vb].row.highest_term());
        actions.extend(seals.map(|term| Action::Seal(node, vb, term)));
        actions.extend([Action::Apply(node, vb), Action::ApplyPrevious(node, vb)]);
        if self.budget.damages > 0 {
            actions.extend([Action::Damage(node, vb), Action::Remove(node, vb)]);
        }
    }

    /// A majority in memory is promised while at most one node was lost or none crashed, a majority on disk always.
    fn promises_are_kept(&self, state: &State) -> bool {
        let lost = state.lost.iter().filter(|lost| **lost).count();
        let crashed = state.left.crashes < self.budget.crashes;
        let lost = if crashed || state.left.damages < self.budget.damages {
            lost
        } else {
            0
        };
        state.promises.iter().enumerate().all(|(number, promise)| {
            if promise.term == 0 || self.levels[number] == Level::Majority && lost > 1 {
                return true;
            }
            let copies = &state.vbs[usize::from(promise.vb)].copies;
            let mut later = copies
                .iter()
                .filter(|copy| copy.is_active() && copy.term >= promise.term);
            later.all(|copy| copy.log.writes().contains(&(number as u8 + 1)))
        })
    }

    /// Drops data without any further effect, so that states which differ only in it are equal.
    fn forget(&self, state: &mut State) {
        if self.budget.crashes + self.budget.damages == 0 {
            // Nothing is lost from memory: memory equals disk.
            state.vbs.iter_mut().for_each(node::persist_all);
        }
        for vb in &mut state.vbs {
            let row = vb.row;
            if self.budget.moves + self.budget.stops == 0 {
                vb.copies.iter_mut().for_each(|copy| copy.complete = false);
                vb.complete = Default::default();
            }
            for term in 1..TERMS {
                let at_term = |copy: &Copy| usize::from(copy.term) == term;
                if !vb
                    .copies
                    .iter()
                    .any(|copy| copy.is_active() && at_term(copy))
                {
                    vb.acknowledged[term] = Default::default();
                }
                if term != usize::from(row.intent) && !self.has(Bug::OldControllerWrites) {
                    vb.answers[term] = Default::default();
                    vb.complete[term] = Default::default();
                    vb.stopped[term] = Default::default();
                }
                let passed = |copy: &Copy| usize::from(copy.term) > term;
                if self.bug.is_none() && vb.copies.iter().all(passed) {
                    vb.sent[term] = Log::default();
                    vb.sender[term] = 0;
                }
            }
            let previous = vb.previous;
            let awaits = |node: usize| {
                let copy = &vb.copies[node];
                let concerned = copy.is_active() || previous.chain.active() == node;
                concerned && copy.revision < previous.revision
            };
            if !self.has(Bug::MapGoesBack) && !(0..NODES).any(awaits) {
                vb.previous = row;
            }
        }
        for node in 0..NODES {
            let idle = state.vbs.iter().all(|vb| !vb.copies[node].is_active());
            if !self.clocks {
                state.failed[node] = false;
            }
            if !self.clocks || idle && !state.failed[node] {
                state.leases[node] = true;
            }
        }
    }
}
