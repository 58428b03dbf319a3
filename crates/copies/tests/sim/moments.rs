//! Faults at critical moments: when a copy is sealed or becomes active, when rows are written, when a node is
//! marked as failed or comes back.

use cluster::agent::Step;
use cluster::agreed::{Chunk, Key};
use cluster::coord::{Op, Request};
use cluster::{NodeId, Order, Row, Vb};

use crate::bugs::Bug;
use crate::node::CLUSTER;
use crate::world::{Event, World};

/// An event of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moment {
    /// A copy of the node was sealed.
    Sealed,
    /// A copy of the node became active.
    Activated,
    /// An active copy of the node got other chains, or a replica follows another node.
    Stepped,
    /// The node, as the controller, wrote a row.
    Written,
    /// The node was marked as failed, or is not alive.
    Marked,
    /// The node is alive, or its mark was cleared.
    Returned,
}

/// Theme of a run: the target of its faults.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    /// No theme.
    None,
    /// Any moment.
    Moments,
    /// Elections although the active copy runs: it reaches only one other copy, and sealed nodes crash.
    Elections,
    /// Each new active copy is cut off, or crashes, soon after its activation.
    Cascades,
    /// New copies, or copies that become active by a move, stop or crash.
    Moves,
    /// Nodes come back while they are replaced.
    Returns,
}

/// A fault that follows a moment of the focused vBucket.
pub(crate) type Planned = (Moment, Blow, u64);

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Blow {
    /// A random fault that fits the moment.
    Any,
    /// The node crashes and starts again.
    Bounce,
    /// The node is cut off; all other links work.
    CutOff,
    /// The active copy reaches only one other node of the row.
    KeepOne,
    /// The last node of the row stops.
    StopLast,
    /// The last node of the row is cut off.
    CutOffLast,
    /// The node reaches only etcd.
    KeepEtcd,
    /// Requests of the controller to etcd take long.
    Lag,
    /// The node's watch stalls.
    Stall,
    /// All links work.
    Join,
}

impl World {
    /// Begins the theme of the run.
    pub(crate) fn stir(&mut self) {
        let vb = self.vbs[self.rng.index(self.vbs.len())];
        let vb = self.focus.filter(|vb| self.vbs.contains(vb)).unwrap_or(vb);
        self.focus = Some(vb);
        let active = self.agreed().row(vb).and_then(|row| row.chain.active());
        let Some(active) = active else {
            return;
        };
        let node = self.nodes[self.rng.index(self.nodes.len())].id;
        let mut often = |of: &[Blow]| of[self.rng.index(of.len())];
        match self.theme {
            Theme::None | Theme::Moments => {}
            Theme::Elections => {
                let one = often(&[Blow::KeepOne, Blow::KeepOne, Blow::CutOff, Blow::Join]);
                let two = often(&[Blow::Bounce, Blow::Bounce, Blow::KeepOne, Blow::Lag]);
                self.plan = vec![(Moment::Written, one, 1), (Moment::Sealed, two, 150)];
                self.join_links();
                self.order(Order::FailOver(active));
            }
            Theme::Cascades => {
                let one = often(&[Blow::CutOff, Blow::CutOff, Blow::Bounce]);
                let two = often(&[Blow::CutOff, Blow::CutOff, Blow::KeepOne]);
                let (soon, later) = (self.rng.range(1, 150), self.rng.range(1, 800));
                let last = (Moment::Activated, Blow::CutOff, 500);
                self.plan = vec![
                    (Moment::Activated, one, soon),
                    (Moment::Activated, two, later),
                    last,
                ];
                self.focus = Some(vb);
                self.isolate(usize::from(active.0), &[]);
            }
            Theme::Moves => {
                let one = often(&[Blow::StopLast, Blow::CutOffLast, Blow::Join]);
                let two = often(&[Blow::Bounce, Blow::Bounce, Blow::CutOff]);
                let later = self.rng.range(1, 600);
                self.plan = vec![(Moment::Stepped, one, later), (Moment::Activated, two, 100)];
                self.join_links();
                let order = match self.rng.range(0, 4) {
                    0..=1 => Order::Drain(node),
                    _ => Order::Recover(node),
                };
                self.order(order);
                self.order(Order::Rebalance);
            }
            Theme::Returns => {
                let one = often(&[Blow::KeepEtcd, Blow::KeepEtcd, Blow::Join]);
                let two = often(&[Blow::Stall, Blow::Stall, Blow::CutOff]);
                self.plan = vec![
                    (Moment::Marked, Blow::Lag, 1),
                    (Moment::Marked, one, 3_000),
                    (Moment::Returned, two, 100),
                ];
                self.isolate(usize::from(active.0), &[]);
            }
        }
    }

