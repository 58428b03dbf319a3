//! Changes of the agreed state that a node logs: of the states of nodes, of the rebalance, and of its own part as the
//! controller.

use cluster::NodeId;
use cluster::agreed::{Controller, Rebalance, View};
use registry::{node_state, rebalance_state};

/// A change that is logged.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LoggedChange {
    /// This node is the controller from now on, or is it no longer.
    Controls(bool),
    /// A node has another state. The former one is unknown to a node that just started.
    State {
        node: String,
        from: Option<&'static str>,
        to: &'static str,
    },
    /// The rebalance has another state.
    Rebalance(&'static str),
}

impl LoggedChange {
    /// Returns the changes between two views that node `me` with its start `boot` logs: as the controller those of all
    /// nodes and of the rebalance, else its own.
    pub(crate) fn between(before: &View, after: &View, (me, boot): (NodeId, u64)) -> Vec<Self> {
        let controls = |view: &View| {
            let controller = view.controller.as_ref().map(|entry| &entry.value);
            controller.is_some_and(|it: &Controller| (it.node, it.boot) == (me, boot))
        };
        let now = controls(after);
        let turn = (controls(before) != now).then_some(Self::Controls(now));
        let states = after.nodes.iter().filter_map(|(id, entry)| {
            let known = before.nodes.get(id).filter(|_| before.revision > 0);
            let from = known.map(|entry| node_state(&entry.value));
            let to = node_state(&entry.value);
            let is_news = from.map_or(matches!(to, "failed" | "failed_over"), |from| from != to);
            let node = entry.value.name.clone();
            ((now || *id == me) && is_news).then_some(Self::State { node, from, to })
        });
        let rebalance = |view: &View| {
            let orders = view.orders.as_ref();
            orders.map_or(Rebalance::Idle, |entry| entry.value.rebalance)
        };
        let changes = now && rebalance(before) != rebalance(after);
        let rebalance = changes.then(|| Self::Rebalance(rebalance_state(rebalance(after))));
        turn.into_iter().chain(states).chain(rebalance).collect()
    }

    pub(crate) fn log(&self) {
        match self {
            Self::Controls(true) => tracing::info!("this node runs the controller of the cluster"),
            Self::Controls(false) => {
                tracing::info!("this node runs the controller of the cluster no longer");
            }
            Self::Rebalance(state) => tracing::info!(state, "the rebalance has another state"),
            Self::State { node, from, to } => match (*from, *to) {
                (None, _) => tracing::warn!(node, state = to, "this node was failed over"),
                (Some("failed_over"), "failed") => {
                    tracing::info!(
                        node,
                        from,
                        to,
                        "a node may come back by an operator's order"
                    );
                }
                (_, "failed") => {
                    tracing::warn!(node, from, to, "a node is failed over automatically");
                }
                (_, "failed_over") => {
                    tracing::warn!(
                        node,
                        from,
                        to,
                        "a node is failed over by an operator's order"
                    );
                }
                _ => tracing::info!(node, from, to, "a node has another state"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use cluster::agreed::{NodeState, Orders};
    use registry::fake_member::{FakeMember, written};

    use super::*;

    #[test]
    fn failovers_and_recoveries_are_news_to_the_controller_and_to_the_node() {
        let member = FakeMember::new(1);
        for id in 1..=3 {
            member.put_node(id, NodeState::Active);
        }
        member.edit(|view, revision| {
            view.controller = Some(written(revision, Controller::new(NodeId(1), 7)));
        });
        let after = |id, state, failed_over| {
            let before = member.view.lock().clone();
            member.put_node(id, state);
            member.edit(|view, _| {
                let node = view.nodes.get_mut(&NodeId(id));
                node.expect("a node").value.failed_over = failed_over;
            });
            (before, member.view.lock().clone())
        };
        let state = |from, to| LoggedChange::State {
            node: "n2".to_owned(),
            from: Some(from),
            to,
        };
        for (kind, failed_over, from, to) in [
            (NodeState::Failed, false, "active", "failed"),
            (NodeState::Failed, true, "failed", "failed_over"),
            (NodeState::New, false, "failed_over", "new"),
            (NodeState::Active, false, "new", "active"),
        ] {
            let (before, now) = after(2, kind, failed_over);
            let news = |me| LoggedChange::between(&before, &now, me);
            assert_eq!(news((NodeId(1), 7)), [state(from, to)]);
            assert_eq!(news((NodeId(2), 7)), [state(from, to)]);
            assert_eq!(news((NodeId(3), 7)), []);
            assert_eq!(LoggedChange::between(&now, &now, (NodeId(1), 7)), []);
        }
    }

    #[test]
    fn a_node_that_starts_learns_that_it_is_failed_over_and_the_new_controller_that_it_is_one() {
        let member = FakeMember::new(1);
        member.put_node(1, NodeState::Failed);
        member.put_node(2, NodeState::Active);
        let failed = LoggedChange::State {
            node: "n1".to_owned(),
            from: None,
            to: "failed",
        };
        let idle = member.view.lock().clone();
        let news =
            |before: &View, after: &View, id| LoggedChange::between(before, after, (NodeId(id), 7));
        assert_eq!(news(&View::default(), &idle, 1), [failed]);
        assert_eq!(news(&View::default(), &idle, 2), []);
        member.edit(|view, revision| {
            view.controller = Some(written(revision, Controller::new(NodeId(2), 7)));
        });
        let led = member.view.lock().clone();
        assert_eq!(news(&idle, &led, 2), [LoggedChange::Controls(true)]);
        assert_eq!(news(&led, &idle, 2), [LoggedChange::Controls(false)]);
        let running = Orders {
            rebalance: Rebalance::Running,
            ..Orders::default()
        };
        member.edit(|view, revision| view.orders = Some(written(revision, running)));
        let moves = member.view.lock().clone();
        assert_eq!(news(&led, &moves, 2), [LoggedChange::Rebalance("running")]);
        assert_eq!(news(&moves, &led, 2), [LoggedChange::Rebalance("idle")]);
        assert_eq!(news(&led, &moves, 1), []);
        let other_start = LoggedChange::between(&idle, &led, (NodeId(2), 8));
        assert_eq!(other_start, []);
    }
}
