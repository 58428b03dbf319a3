//! Random durable writes among plain ones, with acknowledgements, timeouts, changes of topology and
//! state, failed flushes, and restarts. Expected: each change has the next seqno, each prepare is
//! decided once and in order, a commit needs its majority (of a prepare that was taken over: all
//! nodes that exist, if they are fewer), and after a restart only the changes in the store count.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::{
    Decision, FlushBatch, FlushBudget, OpError, Outcome, Requirement, StoreMode, VBucket, VbConfig,
    Write,
};
use model::{Cas, Draft, DurabilityLevel, Meta, Now, Seqno, VbState, VbUuid};
use proptest::prelude::*;

use crate::store::{ModelStore, new_vbucket};

const KEYS: u8 = 4;
const SECOND: u64 = 1_000_000_000;

/// Chains of node names; an empty name is a missing node.
const TOPOLOGIES: [&[&[&str]]; 8] = [
    &[],
    &[&["A"]],
    &[&["A", "B"]],
    &[&["A", "B", "C"]],
    &[&["A", ""]],
    &[&["A", "B", ""]],
    &[&["A", "B"], &["A", "C"]],
    &[&["A", "B", "C", "D"]],
];

#[derive(Clone, Debug)]
enum Op {
    Write {
        key: u8,
        level: u8,
        seconds: u8,
        delete: bool,
    },
    Ack {
        node: u8,
        back: u8,
    },
    Clock {
        seconds: u8,
    },
    Topology(usize),
    Demote,
    FlushBegin,
    FlushEnd {
        ok: bool,
        written: bool,
    },
    Restart {
        unclean: bool,
    },
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => (0..KEYS, 0..4u8, 1..5u8, prop::bool::weighted(0.2)).prop_map(
            |(key, level, seconds, delete)| Op::Write { key, level, seconds, delete }
        ),
        5 => (0..3u8, 0..6u8).prop_map(|(node, back)| Op::Ack { node, back }),
        1 => (1..4u8).prop_map(|seconds| Op::Clock { seconds }),
        1 => (0..TOPOLOGIES.len()).prop_map(Op::Topology),
        1 => Just(Op::Demote),
        3 => Just(Op::FlushBegin),
        3 => prop_oneof![
            4 => Just(Op::FlushEnd { ok: true, written: true }),
            1 => Just(Op::FlushEnd { ok: false, written: false }),
            1 => Just(Op::FlushEnd { ok: false, written: true }),
        ],
        1 => any::<bool>().prop_map(|unclean| Op::Restart { unclean }),
    ]
}

/// Value of a key at a seqno; `None` is a deletion.
type Value = Option<Vec<u8>>;

#[derive(Clone, Debug)]
enum Event {
    Plain(u8, Value),
    Prepare(u8, Value, DurabilityLevel),
    Commit(Seqno),
    Abort(Seqno),
}

#[derive(Clone, Debug)]
struct Waiting {
    key: u8,
    value: Value,
    level: DurabilityLevel,
    /// `None` for a prepare of an earlier active node: it may have been committed there.
    deadline_ns: Option<u64>,
    hidden: bool,
}

struct World {
    vbucket: VBucket,
    store: ModelStore,
    batch: Option<FlushBatch>,
    config: Arc<VbConfig>,
    now: Now,
    uuids: u64,
    topology: usize,
    values: u64,
    events: BTreeMap<Seqno, Event>,
    committed: BTreeMap<u8, Value>,
    waiting: BTreeMap<Seqno, Waiting>,
    acks: BTreeMap<&'static str, Seqno>,
    flushed: Seqno,
    /// Number of histories begun: all, those in the batch, and those on disk.
    histories: u64,
    batch_histories: u64,
    flushed_histories: u64,
    high: Seqno,
    completed: Seqno,
}

fn key_of(index: u8) -> Vec<u8> {
    format!("\0key{index}").into_bytes()
}

fn json(topology: usize) -> String {
    let chain = |nodes: &&[&str]| {
        let quoted = nodes.iter().map(|node| match *node {
            "" => "null".to_owned(),
            node => format!("\"{node}\""),
        });
        format!("[{}]", quoted.collect::<Vec<_>>().join(","))
    };
    let chains: Vec<String> = TOPOLOGIES[topology].iter().map(chain).collect();
    format!("[{}]", chains.join(","))
}

