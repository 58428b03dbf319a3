//! Collections are created, dropped and created again with the same name, among random plain and
//! durable writes, flushes, faults and restarts. Filtered streams read the vBucket; one feeds a
//! replica. At a snapshot's end, a reader has exactly the part of the state that it may see.

mod durable;
mod found;
mod history;
mod node;
mod reader;
mod thousand;

use std::collections::BTreeSet;

use collections::{CollectionSettings, Manifest, ManifestPlanner, events_of};
use engine::{CheckpointKind, OpError, Outcome, SnapshotMarker, StoreMode, Write};
use history::{Change, History, State, id_of};
use model::{
    Cas, CollectionId, Document, Draft, Meta, Now, Seqno, VbState, VbUuid, collection_key,
};
use node::Node;
use proptest::prelude::*;
use reader::{Reader, Step, Wanted};

/// Maximum number of events per lock hold.
const STEPS_MAX: usize = 2;
/// Scope and name of the test's collections; the first one exists from the start.
const NAMES: [(&str, &str); 5] = [
    ("_default", "_default"),
    ("_default", "c"),
    ("s", "c"),
    ("s", "d"),
    ("t", "c"),
];
const KEYS: u8 = 30;
const READERS_MAX: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Side {
    Active,
    Replica,
}

#[derive(Clone, Debug)]
enum Op {
    Set {
        key: u8,
        count: u8,
    },
    Delete {
        key: u8,
    },
    /// A durable write, aborted after so many nanoseconds.
    Prepare {
        key: u8,
        level: u8,
        delete: bool,
        patience: u8,
    },
    /// The replica acknowledges its prepares.
    Acknowledge,
    Wait(u8),
    /// Creates missing collections, drops existing ones; several at once.
    Toggle {
        names: Vec<u8>,
        ttl: Option<u32>,
        between: u8,
    },
    DropScope(u8),
    DropDefault,
    SetTtl {
        name: u8,
        ttl: Option<u32>,
    },
    FlushBegin {
        on: Side,
        items: u16,
    },
    FlushEnd {
        on: Side,
        ok: bool,
        written: bool,
    },
    Erase(Side),
    Open {
        wanted: u8,
        name: u8,
        from_high: bool,
    },
    Read {
        which: u8,
        steps: u8,
        rows: u8,
    },
    Resume {
        which: u8,
    },
    DropCursor {
        which: u8,
    },
    Replicate {
        steps: u8,
    },
    Restart {
        on: Side,
        unclean: bool,
    },
}

struct World {
    active: Node,
    replica: Node,
    link: Reader,
    readers: Vec<Reader>,
    readers_made: u32,
    manifest: Manifest,
    /// Last id of each name.
    ids: [u32; NAMES.len()],
    /// Every id ever used.
    given: BTreeSet<u32>,
    history: History,
    /// Current state.
    state: State,
    /// Last seqno that the replica acknowledged since the active vBucket was loaded.
    acked: Seqno,
    /// Last prepare that may have been committed before that: keys of earlier ones cannot be read.
    hidden_to: Seqno,
    now: Now,
}

impl World {
    fn new(checkpoint_bytes_max: usize) -> Self {
        let mut active = Node::new(VbState::Active, checkpoint_bytes_max);
        durable::follow_each_other(&mut active);
        let begin = || (Seqno::ZERO, State::default());
        let link = Reader::open(&mut active.vbucket, "link".into(), Wanted::Replica, begin());
        Self {
            active,
            replica: Node::new(VbState::Replica, checkpoint_bytes_max),
            link,
            readers: Vec::new(),
            readers_made: 0,
            manifest: Manifest::default(),
            ids: [0, 9999, 9999, 9999, 9999],
            given: BTreeSet::new(),
            history: History::default(),
            state: State::default(),
            acked: Seqno::ZERO,
            hidden_to: Seqno::ZERO,
            now: Now {
                unix_ns: 1_700_000_000_000_000_000,
                mono_ns: 1,
            },
        }
    }

    fn side(&mut self, side: Side) -> &mut Node {
        match side {
            Side::Active => &mut self.active,
            Side::Replica => &mut self.replica,
        }
    }

