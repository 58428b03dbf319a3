//! Faults in a run, and their end.

use std::collections::BTreeSet;

use cluster::agreed::Rebalance;
use cluster::coordinator::{forced, unsafe_order};
use cluster::{BucketId, Copies as _, NodeId, Order, Vb};
use model::VbId;

use crate::moments::{Theme, nodes_of};
use crate::node::Node;
use crate::world::{Event, Weather, World};

impl World {
    /// Ends a node that runs, in runs with clean stops by one of these.
    pub(crate) fn crash(&mut self, index: usize) {
        if self.stops && self.nodes[index].up && self.rng.per_mille(500) {
            self.shut_down(index);
        } else {
            self.crash_at_once(index);
        }
    }

    pub(crate) fn crash_at_once(&mut self, index: usize) {
        self.tell(|| format!("n{index} crashes"));
        self.nodes[index].crash();
        self.checks.lost(index);
        if self.restored.is_some() {
            self.checks.forget_rows(index);
        }
    }

    pub(crate) fn start(&mut self, index: usize) {
        if !self.nodes[index].up && !self.nodes[index].held {
            self.read_copies(index);
            self.start_as_it_is(index);
        }
    }

    /// Starts a node with its disk unchanged.
    pub(crate) fn start_as_it_is(&mut self, index: usize) {
        self.tell(|| format!("n{index} starts"));
        for vb in &self.vbs {
            let disk = self.nodes[index].disks.get(&vb.bucket);
            if disk.is_some_and(|disk| disk.is_unreadable(VbId(vb.number))) {
                self.checks.lost_copy(*vb, index);
            }
        }
        self.skew_at_start(index);
        self.nodes[index].restart(0);
        self.take_stop(index);
        let boot = self.nodes[index].boot;
        self.at(self.now_ms, Event::Tick(index, boot));
    }

    /// Makes a sync of a node fail.
    pub(crate) fn disk_dies(&mut self, index: usize) {
        self.tell(|| format!("the disk of n{index} dies"));
        self.nodes[index].disk_dies();
    }

    /// Fills the disk of a node, or frees it.
    pub(crate) fn fill(&mut self, index: usize, full: bool) {
        self.tell(|| format!("the disk of n{index} is full: {full}"));
        self.nodes[index].set_full(full);
    }

    /// Begins or ends a random fault.
    pub(crate) fn strike(&mut self) {
        let index = self.rng.index(self.nodes.len());
        let all = self.nodes.len() as u64 + 1;
        if self.strike_apart(index) {
            return;
        }
        let aims = ![Theme::None, Theme::Moments].contains(&self.theme);
        if aims && self.rng.per_mille(800) {
            self.stir();
            return;
        }
        match self.rng.range(0, self.strikes) {
            0..=3 => {
                if self.nodes[index].up {
                    self.crash(index);
                    if self.rng.per_mille(500) {
                        self.start(index);
                    }
                } else {
                    self.start(index);
                }
            }
            4 => self.stop(index),
            5..=7 => {
                let (a, b) = (
                    self.rng.range(0, all) as usize,
                    self.rng.range(0, all) as usize,
                );
                self.tell(|| format!("{a} is cut off from {b}"));
                self.blocked.insert((a, b));
                if self.rng.per_mille(500) {
                    self.blocked.insert((b, a));
                }
            }
            8 => {
                self.tell(|| format!("n{index} is cut off"));
                let with_etcd = self.rng.per_mille(700);
                for other in 0..self.nodes.len() + usize::from(with_etcd) {
                    if other != index {
                        self.blocked.insert((other, index));
                        self.blocked.insert((index, other));
                    }
                }
            }
            9..=10 => {
                self.tell(|| "links are whole".to_owned());
                self.blocked.clear();
            }
            11 => self.etcd_fails(),
            12 => {
                let revision = self.etcd.store.revision();
                self.etcd.store.compact(revision);
            }
            13 => {
                self.weather = Weather {
                    lost: self.rng.range(0, 200),
                    doubled: self.rng.range(0, 200),
                    slow: self.rng.range(0, 100),
                };
            }
            14..=15 => self.some_order(),
            16 => self.some_bucket(),
            17 => self.disk_dies(index),
            _ => self.aim(),
        }
    }

