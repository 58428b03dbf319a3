//! Messages of the controller to nodes.

use super::machine::{Action, Coordinator, Tick};
use crate::agreed::View;
use crate::coord::LeaseId;
use crate::map::{Row, Vb};
use crate::message::Message;

impl Coordinator {
    /// Asks nodes for reports, if it is time to. Between the rounds of a quiet controller this is all to repeat.
    pub(crate) fn ask_late(&mut self, view: &View, now_ms: u64) -> Vec<Action> {
        let repeat_ms = self.settings.repeat_ms;
        if self.asked_ms.is_none_or(|at| now_ms < at + repeat_ms) {
            return Vec::new();
        }
        self.asked_ms = Some(now_ms);
        Self::ask_for_reports(view).collect()
    }

    fn ask_for_reports(view: &View) -> impl Iterator<Item = Action> {
        let nodes = view.alive.keys();
        nodes.map(|node| Action::Send(*node, Message::Ask))
    }

    /// Asks nodes for reports and seals, and revokes the leases of failed nodes.
    pub(super) fn ask(&self, tick: &Tick<'_>, actions: &mut Vec<Action>) {
        actions.extend(Self::ask_for_reports(tick.view));
        for (vb, _, row) in tick.view.rows() {
            self.send_seals(tick, vb, row, actions);
        }
        for (node, entry) in &tick.view.nodes {
            let open = |lease: &LeaseId| !self.revoked.contains_key(&(*node, *lease));
            if let Some(lease) = entry.value.revoke.filter(open) {
                actions.push(Action::Revoke(*node, lease));
            }
        }
    }

    /// Sends the seals of a row that are due.
    pub(super) fn send_seals(&self, tick: &Tick<'_>, vb: Vb, row: &Row, actions: &mut Vec<Action>) {
        let Some(term) = row.intent else {
            return;
        };
        let facts = self.facts(tick, Some((vb, 0, row)));
        for (node, at_least) in facts.unsealed(vb, row) {
            actions.push(Action::Send(node, Message::Seal { vb, term, at_least }));
        }
    }
}
