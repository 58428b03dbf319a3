//! The simulated world: time, events, the network, nodes and clients.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cluster::agreed::{Key, Meta};
use cluster::coord::{Answer, Request, RequestId};
use cluster::{BucketId, Message, NodeId, Order, Output, Vb};
use copies::{Confirmation, ConfirmedPosition};

use crate::bugs::Bug;
use crate::checks::Checks;
use crate::etcd::Etcd;
use crate::link::Bytes;
use crate::moments::{Blow, Moment, Planned, Theme};
use crate::node::{CLUSTER, Node, SimClock};
use crate::restore::Restored;
use crate::rng::Rng;
use crate::subscriber::Subscriber;

pub(crate) const TICK_MS: u64 = 100;
/// Delay after which lost bytes are sent again.
const RESENT_MS: u64 = 200;

/// A packet from a node to another one.
#[derive(Clone)]
pub(crate) enum Packet {
    Message(Message),
    /// A ping: number of the sender's start, send time by its clock, and what it knows of confirmations.
    Ping(u64, u64, ConfirmedPosition),
    /// The answer to a ping: copies that follow the sender.
    Confirm(u64, u64, Confirmation),
    /// Bytes on a connection, from its consumer.
    Asked(BucketId, Bytes),
    /// Bytes on a connection, from its producer.
    Told(BucketId, Bytes),
    /// The connection does not exist.
    Reset(BucketId, u64),
}

pub(crate) enum Event {
    Tick(usize, u64),
    /// Waiting steps of a node are continued.
    Steps(usize, u64),
    /// A step that failed at once is told.
    Failed(usize, u64, Vb),
    Packet(usize, usize, Packet),
    /// A request to etcd; the last field is etcd's number of restores.
    Request(usize, u64, RequestId, Request, u64),
    Answer(usize, u64, RequestId, Answer),
    Clients,
    Etcd,
    Blow(Vb, usize, Moment, Blow),
}

struct Scheduled {
    at_ms: u64,
    order: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ms, self.order).cmp(&(other.at_ms, other.order))
    }
}

/// Quality of the network: probabilities of faults, in parts of a thousand.
#[derive(Clone, Copy, Default)]
pub(crate) struct Weather {
    pub(crate) lost: u64,
    pub(crate) doubled: u64,
    pub(crate) slow: u64,
}