    /// Handles a moment of a vBucket at a node: a fault may follow, at once or soon.
    pub(crate) fn moment(&mut self, vb: Vb, node: usize, moment: Moment) {
        let of_node = matches!(moment, Moment::Marked | Moment::Returned);
        let first = self.plan.iter().position(|planned| planned.0 == moment);
        if let Some(at) = first.filter(|_| of_node || self.focus == Some(vb)) {
            // A moment of a copy triggers one planned fault; a moment of a node triggers all that are planned for it.
            loop {
                let (_, blow, soon_ms) = self.plan.remove(at);
                let at_ms = self.now_ms + self.rng.range(0, soon_ms);
                self.at(at_ms, Event::Blow(vb, node, moment, blow));
                if !of_node || self.plan.get(at).is_none_or(|planned| planned.0 != moment) {
                    return;
                }
            }
        }
        if self.theme != Theme::Moments || self.blows == 0 || !self.rng.per_mille(200) {
            return;
        }
        self.blows -= 1;
        let soon_ms = [1, 60, 800][self.rng.index(3)];
        let at_ms = self.now_ms + self.rng.range(0, soon_ms);
        self.at(at_ms, Event::Blow(vb, node, moment, Blow::Any));
    }

    /// Handles a step of a copy that was made.
    pub(crate) fn stepped(&mut self, vb: Vb, node: usize, step: &Step) {
        let moment = match step {
            Step::Seal { .. } => Moment::Sealed,
            Step::Activate { .. } => Moment::Activated,
            Step::SetTopology { .. } | Step::Follow { .. } => Moment::Stepped,
            Step::Create { .. } | Step::Remove { .. } | Step::StepDown { .. } => return,
        };
        self.moment(vb, node, moment);
    }

    /// Handles a transaction that was made: it is a moment if it changes a row, or the state of a node.
    pub(crate) fn written(&mut self, by: usize, request: &Request) {
        let (Request::Txn(txn), true) = (request, self.theme != Theme::None) else {
            return;
        };
        for op in &txn.then {
            let (key, value) = match op {
                Op::Put { key, value, .. } => (key, Some(value)),
                Op::Delete { key } => (key, None),
            };
            match Key::parse(CLUSTER, key) {
                Some(Key::Map(bucket, _)) => {
                    let chunk = value.and_then(|value| serde_json::from_str::<Chunk>(value).ok());
                    for (row, number) in chunk.unwrap_or_default().rows.iter().zip(0..) {
                        if row.intent.is_some() {
                            self.moment(Vb { bucket, number }, by, Moment::Written);
                        }
                    }
                }
                Some(Key::Node(NodeId(node)) | Key::Alive(NodeId(node))) => {
                    let node = usize::from(node);
                    let view = self.agreed();
                    let mut rows = view.rows();
                    let active = |row: &Row| row.chain.active() == Some(NodeId(node as u16));
                    let vb = rows.find(|(_, _, row)| active(row)).map(|(vb, _, _)| vb);
                    let moment = if by == node {
                        Moment::Returned
                    } else {
                        Moment::Marked
                    };
                    if let Some(vb) = vb {
                        self.moment(vb, node, moment);
                    }
                }
                _ => {}
            }
        }
    }

