//! The controller of a participant: its election, its rounds.

use super::lease::NodeLease;
use super::machine::{Identity, LOOKS_AT_ALL, Output, Participant, Purpose};
use crate::agreed::{Controller, Entry, Key};
use crate::coord::{Compare, Op, Request, Txn};
use crate::coordinator::{Action, Tick};

impl Participant {
    /// Becomes the controller if there is none, or if it was an earlier start of this node, which has ended: no other
    /// node could replace that one before its lease ends.
    pub(super) fn elect(&mut self, now_ms: u64) {
        let Identity { node, boot, .. } = self.identity;
        let me = Controller::new(node, boot);
        let mine = |entry: &&Entry<Controller>| entry.value == me;
        let controller = self.view.controller.as_ref();
        let term = controller.filter(mine).map(|entry| entry.mod_revision);
        self.coordinator.set_term(term);
        let NodeLease::Held { lease, .. } = self.lease else {
            return;
        };
        let known = self.watching_since_ms.is_some() && self.is_alive_by(lease);
        let open = controller.is_none_or(|entry| {
            let former = &entry.value;
            former.node == node && former.boot != boot && former.adopts.is_none()
        });
        if !open || !known || self.is_under_way(|p| p == Purpose::Elect) {
            return;
        }
        let key = self.key(Key::Controller);
        let seen = controller.map_or(0, |entry| entry.mod_revision);
        let compare = vec![Compare::ModRevision(key.clone(), seen)];
        let value = serde_json::to_string(&me);
        let value = value.expect("values of ours have no maps");
        let then = vec![Op::Put { key, value, lease }];
        self.request(Purpose::Elect, Request::Txn(Txn { compare, then }), now_ms);
    }

    /// Runs a round of the controller if it may have something to do without input. A round checks every vBucket.
    pub(super) fn control_late(&mut self, now_ms: u64) {
        let repeats = if self.coordinator.is_quiet(&self.view) {
            LOOKS_AT_ALL
        } else {
            1
        };
        let interval_ms = repeats * self.settings.repeat_ms;
        let is_late = self
            .controlled_ms
            .is_none_or(|at| now_ms >= at + interval_ms);
        if is_late || self.coordinator.is_busy(&self.view) {
            self.control(now_ms);
        } else {
            let actions = self.coordinator.ask_late(&self.view, now_ms);
            self.act(actions, now_ms);
        }
    }

    /// Runs a round of the controller, if this node is the controller.
    pub(super) fn control(&mut self, now_ms: u64) {
        let Some(watching_since_ms) = self.watching_since_ms else {
            return;
        };
        self.controlled_ms = Some(now_ms);
        let tick = Tick {
            view: &self.view,
            now_ms,
            watching_since_ms,
            heard: &self.heard,
        };
        let actions = self.coordinator.tick(&tick);
        self.act(actions, now_ms);
    }

    /// Carries out actions of the controller.
    fn act(&mut self, actions: Vec<Action>, now_ms: u64) {
        for action in actions {
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