#[expect(
    clippy::struct_excessive_bools,
    reason = "what there is in a run, each by itself"
)]
pub(crate) struct World {
    pub(crate) now_ms: u64,
    /// The time, shared with clocks.
    time_ms: Arc<AtomicU64>,
    order: u64,
    /// Order of the event in progress.
    current: u64,
    queue: BinaryHeap<Reverse<Scheduled>>,
    pub(crate) rng: Rng,
    pub(crate) nodes: Vec<Node>,
    pub(crate) etcd: Etcd,
    /// Blocked links, one way, as pairs of nodes; the number of nodes stands for etcd.
    pub(crate) blocked: BTreeSet<(usize, usize)>,
    pub(crate) weather: Weather,
    /// Delayed links, one way: end of the delay, and additional milliseconds.
    pub(crate) lags: BTreeMap<(usize, usize), (u64, u64)>,
    /// Times until which the watch of each node stalls.
    pub(crate) watch_stalls_until_ms: Vec<u64>,
    /// Theme of the faults; the next field is the focused vBucket.
    pub(crate) theme: Theme,
    pub(crate) focus: Option<Vb>,
    /// Faults to come at moments of that vBucket; the next field is the number of faults that are allowed at
    /// other moments.
    pub(crate) plan: Vec<Planned>,
    pub(crate) blows: u64,
    /// Number of changes that a replica takes at a time.
    pub(crate) changes_max: usize,
    pub(crate) checks: Checks,
    pub(crate) vbs: Vec<Vb>,
    pub(crate) bug: Option<Bug>,
    pub(crate) verbose: bool,
    pub(crate) trace: u64,
    /// Number of different faults.
    pub(crate) strikes: u64,
    /// Whether operators take risks, and machines sleep.
    pub(crate) risky: bool,
    /// Whether disks get full.
    pub(crate) fills: bool,
    /// Whether some nodes stop with everything on disk instead of crashing.
    pub(crate) stops: bool,
    /// Whether copies get damaged.
    pub(crate) damages: bool,
    /// Whether clients delete, and copies purge tombstones.
    pub(crate) deletes: bool,
    /// Whether memory is short, so that documents are evicted and cursors dropped.
    pub(crate) squeezes: bool,
    /// Whether operators make and drop a collection in each bucket.
    pub(crate) collects: bool,
    /// Whether documents expire.
    pub(crate) expires: bool,
    /// Whether wall clocks of nodes differ and jump.
    pub(crate) skews: bool,
    /// Whether commits get full.
    pub(crate) divides: bool,
    /// A client of change streams.
    pub(crate) subscriber: Option<Subscriber>,
    /// State of the last restore of etcd, until copies are adopted.
    pub(crate) restored: Option<Restored>,
    /// Buckets whose copies stay although the bucket is not in etcd.
    pub(crate) unknown: Vec<BucketId>,
    /// Nodes that operators failed over.
    pub(crate) failed_over: BTreeSet<NodeId>,
    /// Newest order of an unsafe failover.
    pub(crate) last_unsafe: Option<Order>,
    /// Probability that a node's tick writes everything to disk.
    pub(crate) sync_per_mille: u64,
    watch_at_ms: Vec<u64>,
    /// Arrival times of the newest bytes from a node to another one.
    bytes_at_ms: BTreeMap<(usize, usize), u64>,
    /// Whether clients write nothing.
    pub(crate) quiet: bool,
    pub(crate) last_bucket: u128,
}

impl World {
    pub(crate) fn new(seed: u64, nodes: usize, copies: [usize; 2], bug: Option<Bug>) -> Self {
        let mut rng = Rng::new(seed);
        let time_ms = Arc::new(AtomicU64::new(0));
        let node = |index| {
            let clock = (
                rng.range(0, 100_000),
                rng.range(0, 40_000).cast_signed() - 20_000,
            );
            let clock = SimClock::new(Arc::clone(&time_ms), clock);
            Node::new(index, clock, seed, bug)
        };
        let nodes: Vec<Node> = (0..nodes).map(node).collect();
        let mut world = Self {
            now_ms: 0,
            time_ms,
            order: 0,
            current: 0,
            queue: BinaryHeap::new(),
            rng,
            watch_at_ms: vec![0; nodes.len()],
            etcd: Etcd::default(),
            blocked: BTreeSet::new(),
            weather: Weather::default(),
            lags: BTreeMap::new(),
            watch_stalls_until_ms: vec![0; nodes.len()],
            theme: Theme::None,
            focus: None,
            plan: Vec::new(),
            blows: 40,
            changes_max: 8,
            checks: Checks::default(),
            vbs: Vec::new(),
            bug,
            verbose: false,
            trace: 0,
            strikes: 18,
            risky: false,
            fills: false,
            stops: false,
            damages: false,
            deletes: false,
            squeezes: false,
            collects: false,
            expires: false,
            skews: false,
            divides: false,
            subscriber: None,
            restored: None,
            unknown: Vec::new(),
            failed_over: BTreeSet::new(),
            last_unsafe: None,
            sync_per_mille: 500,
            bytes_at_ms: BTreeMap::new(),
            quiet: false,
            last_bucket: 0,
            nodes,
        };
        world.make_cluster(copies);
        world
    }