    fn run(&mut self, op: &Op) {
        match *op {
            Op::Set { key, count } => {
                (key..key.saturating_add(count)).for_each(|key| self.set(key));
            }
            Op::Delete { key } => self.delete(key),
            Op::Prepare { .. } | Op::Acknowledge | Op::Wait(_) => self.run_durable(op),
            Op::FlushBegin { on, items } => self.side(on).flush_begin(items.into()),
            Op::FlushEnd { on, ok, written } => self.side(on).flush_end(ok, written),
            Op::Erase(on) => self.side(on).erase(),
            Op::Open {
                wanted,
                name,
                from_high,
            } => self.open(wanted, name, from_high),
            Op::Replicate { steps } => (0..steps).for_each(|_| {
                self.replicate();
            }),
            Op::Restart { on, unclean } => self.restart(on, unclean),
            Op::Read { which, steps, rows } => self.with_reader(which, |reader, world| {
                let node = &mut world.active;
                for _ in 0..steps {
                    reader.step(&mut node.vbucket, &node.store, &world.history, rows.into());
                }
                true
            }),
            Op::Resume { which } => self.with_reader(which, |reader, world| {
                reader.close(&mut world.active.vbucket);
                reader.resume(&mut world.active.vbucket, &world.manifest)
            }),
            Op::DropCursor { which } => self.with_reader(which, |reader, world| {
                reader.drop_cursor(&mut world.active.vbucket);
                true
            }),
            _ => self.manage(op),
        }
        self.note_decided();
    }

    fn with_reader(&mut self, which: u8, what: impl FnOnce(&mut Reader, &mut Self) -> bool) {
        if self.readers.is_empty() {
            return;
        }
        let at = usize::from(which) % self.readers.len();
        let mut reader = self.readers.swap_remove(at);
        if what(&mut reader, self) {
            self.readers.push(reader);
        } else {
            reader.close(&mut self.active.vbucket);
        }
    }

    fn key(&self, key: u8) -> Vec<u8> {
        let id = self.ids[usize::from(key) % NAMES.len()];
        collection_key(CollectionId(id), format!("key{}", key % KEYS).as_bytes())
    }

    fn note(&mut self, change: Change) {
        let seqno = self.state_high().next();
        self.state.follow(seqno, &change);
        self.history.add(seqno, change);
    }

    fn state_high(&self) -> Seqno {
        let last = self.history.changes.keys().next_back();
        last.copied().unwrap_or(Seqno::ZERO)
    }

    fn set(&mut self, key: u8) {
        let key = self.key(key);
        let draft = Some(Draft::new(&key, b"value", &Meta::default()));
        let mut write = Write {
            mode: StoreMode::Set,
            draft,
            cas: Cas::ANY,
            preserve_expiry: false,
            durability: None,
        };
        let outcome = self.active.vbucket.store(&mut write, self.now);
        let Some(open) = self.state.open.get(&id_of(&key)) else {
            assert_eq!(outcome.err(), Some(OpError::UnknownCollection));
            return;
        };
        if let Some(refusal) = self.waits(&key) {
            return assert_eq!(outcome.err(), Some(refusal));
        }
        let Ok(Outcome::Done(_)) = outcome else {
            panic!("{outcome:?}")
        };
        let expiry = self.expiry(open.ttl);
        self.note(Change::Document {
            key,
            gone: false,
            expiry,
        });
    }

    fn delete(&mut self, key: u8) {
        let key = self.key(key);
        let outcome = self.active.vbucket.delete(&key, Cas::ANY, None, self.now);
        if !self.state.open.contains_key(&id_of(&key)) {
            assert_eq!(outcome.err(), Some(OpError::UnknownCollection));
        } else if !self.state.documents.contains_key(&key) {
            assert!(outcome.is_err(), "{outcome:?}");
        } else if let Some(refusal) = self.waits(&key) {
            assert_eq!(outcome.err(), Some(refusal));
        } else {
            assert!(outcome.is_ok());
            self.note(Change::Document {
                key,
                gone: true,
                expiry: 0,
            });
        }
    }

    fn manage(&mut self, op: &Op) {
        match op {
            Op::Toggle {
                names,
                ttl,
                between,
            } => {
                let mut next = self.manifest.clone();
                for name in names {
                    next = toggled(&next, usize::from(*name) % NAMES.len(), *ttl);
                }
                self.take(next, *between);
            }
            Op::DropScope(name) => {
                let scope = NAMES[usize::from(*name) % NAMES.len()].0;
                if let Ok(next) = self.manifest.without_scope(scope) {
                    self.take(next, *name);
                }
            }
            Op::DropDefault => {
                if let Ok(next) = self.manifest.without_collection("_default", "_default") {
                    self.take(next, 0);
                }
            }
            Op::SetTtl { name, ttl } => {
                let (scope, collection) = NAMES[usize::from(*name) % NAMES.len()];
                let set = |settings: &mut CollectionSettings| settings.max_ttl_s = *ttl;
                if let Ok(next) = self.manifest.with_settings(scope, collection, set) {
                    self.take(next, *name);
                }
            }
            _ => unreachable!("{op:?}"),
        }
    }