impl World {
    fn new(checkpoint_bytes_max: usize) -> Self {
        let config = VbConfig {
            checkpoint_bytes_max,
            hash_seed: 7,
            ..Default::default()
        };
        let (vbucket, config) = new_vbucket(VbState::Active, config);
        Self {
            vbucket,
            store: ModelStore::default(),
            batch: None,
            config,
            now: Now {
                unix_ns: 1_700_000_000 * SECOND,
                mono_ns: SECOND,
            },
            uuids: 1,
            topology: 0,
            values: 0,
            events: BTreeMap::new(),
            committed: BTreeMap::new(),
            waiting: BTreeMap::new(),
            acks: BTreeMap::new(),
            flushed: Seqno::ZERO,
            histories: 0,
            batch_histories: 0,
            flushed_histories: 0,
            high: Seqno::ZERO,
            completed: Seqno::ZERO,
        }
    }

    fn possible(&self) -> bool {
        TOPOLOGIES[self.topology].iter().all(|nodes| {
            let there = nodes.iter().filter(|node| !node.is_empty()).count();
            there > nodes.len() / 2
        })
    }

    /// Whether this node and enough others have the oldest prepare with its durability.
    fn satisfied(&self, seqno: Seqno) -> bool {
        let waits = &self.waiting[&seqno];
        let chains = TOPOLOGIES[self.topology];
        let history = chains.is_empty() || self.flushed_histories == self.histories;
        let own = !waits.level.persists_on_active() || self.flushed >= seqno && history;
        let must = waits.level == DurabilityLevel::MajorityAndPersistOnActive || chains.is_empty();
        (own || !must)
            && chains.iter().all(|nodes| {
                let acked = |node: &&&str| self.acks.get(**node).is_some_and(|at| *at >= seqno);
                let agreed = usize::from(own) + nodes.iter().skip(1).filter(acked).count();
                // A prepare that was taken over waits for no node that is missing.
                let there = nodes.iter().filter(|node| !node.is_empty()).count();
                agreed > nodes.len() / 2 || waits.hidden && agreed == there
            })
    }

    fn event(&mut self, event: Event) {
        self.high = self.high.next();
        self.events.insert(self.high, event);
    }

    /// Takes the vBucket's decisions, each with the next seqno, and checks them.
    fn decided(&mut self) {
        for one in self.vbucket.take_outbox().decided {
            let oldest = *self.waiting.keys().next().expect("something waited");
            match one.decision {
                Decision::Committed(mutated) => {
                    assert_eq!(one.prepare, oldest, "in order");
                    assert!(self.satisfied(oldest), "{oldest} has no majority");
                    let waits = self.waiting.remove(&oldest).unwrap();
                    self.event(Event::Commit(oldest));
                    assert_eq!(mutated.seqno, self.high);
                    self.committed.insert(waits.key, waits.value);
                }
                Decision::Ambiguous => {
                    let waits = self.waiting.remove(&one.prepare).expect("it waited");
                    let late = waits.deadline_ns.expect("nobody may have committed it");
                    let overdue = one.prepare == oldest && late <= self.now.mono_ns;
                    assert!(overdue || !self.possible(), "{} was given up", one.prepare);
                    self.event(Event::Abort(one.prepare));
                }
            }
            self.completed = self.completed.max(one.prepare);
        }
        if let Some(oldest) = self.waiting.keys().next() {
            assert!(!self.satisfied(*oldest), "{oldest} could be committed");
        }
    }