    /// Begins a fault of a kind that only some runs have; returns whether it did.
    fn strike_apart(&mut self, index: usize) -> bool {
        if self.risky && self.restored.is_none() && self.rng.per_mille(150) {
            self.risk(index);
            return true;
        }
        if self.fills && self.rng.per_mille(200) {
            self.fill(index, !self.nodes[index].full);
            return true;
        }
        if self.skews && self.rng.per_mille(100) {
            self.skew(index);
            return true;
        }
        let damages = self.damages && self.rng.per_mille(200);
        if damages {
            self.damage(index);
        }
        damages
    }

    pub(crate) fn etcd_fails(&mut self) {
        let until_ms = self.now_ms + self.rng.range(100, 5_000);
        if self.rng.per_mille(500) {
            self.tell(|| format!("etcd is away until {until_ms}"));
            self.etcd.down_until_ms = until_ms;
        } else {
            self.tell(|| format!("etcd loses answers until {until_ms}"));
            self.etcd.elects_until_ms = until_ms;
        }
    }

    /// Begins a fault at a critical place: a node crashes in an election or a move, or an active copy keeps
    /// only one replica.
    fn aim(&mut self) {
        let vb = self.vbs[self.rng.index(self.vbs.len())];
        let view = self.agreed();
        let busy = view
            .rows()
            .find(|(_, _, row)| row.intent.is_some() || row.change.is_some());
        let row = busy
            .map(|(_, _, row)| *row)
            .or_else(|| view.row(vb).copied());
        let Some(row) = row else {
            return;
        };
        let nodes = nodes_of(&row);
        if busy.is_some() && self.rng.per_mille(600) {
            let index = nodes[self.rng.index(nodes.len())];
            if self.nodes[index].up {
                self.crash(index);
                self.start(index);
            }
            return;
        }
        let (active, kept) = (nodes[0], nodes[self.rng.index(nodes.len())]);
        self.tell(|| format!("n{active} keeps n{kept} alone"));
        for other in (0..=self.nodes.len()).filter(|other| ![active, kept].contains(other)) {
            self.blocked.insert((other, active));
            self.blocked.insert((active, other));
        }
    }

    /// An operator takes a risk, or a machine sleeps.
    fn risk(&mut self, index: usize) {
        let node = self.nodes[index].id;
        match self.rng.range(0, 4) {
            0 => self.stop(index),
            1 => {
                // The order comes late, or twice.
                if let Some(order) = self.last_unsafe.clone() {
                    self.order(order);
                }
            }
            _ => self.fail_over_unsafely(node),
        }
    }

    /// An operator sees the possible loss of a failover, and orders it.
    pub(crate) fn fail_over_unsafely(&mut self, node: NodeId) {
        let view = self.agreed();
        let order = unsafe_order(&view, node);
        let named = forced(&view, node).into_iter().map(|forced| forced.vb);
        self.checks.named(named.collect(), view.epoch());
        self.last_unsafe = Some(order.clone());
        self.order(order);
    }

    fn some_order(&mut self) {
        let node = self.nodes[self.rng.index(self.nodes.len())].id;
        let order = match self.rng.range(0, 11) {
            0..=2 => Order::Rebalance,
            3 => Order::Drain(node),
            4 if self.now_ms.is_multiple_of(2) => Order::FailOverGracefully(node),
            4 => Order::FailOver(node),
            5 => Order::Recover(node),
            6 => Order::Pause,
            7..=8 => Order::Remove(node),
            _ => Order::Cancel,
        };
        self.order(order);
    }

    /// Makes or drops a bucket. There is always at least one.
    fn some_bucket(&mut self) {
        let buckets: BTreeSet<BucketId> = self.vbs.iter().map(|vb| vb.bucket).collect();
        let at = self.rng.index(buckets.len());
        if self.now_ms < self.etcd.down_until_ms || self.restored.is_some() {
            return;
        }
        match buckets.into_iter().nth(at).filter(|_| self.buckets() > 1) {
            Some(bucket) if self.rng.per_mille(500) => self.drop_bucket(bucket),
            _ if self.buckets() < 4 => {
                let copies = self.rng.range(1, 4) as usize;
                self.make_bucket(copies);
            }
            _ => {}
        }
    }