    fn make_cluster(&mut self, copies: [usize; 2]) {
        let meta = Meta {
            epoch: 1,
            ..Meta::default()
        };
        let meta = serde_json::to_string(&meta).expect("JSON");
        self.etcd.put(Key::Meta.text(CLUSTER), meta);
        for copies in copies {
            self.make_bucket(copies);
        }
        for node in 0..self.nodes.len() {
            let at_ms = self.rng.range(0, 50);
            self.at(at_ms, Event::Tick(node, 1));
        }
        self.at(0, Event::Clients);
        self.at(0, Event::Etcd);
    }

    /// Returns the number of buckets.
    pub(crate) fn buckets(&self) -> usize {
        self.vbs.len() / 2
    }

    pub(crate) fn at(&mut self, at_ms: u64, event: Event) {
        self.order += 1;
        let order = self.order;
        let scheduled = Scheduled {
            at_ms,
            order,
            event,
        };
        self.queue.push(Reverse(scheduled));
    }

    /// Delays the event in progress. It stays ahead of later events, however often it is delayed.
    pub(crate) fn put_off(&mut self, at_ms: u64, event: Event) {
        let order = self.current;
        let scheduled = Scheduled {
            at_ms,
            order,
            event,
        };
        self.queue.push(Reverse(scheduled));
    }