    fn write(&mut self, key: u8, level: u8, seconds: u8, delete: bool) {
        let level = DurabilityLevel::from_number(level);
        let deadline_ns = self.now.mono_ns + u64::from(seconds) * SECOND;
        let durability = level.map(|level| Requirement { level, deadline_ns });
        self.values += 1;
        let value = (!delete).then(|| self.values.to_string().into_bytes());
        let name = key_of(key);
        let outcome = match &value {
            None => {
                let vbucket = &mut self.vbucket;
                vbucket.delete(&name, Cas::ANY, durability, self.now)
            }
            Some(value) => {
                let mut write = Write {
                    mode: StoreMode::Set,
                    draft: Some(Draft::new(&name, value, &Meta::default())),
                    cas: Cas::ANY,
                    preserve_expiry: false,
                    durability,
                };
                self.vbucket.store(&mut write, self.now)
            }
        };
        let pending = self.waiting.values().find(|waits| waits.key == key);
        let there = matches!(self.committed.get(&key), Some(Some(_)));
        let refusal = match (pending, level) {
            (_, Some(_)) if !self.possible() => Some(OpError::DurabilityImpossible),
            (Some(waits), _) if waits.hidden => Some(OpError::SyncWriteReCommitInProgress),
            (Some(_), _) => Some(OpError::SyncWriteInProgress),
            (None, _) if delete && !there => Some(OpError::KeyNotFound),
            _ => None,
        };
        if let Some(refusal) = refusal {
            let both = delete && !there && outcome == Err(OpError::KeyNotFound);
            assert!(
                both || outcome.as_ref().err() == Some(&refusal),
                "{outcome:?}"
            );
            return;
        }
        let Some(level) = level else {
            self.event(Event::Plain(key, value.clone()));
            self.committed.insert(key, value);
            let Ok(Outcome::Done(mutated)) = outcome else {
                panic!("{outcome:?}")
            };
            return assert_eq!(mutated.seqno, self.high);
        };
        self.event(Event::Prepare(key, value.clone(), level));
        let prepare = self.high;
        let waits = Waiting {
            key,
            value: value.clone(),
            level,
            deadline_ns: Some(deadline_ns),
            hidden: false,
        };
        self.waiting.insert(prepare, waits);
        match outcome.unwrap() {
            Outcome::Prepared(mutated) => assert_eq!(mutated.seqno, prepare),
            Outcome::NeedsFetch(_) => panic!("nothing was evicted"),
            Outcome::Done(mutated) => {
                assert_eq!(self.waiting.len(), 1, "nothing older waits");
                assert!(self.satisfied(prepare), "answered without a majority");
                self.waiting.clear();
                self.event(Event::Commit(prepare));
                self.committed.insert(key, value);
                self.completed = prepare;
                assert_eq!(mutated.seqno, self.high);
            }
        }
    }

    fn flush_end(&mut self, ok: bool, written: bool) {
        let Some(batch) = self.batch.take() else {
            return;
        };
        let high = batch.record.high_seqno;
        self.store.end_flush(&mut self.vbucket, batch, ok, written);
        if ok {
            self.flushed = self.flushed.max(high);
            self.flushed_histories = self.batch_histories;
        }
    }

    fn become_active_anew(&mut self) {
        for waits in self.waiting.values_mut() {
            waits.deadline_ns = None;
            waits.hidden = true;
        }
        self.acks.clear();
    }

    fn demote(&mut self) {
        self.uuids += 1;
        self.vbucket
            .set_state(VbState::Replica, None, VbUuid(self.uuids));
        // Waiting clients get an ambiguous result; the prepares stay.
        let told = self.vbucket.take_outbox().decided;
        let told: Vec<Seqno> = told.iter().map(|one| one.prepare).collect();
        assert_eq!(told, self.waiting.keys().copied().collect::<Vec<_>>());
        self.become_active_anew();
        self.uuids += 1;
        self.vbucket
            .set_state(VbState::Active, None, VbUuid(self.uuids));
        self.histories += 1;
    }

    /// Restarts; expects the state that results from the changes up to the store's record.
    fn restart(&mut self, unclean: bool) {
        self.uuids += 1;
        let history = unclean.then_some(VbUuid(self.uuids));
        let Some((vbucket, stale)) = self.store.warm_up(Arc::clone(&self.config), history) else {
            return;
        };
        assert_eq!(stale, 0);
        self.vbucket = vbucket;
        self.batch = None;
        let record = self.store.record.clone().expect("there is one");
        self.high = record.high_seqno;
        self.flushed = record.high_seqno;
        self.histories += u64::from(unclean);
        self.flushed_histories = self.histories - u64::from(unclean);
        self.topology = (0..TOPOLOGIES.len())
            .find(|index| json(*index) == record.topology || record.topology.is_empty())
            .expect("it was set");
        self.events.retain(|seqno, _| *seqno <= record.high_seqno);
        self.replay();
        self.become_active_anew();
    }