    /// Ends all faults except stops, which end by themselves: the queued input of a stopped node arrives in order.
    pub(crate) fn heal(&mut self) {
        self.tell(|| "all is well".to_owned());
        self.blocked.clear();
        self.lags.clear();
        self.watch_stalls_until_ms.fill(0);
        self.theme = Theme::None;
        self.weather = Weather::default();
        self.etcd.down_until_ms = 0;
        self.etcd.elects_until_ms = 0;
        for index in 0..self.nodes.len() {
            self.nodes[index].set_full(false);
        }
        self.start_all();
    }

    /// Starts nodes that are down, that were removed, or whose disk died.
    pub(crate) fn start_all(&mut self) {
        for index in 0..self.nodes.len() {
            let participant = &self.nodes[index].participant;
            if self.nodes[index].up && (participant.is_removed() || participant.is_disk_dead()) {
                self.crash(index);
            }
            self.start(index);
        }
    }

    /// Prints how nodes see the cluster.
    pub(crate) fn tell_all(&mut self) {
        let agreed = self.agreed();
        self.tell(|| {
            format!(
                "{:?} {:?} {:?}",
                agreed.controller,
                agreed.orders,
                agreed.alive.keys()
            )
        });
        for node in &self.nodes {
            let (p, now_ms) = (&node.participant, node.clock_ms(self.now_ms));
            let (revision, term) = (p.view().revision, p.coordinator().term());
            let lease = p.lease_until_ms() > now_ms;
            let progress = p.coordinator().progress();
            self.tell(|| {
                format!(
                    "{:?} at {revision} term {term:?} lease {lease} {progress:?}",
                    node.id
                )
            });
            for (vb, bucket) in node.vbs.vbuckets().iter().filter_map(|vb| {
                let bucket = node.vbs.buckets.get(&vb.bucket)?;
                Some((vb, &bucket.copies.bucket))
            }) {
                let state = bucket.with_vbucket(VbId(vb.number), |vbucket| {
                    (vbucket.durability_stats(), vbucket.acknowledges())
                });
                self.tell(|| format!("{:?} {vb:?} {:?} {state:?}", node.id, node.vbs.copy(*vb)));
            }
        }
    }

    /// Returns a description of what is not in its desired state after healing; `None` if everything is.
    pub(crate) fn lacks(&mut self) -> Option<String> {
        let view = self.agreed();
        if let Some((vb, _, row)) = view
            .rows()
            .find(|(_, _, row)| row.intent.is_some() || row.change.is_some())
        {
            return Some(format!("{vb:?} has {row:?}"));
        }
        let controls = |node: &Node| node.participant.coordinator().term().is_some();
        if !self.nodes.iter().any(controls) {
            return Some(format!("no node is the controller: {:?}", view.controller));
        }
        for node in &self.nodes {
            let copies = node.vbs.vbuckets();
            let stays = |vb: &Vb| match view.row(*vb) {
                Some(row) => row.has_copy(node.id),
                None => self.unknown.contains(&vb.bucket),
            };
            if let Some(vb) = copies.iter().find(|vb| !stays(vb)) {
                return Some(format!("{:?} has a copy of {vb:?} that goes", node.id));
            }
        }
        for vb in self.vbs.clone() {
            let serving = self
                .nodes
                .iter()
                .filter(|node| node.serves(vb, self.now_ms))
                .count();
            if serving != 1 {
                return Some(format!("{vb:?} is served by {serving}: {:?}", view.row(vb)));
            }
        }
        if let Some(vb) = self
            .vbs
            .iter()
            .find(|vb| self.is_to_be_renewed(&view, **vb))
        {
            return Some(format!("{vb:?} has a damaged copy: {:?}", view.row(*vb)));
        }
        let rebalance = view.orders.map(|orders| orders.value.rebalance);
        (rebalance == Some(Rebalance::Running)).then(|| "a rebalance goes on".to_owned())
    }
}