    /// Applies another manifest, with writes between the steps.
    fn take(&mut self, next: Manifest, between: u8) {
        assert!(self.manifest.check_successor(&next).unwrap() || next == self.manifest);
        for (_, collection) in next.collections() {
            let known = self.manifest.collection(collection.id).is_some();
            assert!(
                known || self.given.insert(collection.id.0),
                "a number comes again"
            );
        }
        for (at, (scope, name)) in NAMES.iter().enumerate() {
            let scope = next.scope_named(scope);
            let found =
                scope.and_then(|scope| scope.collections.iter().find(|one| &*one.name == *name));
            self.ids[at] = found.map_or(self.ids[at], |found| found.id.0);
        }
        self.manifest = next;
        self.catch_up(Some(between));
    }

    fn catch_up(&mut self, mut between: Option<u8>) {
        let manifest = self.manifest.clone();
        let mut planner = ManifestPlanner::new(&manifest, STEPS_MAX);
        loop {
            let expected = self.state.differences(&self.manifest);
            let begins =
                |change: &&Change| matches!(change, Change::Begun { .. } | Change::ScopeBegun(_));
            // More of them come as a group.
            let begun = expected.iter().take_while(begins).count();
            let grouped = begun > STEPS_MAX;
            let before = self.active.vbucket.high_seqno();
            let finished = self.active.vbucket.apply_manifest(&mut planner, self.now);
            assert_eq!(finished, expected.len() < STEPS_MAX);
            let most = if grouped { begun } else { STEPS_MAX };
            let given_up = self.note_steps(expected, most);
            let steps = self.state_high().0 - before.0 - given_up;
            assert!(if finished {
                steps < 2
            } else {
                steps == most as u64
            });
            assert_eq!(self.active.vbucket.high_seqno(), self.state_high());
            if finished {
                assert_eq!(self.active.vbucket.manifest_uid(), self.manifest.uid());
                return;
            }
            if let Some(key) = &mut between {
                *key = key.wrapping_add(1);
                let key = *key;
                self.set(key);
            }
        }
    }

    fn open(&mut self, wanted: u8, name: u8, from_high: bool) {
        if self.readers.len() >= READERS_MAX {
            return;
        }
        let ids: Vec<u32> = self
            .manifest
            .collections()
            .map(|(_, one)| one.id.0)
            .collect();
        let scopes = self.manifest.scopes();
        let which = usize::from(name);
        let wanted = match wanted % 4 {
            0 => Wanted::All,
            1 => Wanted::Default,
            2 if ids.is_empty() => return,
            2 => {
                let two = [ids[which % ids.len()], ids[which / 7 % ids.len()]];
                Wanted::Collections(two[..=which % 2].to_vec())
            }
            _ => Wanted::Scope(scopes[which % scopes.len()].id.0),
        };
        let begin = if from_high {
            (self.state_high(), self.state.clone())
        } else {
            (Seqno::ZERO, State::default())
        };
        let name = format!("reader {}", self.readers_made);
        self.readers_made += 1;
        let reader = Reader::open(&mut self.active.vbucket, name, wanted, begin);
        self.readers.push(reader);
    }

    /// Moves one message to the replica; `false` if there is none.
    fn replicate(&mut self) -> bool {
        let node = &mut self.active;
        let step = self
            .link
            .step(&mut node.vbucket, &node.store, &self.history, 3);
        assert_eq!(self.link.end, None);
        let vbucket = &mut self.replica.vbucket;
        match step {
            None => return false,
            Some(Step::Other) => {}
            Some(Step::Marker(snapshot)) => {
                let marker = SnapshotMarker {
                    start: snapshot.range.start,
                    end: snapshot.range.end,
                    kind: if snapshot.disk {
                        CheckpointKind::Disk
                    } else {
                        CheckpointKind::Memory
                    },
                    checkpoint: snapshot.checkpoint,
                    high_completed: snapshot.high_completed,
                    high_prepared: snapshot.high_prepared,
                    visible_end: Some(snapshot.visible_end),
                    purge_seqno: None,
                    historical: false,
                };
                vbucket.begin_snapshot(&marker).unwrap();
            }
            Some(Step::Change(document)) => {
                if durable::apply(vbucket, &document).snapshot_ended {
                    self.check_replica();
                }
            }
        }
        true
    }