    /// Makes a fault among the nodes of a vBucket. `node` is the place of the last event.
    pub(crate) fn blow(&mut self, vb: Vb, node: usize, (moment, blow): (Moment, Blow)) {
        let row = self.agreed().row(vb).copied();
        let Some(row) = row.filter(|_| self.theme != Theme::None) else {
            return;
        };
        let nodes = nodes_of(&row);
        let (active, some) = (nodes[0], nodes[self.rng.index(nodes.len())]);
        let last = nodes[nodes.len() - 1];
        match blow {
            Blow::Bounce => self.bounce(node),
            Blow::CutOff => {
                self.join_links();
                self.isolate(node, &[]);
            }
            Blow::KeepOne => self.isolate(active, &[some]),
            Blow::StopLast => self.stop(last),
            Blow::CutOffLast => self.isolate(last, &[]),
            Blow::KeepEtcd => {
                self.join_links();
                self.isolate(node, &[self.nodes.len()]);
            }
            Blow::Lag => {
                let controller = self.agreed().controller.map(|entry| entry.value.node);
                let of = controller.map_or(node, |node| usize::from(node.0));
                self.lag(of, self.nodes.len());
            }
            Blow::Stall => self.stall(node),
            Blow::Join => self.join_links(),
            Blow::Any => match (moment, self.rng.range(0, 8)) {
                (Moment::Sealed, 0..=3) | (Moment::Activated, 0..=1) => self.bounce(node),
                (Moment::Activated, 2..=3) => self.isolate(node, &[some]),
                (Moment::Activated, 4) => self.isolate(node, &[]),
                (Moment::Stepped, 0..=1) => self.stop(last),
                (Moment::Written | Moment::Marked, 0..=1) => self.isolate(active, &[some]),
                (Moment::Written | Moment::Marked, 2) => self.join_links(),
                (Moment::Written, 3..=4) => self.lag(node, self.nodes.len()),
                (Moment::Returned, 0..=2) => self.stall(node),
                _ => self.any_blow(node, active, &nodes),
            },
        }
    }

    fn any_blow(&mut self, node: usize, active: usize, nodes: &[usize]) {
        let some = nodes[self.rng.index(nodes.len())];
        let one = if self.rng.per_mille(500) { node } else { some };
        match self.rng.range(0, 11) {
            0..=1 => self.bounce(one),
            2 => self.stop(one),
            3 => self.isolate(active, &[some]),
            4 => self.isolate(one, &[]),
            // The active copy reaches only the replicas, and nothing else of the cluster.
            5 => self.isolate(active, nodes),
            6 => {
                let to = self.rng.index(self.nodes.len() + 1);
                self.lag(one, to);
            }
            7 => self.stall(one),
            8 => self.order(Order::FailOver(NodeId(active as u16))),
            _ => self.join_links(),
        }
    }

    /// Crashes a node and starts it again.
    pub(crate) fn bounce(&mut self, node: usize) {
        if self.nodes[node].up {
            self.crash(node);
            self.start(node);
        }
    }

    fn join_links(&mut self) {
        self.tell(|| "links are whole".to_owned());
        self.blocked.clear();
    }

    fn stall(&mut self, node: usize) {
        let until_ms = self.now_ms + self.rng.range(300, 3_000);
        self.tell(|| format!("the watch of n{node} stalls until {until_ms}"));
        self.watch_stalls_until_ms[node] = until_ms;
    }

    /// Pauses a node for a while. A paused node stays as it is, so that its queued input arrives in order.
    pub(crate) fn stop(&mut self, node: usize) {
        if self.nodes[node].paused_until_ms > self.now_ms {
            return;
        }
        let until_ms = self.now_ms + self.rng.range(100, 4_000);
        self.tell(|| format!("n{node} stops until {until_ms}"));
        self.nodes[node].paused_until_ms = until_ms;
        if self.bug == Some(Bug::ClockSleeps) {
            self.nodes[node].lose_time(until_ms - self.now_ms);
        }
    }

    /// Lets a node reach only some others. Earlier cuts may end.
    fn isolate(&mut self, node: usize, from_all_but: &[usize]) {
        if self.rng.per_mille(500) {
            self.blocked.clear();
        }
        self.tell(|| format!("n{node} reaches {from_all_but:?} alone"));
        for other in 0..=self.nodes.len() {
            if other != node && !from_all_but.contains(&other) {
                self.blocked.insert((other, node));
                self.blocked.insert((node, other));
            }
        }
    }

    /// Delays messages of a node to another one, or its requests to etcd.
    fn lag(&mut self, node: usize, to: usize) {
        let until_ms = self.now_ms + self.rng.range(200, 4_000);
        let lag_ms = self.rng.range(100, 2_500);
        self.tell(|| format!("n{node} to {to} takes {lag_ms} ms more until {until_ms}"));
        self.lags.insert((node, to), (until_ms, lag_ms));
    }
}

/// Returns the nodes of a row, the active copy's first.
pub(crate) fn nodes_of(row: &Row) -> Vec<usize> {
    let to = row.change.map_or(row.chain, |(to, _)| to);
    let nodes = row.chain.nodes().iter().chain(to.nodes());
    nodes.map(|node| usize::from(node.0)).collect()
}