    #[expect(
        clippy::disallowed_macros,
        reason = "a run of one seed tells what happens"
    )]
    pub(crate) fn tell(&self, what: impl FnOnce() -> String) {
        if self.verbose {
            eprintln!("{:>7} {}", self.now_ms, what());
        }
    }

    /// Adds an event to the trace: the same seed has the same trace.
    pub(crate) fn note(&mut self, what: u64) {
        let mixed = (self.trace ^ what ^ self.now_ms << 20).wrapping_mul(0x100_0000_01b3);
        self.trace = mixed.rotate_left(23);
    }

    /// Runs until `until_ms`, or until a failure.
    pub(crate) fn run(&mut self, until_ms: u64) {
        while self.checks.failure.is_none() {
            let next = self.queue.peek().map(|next| next.0.at_ms);
            if next.is_none_or(|at_ms| at_ms > until_ms) {
                self.now_ms = until_ms;
                return;
            }
            let Some(Reverse(next)) = self.queue.pop() else {
                return;
            };
            self.now_ms = next.at_ms;
            self.time_ms.store(self.now_ms, Ordering::Relaxed);
            self.current = next.order;
            self.handle(next.event);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Tick(index, boot) => self.tick(index, boot),
            Event::Steps(index, boot) => self.go_on(index, boot),
            Event::Failed(index, boot, vb) => {
                if self.nodes[index].boot == boot {
                    self.told(index, vb);
                }
            }
            Event::Packet(from, to, packet) => {
                self.note((from * 16 + to) as u64);
                if self.nodes[to].paused_until_ms > self.now_ms && self.nodes[to].up {
                    let at_ms = self.nodes[to].paused_until_ms;
                    self.put_off(at_ms, Event::Packet(from, to, packet));
                } else if self.nodes[to].up {
                    self.packet(from, to, packet);
                    self.pump(to);
                }
            }
            Event::Request(.., life) if life != self.etcd.life => {}
            Event::Request(node, boot, id, request, _) => {
                self.note(id.0);
                self.etcd.store.advance(self.now_ms);
                let from = (node, boot, id);
                let down = self.now_ms < self.etcd.down_until_ms;
                let passed_over = self.etcd.passed_over_by(&request);
                let (ordered, epoch) = (self.etcd.ordered_by(&request), self.etcd.epoch());
                let adopts_again = self.etcd.adopts_again(&request);
                let answer = (!down).then(|| self.etcd.request(from, &request, self.bug));
                if let Some(Some(Answer::Committed(_))) = &answer {
                    for (vb, node) in passed_over {
                        self.checks.lost_copy(vb, node);
                    }
                    if adopts_again {
                        self.checks.fail("copies are adopted twice".to_owned());
                    }
                    self.checks.given_up(&ordered, (epoch, self.etcd.epoch()));
                    self.note_failed_over(node, &request);
                    self.written(node, &request);
                }
                let lost = self.now_ms < self.etcd.elects_until_ms && self.rng.per_mille(500);
                if let Some(answer) = answer.flatten()
                    && !lost
                    && !self.blocked.contains(&(self.nodes.len(), node))
                {
                    let at_ms = self.now_ms + self.delay_ms(self.nodes.len(), node);
                    self.at(at_ms, Event::Answer(node, boot, id, answer));
                }
            }
            Event::Answer(index, boot, id, answer) => self.answer(index, boot, id, &answer),
            Event::Blow(vb, node, moment, blow) => self.blow(vb, node, (moment, blow)),
            Event::Clients => {
                self.clients();
                self.subscribe();
                let at_ms = self.now_ms + 40;
                self.at(at_ms, Event::Clients);
            }
            Event::Etcd => {
                self.flush_watches();
                let at_ms = self.now_ms + 20;
                self.at(at_ms, Event::Etcd);
            }
        }
    }

    fn delay_ms(&mut self, from: usize, to: usize) -> u64 {
        let lag = self.lags.get(&(from, to));
        let lag_ms = lag.filter(|lag| self.now_ms < lag.0).map_or(0, |lag| lag.1);
        lag_ms
            + if self.rng.per_mille(self.weather.slow) {
                self.rng.range(100, 4_000)
            } else {
                self.rng.range(1, 10)
            }
    }

    fn flush_watches(&mut self) {
        self.etcd.store.advance(self.now_ms);
        if self.now_ms < self.etcd.down_until_ms {
            return;
        }
        for node in 0..self.nodes.len() {
            let etcd = self.nodes.len();
            let stalls = self.now_ms < self.watch_stalls_until_ms[node];
            if stalls || self.blocked.contains(&(etcd, node)) {
                continue;
            }
            if let Some((boot, id, answer)) = self.etcd.flush(node) {
                let delay_ms = self.delay_ms(etcd, node);
                let at_ms = self.watch_at_ms[node].max(self.now_ms + delay_ms);
                self.watch_at_ms[node] = at_ms;
                self.at(at_ms, Event::Answer(node, boot, id, answer));
            }
        }
    }

    fn answer(&mut self, index: usize, boot: u64, id: RequestId, answer: &Answer) {
        let node = &mut self.nodes[index];
        if !node.up || node.boot != boot {
            return;
        }
        if node.paused_until_ms > self.now_ms {
            let (at_ms, answer) = (node.paused_until_ms, answer.clone());
            self.put_off(at_ms, Event::Answer(index, boot, id, answer));
            return;
        }
        let now_ms = node.clock_ms(self.now_ms);
        let mut outputs = node.participant.answer(id, answer, now_ms, &node.vbs);
        outputs.extend(node.participant.decide(now_ms));
        node.keep_mark();
        node.reconcile();
        node.renew();
        self.carry(index, outputs);
        self.pump(index);
        for vb in self.vbs.clone() {
            self.checks.rows_grow(index, &self.nodes[index], vb);
        }
    }

    fn tick(&mut self, index: usize, boot: u64) {
        let node = &mut self.nodes[index];
        if !node.up || node.boot != boot {
            return;
        }
        if node.paused_until_ms > self.now_ms {
            let at_ms = node.paused_until_ms;
            self.put_off(at_ms, Event::Tick(index, boot));
            return;
        }
        let now_ms = node.clock_ms(self.now_ms);
        let outputs = node.participant.tick(now_ms, &node.vbs);
        node.renew();
        for bucket in node.vbs.buckets.values() {
            bucket.copies.bucket.decide_step();
        }
        self.carry(index, outputs);
        self.persist(index);
        self.on_disk(index);
        self.keep_connections(index);
        self.pump(index);
        let at_ms = self.now_ms + TICK_MS + self.rng.range(0, 10);
        self.at(at_ms, Event::Tick(index, boot));
    }

    /// Executes the outputs of a node's participant.
    pub(crate) fn carry(&mut self, index: usize, outputs: Vec<Output>) {
        for output in outputs {
            match output {
                Output::Request(id, request) => {
                    let boot = self.nodes[index].boot;
                    if !self.blocked.contains(&(index, self.nodes.len())) {
                        let at_ms = self.now_ms + self.delay_ms(index, self.nodes.len());
                        let life = self.etcd.life;
                        self.at(at_ms, Event::Request(index, boot, id, request, life));
                    }
                }
                Output::Send(to, Message::Ping) => {
                    let node = &mut self.nodes[index];
                    let all = node.vbs.buckets.values().map(|bucket| &bucket.copies);
                    let known = node.confirmed_by.position(to, all);
                    let ping = Packet::Ping(node.boot, node.clock_ms(self.now_ms), known);
                    self.send(index, usize::from(to.0), ping);
                }
                Output::Send(to, message) => {
                    self.send(index, usize::from(to.0), Packet::Message(message));
                }
                Output::Step(step) => self.begin(index, step),
            }
        }
    }

    /// Sends a packet in order with earlier ones: lost packets are sent again.
    pub(crate) fn send_in_order(&mut self, from: usize, to: usize, packet: Packet) {
        if to >= self.nodes.len() || self.blocked.contains(&(from, to)) {
            return;
        }
        let mut at_ms = self.now_ms + self.delay_ms(from, to);
        if self.rng.per_mille(self.weather.lost) {
            at_ms += RESENT_MS;
        }
        let last_ms = self.bytes_at_ms.entry((from, to)).or_default();
        *last_ms = at_ms.max(*last_ms);
        let at_ms = *last_ms;
        self.at(at_ms, Event::Packet(from, to, packet));
    }

    pub(crate) fn send(&mut self, from: usize, to: usize, packet: Packet) {
        if to >= self.nodes.len() || self.blocked.contains(&(from, to)) {
            return;
        }
        if from == to {
            self.at(self.now_ms, Event::Packet(from, to, packet));
            return;
        }
        if self.rng.per_mille(self.weather.lost) {
            return;
        }
        let mut times = 1;
        if self.rng.per_mille(self.weather.doubled) {
            times = 2;
        }
        for _ in 0..times {
            let at_ms = self.now_ms + self.delay_ms(from, to);
            self.at(at_ms, Event::Packet(from, to, packet.clone()));
        }
    }

    fn packet(&mut self, from: usize, to: usize, packet: Packet) {
        match packet {
            Packet::Message(message) => {
                let message = self.spoil(from, to, message);
                let node = &mut self.nodes[to];
                let now_ms = node.clock_ms(self.now_ms);
                let from = NodeId(from as u16);
                let mut outputs = node.participant.message(from, &message, now_ms, &node.vbs);
                outputs.extend(node.participant.decide(now_ms));
                self.carry(to, outputs);
            }
            Packet::Ping(boot, at_ms, known) => self.take_ping(from, to, (boot, at_ms), known),
            Packet::Confirm(boot, at_ms, all) => {
                self.take_confirmation(from, to, (boot, at_ms), &all);
            }
            Packet::Asked(id, bytes) => self.take_asked(from, to, (id, bytes)),
            Packet::Told(id, bytes) => self.take_told(from, to, (id, bytes)),
            Packet::Reset(id, number) => self.take_reset(from, to, (id, number)),
        }
    }

    /// Sends an operator's order to a random node that runs.
    pub(crate) fn order(&mut self, order: Order) {
        let up = (0..self.nodes.len()).filter(|at| self.nodes[*at].runs(self.now_ms));
        let up: Vec<usize> = up.collect();
        if !up.is_empty() {
            let index = up[self.rng.index(up.len())];
            self.tell(|| format!("{order:?} at n{index}"));
            let outputs = self.nodes[index].participant.order(order);
            self.carry(index, outputs);
        }
    }
}