    /// Checks the replica at a consistent seqno. Data of collections that the active vBucket
    /// dropped later may be missing; it is missing if it was erased there.
    fn check_replica(&mut self) {
        let at = self.replica.vbucket.high_seqno();
        let state = self.history.state(at);
        let ending = self.history.ended_after(at);
        for (key, seqno) in &state.documents {
            if ending.contains(&id_of(key)) {
                continue;
            }
            let found = self.replica.vbucket.get_replica(key, false, self.now);
            let Ok(Outcome::Done(got)) = found else {
                panic!("{key:?}: {found:?} at {at}")
            };
            assert_eq!(got.document.seqno(), *seqno);
        }
        for change in self.history.changes.values() {
            let Some(key) = change.key() else {
                continue;
            };
            if !state.documents.contains_key(key) {
                let found = self.replica.vbucket.get_replica(key, false, self.now);
                assert!(found.is_err(), "{key:?} is on the replica at {at}");
            }
        }
        if state.open.keys().all(|id| !ending.contains(id)) {
            self.replica.check_state(&state);
            let tracked = self.replica.vbucket.durability_stats().tracked;
            assert_eq!(tracked, state.prepared.len() as u64, "at {at}");
        }
    }

    fn restart(&mut self, side: Side, unclean: bool) {
        let whole = self.side(side).restart(unclean);
        if matches!(side, Side::Active) {
            self.lose_after(whole);
            (self.acked, self.hidden_to) = (Seqno::ZERO, self.state_high());
            if self.replica.vbucket.high_seqno() > whole {
                self.replica.reset();
            }
            let mut readers = std::mem::take(&mut self.readers);
            readers.retain_mut(|reader| reader.resume(&mut self.active.vbucket, &self.manifest));
            self.readers = readers;
        }
        let progress = self.replica.vbucket.snapshot_progress();
        if progress.start != progress.end {
            // A replica that stopped inside a snapshot starts again: not the topic of this test.
            self.replica.reset();
        }
        self.link.close(&mut self.active.vbucket);
        let after = self.replica.vbucket.high_seqno();
        let begin = (after, self.history.state(after));
        self.link = Reader::open(
            &mut self.active.vbucket,
            "link".into(),
            Wanted::Replica,
            begin,
        );
        self.catch_up(None);
    }

    /// Removes lost changes, and changes whose replacement in a snapshot was lost.
    fn lose_after(&mut self, whole: Seqno) {
        let high = self.active.vbucket.high_seqno();
        // The row of a group has the last of the group's seqnos.
        let seqnos_of = |row: &Document| {
            let others = events_of(row).count().saturating_sub(1) as u64;
            row.seqno().0 - others..=row.seqno().0
        };
        let rows: BTreeSet<u64> = self
            .active
            .store
            .rows
            .values()
            .flat_map(seqnos_of)
            .collect();
        let kept = |seqno: &Seqno| *seqno <= whole || rows.contains(&seqno.0);
        self.history
            .changes
            .retain(|seqno, _| *seqno <= high && kept(seqno));
        self.state = self.history.state(high);
    }

    fn check(&mut self) {
        self.active.check();
        self.replica.check();
        assert_eq!(self.active.vbucket.high_seqno(), self.state_high());
        self.active.check_state(&self.state);
        let tracked = self.active.vbucket.durability_stats().tracked;
        assert_eq!(tracked, self.state.prepared.len() as u64);
        for (key, seqno) in &self.state.documents {
            let found = self.active.vbucket.get_meta(key, self.now);
            if self.waits(key) == Some(OpError::SyncWriteReCommitInProgress) {
                assert_eq!(found.err(), Some(OpError::SyncWriteReCommitInProgress));
                continue;
            }
            let Ok(Outcome::Done(found)) = found else {
                panic!("{key:?} is lost");
            };
            assert_eq!((found.meta.seqno, found.deleted), (*seqno, false));
        }
        for (id, open) in &self.state.open {
            let high = self.active.vbucket.collection_high_seqno(CollectionId(*id));
            assert_eq!(high, Some(open.high), "of {id}");
        }
    }