    fn replay(&mut self) {
        (self.committed, self.waiting) = Default::default();
        self.completed = Seqno::ZERO;
        for (seqno, event) in &self.events {
            match event {
                Event::Plain(key, value) => {
                    self.committed.insert(*key, value.clone());
                }
                Event::Prepare(key, value, level) => {
                    let waits = Waiting {
                        key: *key,
                        value: value.clone(),
                        level: *level,
                        deadline_ns: None,
                        hidden: true,
                    };
                    self.waiting.insert(*seqno, waits);
                }
                Event::Commit(prepare) => {
                    let waits = self.waiting.remove(prepare).expect("it waited");
                    self.committed.insert(waits.key, waits.value);
                    self.completed = *prepare;
                }
                Event::Abort(prepare) => {
                    self.waiting.remove(prepare);
                    self.completed = self.completed.max(*prepare);
                }
            }
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Write {
                key,
                level,
                seconds,
                delete,
            } => self.write(key, level, seconds, delete),
            Op::Ack { node, back } => {
                let node = ["B", "C", "D"][usize::from(node)];
                let seqno = Seqno(self.high.0.saturating_sub(u64::from(back)));
                assert_eq!(self.vbucket.seqno_acknowledged(node, seqno), Ok(()));
                let acked = self.acks.entry(node).or_default();
                *acked = seqno.max(*acked);
            }
            Op::Clock { seconds } => {
                self.now.mono_ns += u64::from(seconds) * SECOND;
                self.now.unix_ns += u64::from(seconds) * SECOND;
                self.vbucket.abort_overdue(self.now);
            }
            Op::Topology(topology) => {
                self.topology = topology;
                self.uuids += 1;
                let text = Some(json(topology));
                self.vbucket
                    .set_state(VbState::Active, text, VbUuid(self.uuids));
            }
            Op::Demote => self.demote(),
            Op::FlushBegin => {
                let batch = self
                    .vbucket
                    .begin_flush(FlushBudget::ALL, &mut engine::SpareBuffers::default());
                if batch.is_some() {
                    self.batch_histories = self.histories;
                }
                self.batch = batch.or(self.batch.take());
            }
            Op::FlushEnd { ok, written } => self.flush_end(ok, written),
            Op::Restart { unclean } => self.restart(unclean),
        }
        self.decided();
        if matches!(op, Op::Clock { .. } | Op::Topology(_)) {
            let now = self.now.mono_ns;
            let late = |waits: &Waiting| waits.deadline_ns.is_some_and(|at| at <= now);
            if matches!(op, Op::Clock { .. }) {
                let first = self.waiting.values().next();
                assert!(!first.is_some_and(late), "its time is over");
            }
            let given_up = |waits: &Waiting| waits.deadline_ns.is_none();
            assert!(self.possible() || self.waiting.values().all(given_up));
        }
    }

    fn check(&mut self) {
        assert_eq!(self.vbucket.high_seqno(), self.high);
        let stats = self.vbucket.durability_stats();
        assert_eq!(stats.tracked, self.waiting.len() as u64);
        assert!(stats.high_completed >= self.completed, "{stats:?}");
        for key in 0..KEYS {
            let hidden = |waits: &&Waiting| waits.key == key && waits.hidden;
            let got = self.vbucket.get(&key_of(key), self.now);
            if self.waiting.values().any(|waits| hidden(&waits)) {
                assert_eq!(got.err(), Some(OpError::SyncWriteReCommitInProgress));
                continue;
            }
            match self.committed.get(&key).cloned().flatten() {
                None => assert_eq!(got.err(), Some(OpError::KeyNotFound)),
                Some(value) => {
                    let Ok(Outcome::Done(got)) = got else {
                        panic!("{got:?}")
                    };
                    assert_eq!(got.document.value(), value);
                }
            }
        }
        let there = self.committed.values().flatten().count();
        assert_eq!(self.vbucket.items(), there as u64);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..Default::default() })]

    #[test]
    fn durable_writes_keep_what_they_promise(
        checkpoint_bytes_max in prop::sample::select(&[1, 600, 1 << 20][..]),
        ops in prop::collection::vec(op(), 1..200),
    ) {
        let mut world = World::new(checkpoint_bytes_max);
        for op in &ops {
            world.run(op);
            world.check();
        }
    }
}