    /// Lets every reader read everything; erases dead documents; lets the replica take over.
    fn drain(&mut self) {
        self.decide_all();
        let high = self.state_high();
        for mut reader in std::mem::take(&mut self.readers) {
            let node = &mut self.active;
            while reader
                .step(&mut node.vbucket, &node.store, &self.history, 2)
                .is_some()
            {}
            reader.check_at_end(&self.history, high);
            reader.close(&mut self.active.vbucket);
        }
        while self.replicate() {}
        assert_eq!(self.replica.vbucket.high_seqno(), high);
        self.check_replica();
        for node in [&mut self.active, &mut self.replica] {
            node.flush(5);
            node.erase();
            assert!(!node.vbucket.has_dead());
            node.check();
            node.check_state(&self.state);
            assert_eq!(self.state.rows_of_the_dead(&node.store), []);
            node.restart(false);
            node.check_state(&self.state);
            // The remaining ones are found here.
            node.erase();
            assert!(!node.vbucket.has_dead());
        }
        self.replica
            .vbucket
            .set_state(VbState::Active, None, VbUuid(99));
        let promoted = &mut self.replica.vbucket;
        let mut planner = ManifestPlanner::new(&self.manifest, STEPS_MAX);
        assert!(
            promoted.apply_manifest(&mut planner, self.now),
            "it knows everything"
        );
        assert_eq!(promoted.high_seqno(), high);
    }
}

fn toggled(manifest: &Manifest, name: usize, ttl: Option<u32>) -> Manifest {
    let (scope, collection) = NAMES[name];
    if name == 0 {
        return manifest.clone();
    }
    let with_scope = manifest.with_scope(scope);
    let manifest = with_scope.as_ref().unwrap_or(manifest);
    let settings = CollectionSettings {
        max_ttl_s: ttl,
        history: false,
    };
    let toggled = manifest
        .with_collection(scope, collection, settings)
        .or_else(|_| manifest.without_collection(scope, collection));
    toggled.expect("it is there or it is not")
}

fn op() -> impl Strategy<Value = Op> {
    let side = || prop_oneof![2 => Just(Side::Active), 1 => Just(Side::Replica)];
    let items = || prop_oneof![1..8u16, Just(u16::MAX)];
    let some = any::<u8>;
    let ttl = || prop::option::of(prop::sample::select(&[0, 50, 1000][..]));
    prop_oneof![
        10 => (some(), 1..9u8).prop_map(|(key, count)| Op::Set { key, count }),
        3 => some().prop_map(|key| Op::Delete { key }),
        6 => (some(), 1..4u8, prop::bool::weighted(0.3), 1..9u8).prop_map(
            |(key, level, delete, patience)| Op::Prepare { key, level, delete, patience }
        ),
        5 => Just(Op::Acknowledge),
        1 => (1..6u8).prop_map(Op::Wait),
        5 => (prop::collection::vec(some(), 1..6), ttl(), some())
            .prop_map(|(names, ttl, between)| Op::Toggle { names, ttl, between }),
        1 => some().prop_map(Op::DropScope),
        2 => (some(), ttl()).prop_map(|(name, ttl)| Op::SetTtl { name, ttl }),
        4 => (side(), items()).prop_map(|(on, items)| Op::FlushBegin { on, items }),
        4 => (side(), prop_oneof![
            4 => Just((true, true)), 1 => Just((false, true)), 1 => Just((false, false)),
        ]).prop_map(|(on, (ok, written))| Op::FlushEnd { on, ok, written }),
        2 => side().prop_map(Op::Erase),
        4 => (some(), some(), any::<bool>())
            .prop_map(|(wanted, name, from_high)| Op::Open { wanted, name, from_high }),
        8 => (some(), 1..30u8, 1..9u8)
            .prop_map(|(which, steps, rows)| Op::Read { which, steps, rows }),
        1 => some().prop_map(|which| Op::Resume { which }),
        1 => some().prop_map(|which| Op::DropCursor { which }),
        6 => (1..40u8).prop_map(|steps| Op::Replicate { steps }),
        1 => (side(), any::<bool>()).prop_map(|(on, unclean)| Op::Restart { on, unclean }),
    ]
}

/// The operations drop the default collection at most once, as it cannot be created again.
fn ops() -> impl Strategy<Value = Vec<Op>> {
    let default = prop::option::weighted(0.2, any::<prop::sample::Index>());
    (prop::collection::vec(op(), 1..150), default).prop_map(|(mut ops, default)| {
        if let Some(at) = default {
            let at = at.index(ops.len());
            ops.insert(at, Op::DropDefault);
        }
        ops
    })
}

fn run(checkpoint_bytes_max: usize, ops: &[Op]) {
    let mut world = World::new(checkpoint_bytes_max);
    for op in ops {
        world.run(op);
        world.check();
    }
    world.drain();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, ..Default::default() })]

    #[test]
    fn filtered_streams_are_prefixes_of_what_they_may_see(
        checkpoint_bytes_max in prop::sample::select(&[1, 2000, 1 << 20][..]),
        ops in ops(),
    ) {
        run(checkpoint_bytes_max, &ops);
    }
}
