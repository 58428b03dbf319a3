//! Random operations on a vBucket and its store, against a map with the full history.

mod check;
mod expected;
mod ops;

use std::sync::Arc;

use collections::{Collection, CollectionSettings, Manifest, ManifestPlanner, Scope, SystemEvent};
use engine::{
    Arithmetic, Codec, Concat, ConcatPlace, DocumentPart, FetchKey, FlushBatch, FlushBudget,
    OpError, Outcome, Restored, StoreMode, VBucket, VbConfig, Write,
};
use expected::Expected;
use model::{
    Cas, CollectionId, Datatype, Document, Draft, Kind, ManifestUid, Meta, Now, ScopeId, Seqno,
    VbState, VbUuid,
};
use ops::{CasChoice, Op, op};
use proptest::prelude::*;

use crate::store::{ModelStore, TestCodec, new_vbucket, reread};

const KEYS: u8 = 6;
const SECOND: u64 = 1_000_000_000;

struct World {
    vbucket: VBucket,
    expected: Expected,
    store: ModelStore,
    batch: Option<FlushBatch>,
    config: Arc<VbConfig>,
    now: Now,
    memory: i64,
    uuids: u64,
}

/// Whether a row is a system event.
fn is_event(row: &Document) -> bool {
    SystemEvent::is_key(row.key())
}

fn key_of(index: u8) -> Vec<u8> {
    format!("\0key{index}").into_bytes()
}

impl World {
    fn new(checkpoint_bytes_max: usize, keeps_history: bool) -> Self {
        let config = VbConfig {
            checkpoint_bytes_max,
            keeps_history,
            hash_seed: 5,
            ..Default::default()
        };
        let (vbucket, config) = new_vbucket(VbState::Active, config);
        Self {
            vbucket,
            expected: Expected {
                cas_start: 1,
                ..Expected::default()
            },
            store: ModelStore::default(),
            batch: None,
            config,
            now: Now {
                unix_ns: 1_700_000_000 * SECOND,
                mono_ns: SECOND,
            },
            memory: 0,
            uuids: 1,
        }
    }

    /// Enables history for the default collection; the model does not count that change.
    fn with_history(mut self) -> Self {
        let default = Collection {
            id: CollectionId::DEFAULT,
            name: "_default".into(),
            settings: CollectionSettings {
                history: true,
                ..CollectionSettings::default()
            },
        };
        let scope = Scope {
            id: ScopeId::DEFAULT,
            name: "_default".into(),
            collections: vec![default],
        };
        let manifest = Manifest::new(ManifestUid(1), vec![scope]).expect("a valid manifest");
        let mut planner = ManifestPlanner::new(&manifest, 9);
        assert!(self.vbucket.apply_manifest(&mut planner, self.now));
        self.flush_begin(0);
        self.expected.high = Seqno(1);
        self.expected.max_cas = self.vbucket.max_cas();
        self.flush_end(true, true);
        self.memory += self.vbucket.take_memory_delta().bytes;
        self
    }

    fn cas(&self, key: &[u8], choice: CasChoice) -> Cas {
        match choice {
            CasChoice::Any => Cas::ANY,
            CasChoice::Wrong => Cas(1),
            CasChoice::Current => self
                .expected
                .documents
                .get(key)
                .map_or(Cas(2), |known| known.meta.cas),
            CasChoice::Lock => self.expected.locks.get(key).map_or(Cas(3), |lock| lock.0),
        }
    }

    fn expiry(&self, seconds: u8) -> u32 {
        if seconds == 0 {
            0
        } else {
            self.now.unix_s() + u32::from(seconds) - 2
        }
    }

    fn run(&mut self, op: &Op) {
        match op {
            Op::Store { .. } => self.store(op),
            Op::Concat {
                key,
                bytes,
                place,
                cas,
            } => {
                self.concat(&key_of(*key), bytes, *place, *cas);
            }
            Op::Count {
                key,
                delta,
                decrement,
                initial,
            } => {
                let arithmetic = Arithmetic {
                    delta: u64::from(*delta),
                    decrement: *decrement,
                    initial: initial.map(u64::from),
                    expiry: 0,
                    cas: Cas::ANY,
                    touch: None,
                    durability: None,
                };
                self.count(&key_of(*key), arithmetic);
            }
            Op::Delete { key, cas } => self.delete(&key_of(*key), *cas),
            Op::Touch { key, expiry } => self.touch(&key_of(*key), self.expiry(*expiry)),
            Op::Get { key } => self.get(&key_of(*key)),
            Op::Lock { key, seconds } => self.lock(&key_of(*key), u32::from(*seconds)),
            Op::Unlock { key, cas } => self.unlock(&key_of(*key), *cas),
            Op::FlushBegin { items } => self.flush_begin(usize::from(*items)),
            Op::FlushEnd { ok, written } => self.flush_end(*ok, *written),
            Op::Restart { unclean } => self.restart(*unclean),
            other => self.other(other),
        }
    }

    fn store(&mut self, op: &Op) {
        let Op::Store {
            key,
            mode,
            value,
            expiry,
            cas,
            preserve,
        } = op
        else {
            return;
        };
        let (key, now) = (key_of(*key), self.now);
        let cas = self.cas(&key, *cas);
        let meta = Meta {
            expiry: self.expiry(*expiry),
            flags: 7,
            ..Meta::default()
        };
        let live = self.expected.live(&key, now).cloned();
        let refusal = match (&live, mode) {
            (Some(_), StoreMode::Add) => Some(OpError::KeyExists),
            (Some(_), _) => self.expected.refusal(&key, cas, now),
            (None, StoreMode::Replace) => Some(OpError::KeyNotFound),
            (None, _) => (cas != Cas::ANY).then_some(OpError::KeyNotFound),
        };
        let draft = Some(Draft::new(&key, value, &meta));
        let mut write = Write {
            mode: *mode,
            draft,
            cas,
            preserve_expiry: *preserve,
            durability: None,
        };
        let outcome = self.vbucket.store(&mut write, now);
        assert_eq!(outcome.as_ref().err(), refusal.as_ref());
        assert_eq!(write.draft.is_some(), refusal.is_some());
        if let Ok(Outcome::Done(mutated)) = outcome {
            let kept = live
                .filter(|_| *preserve)
                .map_or(meta.expiry, |known| known.meta.expiry);
            let meta = Meta {
                expiry: kept,
                ..meta
            };
            let known = self.expected.change(&key, value.clone(), meta, now);
            assert_eq!(
                (mutated.cas, mutated.seqno),
                (known.meta.cas, known.meta.seqno)
            );
        }
    }

    fn concat(&mut self, key: &[u8], bytes: &[u8], place: ConcatPlace, cas: CasChoice) {
        let (now, cas) = (self.now, self.cas(key, cas));
        let concat = Concat {
            key,
            bytes,
            place,
            cas,
            durability: None,
        };
        let outcome = self.vbucket.concat(concat, &TestCodec, now);
        let Some(known) = self.expected.live(key, now).cloned() else {
            return assert_eq!(outcome.err(), Some(OpError::NotStored));
        };
        if let Some(refusal) = self.expected.refusal(key, cas, now) {
            return assert_eq!(outcome.err(), Some(refusal));
        }
        match outcome.unwrap() {
            Outcome::NeedsFetch(fetch) => assert_eq!(Some(fetch), self.expected.fetch(key)),
            Outcome::Prepared(_) => panic!("nothing durable was asked for"),
            Outcome::Done(mutated) => {
                assert_eq!(self.expected.fetch(key), None);
                let value = match place {
                    ConcatPlace::Append => [&known.value, bytes].concat(),
                    ConcatPlace::Prepend => [bytes, &known.value].concat(),
                };
                let meta = Meta {
                    datatype: TestCodec.classify(&value),
                    ..known.meta
                };
                let known = self.expected.change(key, value, meta, now);
                assert_eq!(
                    (mutated.cas, mutated.seqno),
                    (known.meta.cas, known.meta.seqno)
                );
            }
        }
    }

    fn count(&mut self, key: &[u8], arithmetic: Arithmetic) {
        let now = self.now;
        let outcome = self.vbucket.arithmetic(key, arithmetic, &TestCodec, now);
        let live = self.expected.live(key, now).cloned();
        let (number, meta) = if let Some(known) = live {
            if let Some(refusal) = self.expected.refusal(key, Cas::ANY, now) {
                return assert_eq!(outcome.err(), Some(refusal));
            }
            if let Some(fetch) = self.expected.fetch(key) {
                return assert_eq!(outcome, Ok(Outcome::NeedsFetch(fetch)));
            }
            let Some(number) = str::from_utf8(&known.value).unwrap().parse::<u64>().ok() else {
                return assert_eq!(outcome.err(), Some(OpError::DeltaBadValue));
            };
            let number = if arithmetic.decrement {
                number.saturating_sub(arithmetic.delta)
            } else {
                number.wrapping_add(arithmetic.delta)
            };
            (number, known.meta)
        } else {
            let Some(initial) = arithmetic.initial else {
                return assert_eq!(outcome.err(), Some(OpError::KeyNotFound));
            };
            (initial, Meta::default())
        };
        let meta = Meta {
            datatype: Datatype::JSON,
            ..meta
        };
        let known = self
            .expected
            .change(key, number.to_string().into_bytes(), meta, now);
        let Ok(Outcome::Done(counted)) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(
            (counted.number, counted.mutated.seqno),
            (number, known.meta.seqno)
        );
    }

    fn delete(&mut self, key: &[u8], cas: CasChoice) {
        let (now, cas) = (self.now, self.cas(key, cas));
        let outcome = self.vbucket.delete(key, cas, None, now);
        if self.expected.live(key, now).is_none() {
            return assert_eq!(outcome.err(), Some(OpError::KeyNotFound));
        }
        if let Some(refusal) = self.expected.refusal(key, cas, now) {
            return assert_eq!(outcome.err(), Some(refusal));
        }
        let Ok(Outcome::Done(mutated)) = outcome else {
            panic!("{outcome:?}")
        };
        let known = self.expected.remove(key, Kind::Deletion, now);
        assert_eq!(
            (mutated.cas, mutated.seqno),
            (known.meta.cas, known.meta.seqno)
        );
    }

    fn get(&mut self, key: &[u8]) {
        let now = self.now;
        let outcome = self.vbucket.get(key, now);
        self.expected.notice_expiry(key, now);
        let Some(known) = self.expected.live(key, now) else {
            return assert_eq!(outcome.err(), Some(OpError::KeyNotFound));
        };
        match outcome.unwrap() {
            Outcome::NeedsFetch(fetch) => assert_eq!(Some(fetch), self.expected.fetch(key)),
            Outcome::Prepared(_) => panic!("nothing durable was asked for"),
            Outcome::Done(got) => {
                assert_eq!(self.expected.fetch(key), None);
                assert!(known.matches(&got.document), "{known:?} {got:?}");
                let locked = self.expected.lock(key, now).is_some();
                assert_eq!(got.cas, if locked { Cas::LOCKED } else { known.meta.cas });
            }
        }
    }

    fn touch(&mut self, key: &[u8], expiry: u32) {
        let now = self.now;
        let outcome = self.vbucket.touch(key, expiry, now);
        self.expected.notice_expiry(key, now);
        let Some(known) = self.expected.live(key, now).cloned() else {
            return assert_eq!(outcome.err(), Some(OpError::KeyNotFound));
        };
        if let Some(refusal) = self.expected.refusal(key, Cas::ANY, now) {
            return assert_eq!(outcome.err(), Some(refusal));
        }
        match outcome.unwrap() {
            Outcome::NeedsFetch(fetch) => assert_eq!(Some(fetch), self.expected.fetch(key)),
            Outcome::Prepared(_) => panic!("nothing durable was asked for"),
            Outcome::Done(got) => {
                let known = if known.meta.expiry == expiry {
                    known
                } else {
                    let meta = Meta {
                        expiry,
                        ..known.meta
                    };
                    self.expected.change(key, known.value, meta, now)
                };
                assert!(known.matches(&got.document), "{known:?} {got:?}");
            }
        }
    }

    fn lock(&mut self, key: &[u8], seconds: u32) {
        let now = self.now;
        let outcome = self.vbucket.get_locked(key, seconds, now);
        self.expected.notice_expiry(key, now);
        if self.expected.live(key, now).is_none() {
            return assert_eq!(outcome.err(), Some(OpError::KeyNotFound));
        }
        if self.expected.lock(key, now).is_some() {
            return assert_eq!(outcome.err(), Some(OpError::Locked));
        }
        match outcome.unwrap() {
            Outcome::NeedsFetch(fetch) => assert_eq!(Some(fetch), self.expected.fetch(key)),
            Outcome::Prepared(_) => panic!("nothing durable was asked for"),
            Outcome::Done(got) => {
                let cas = self.expected.next_cas(now);
                assert_eq!(got.cas, cas);
                let seconds = if (1..=30).contains(&seconds) {
                    seconds
                } else {
                    15
                };
                let until = now.mono_ns + u64::from(seconds) * SECOND;
                self.expected.locks.insert(key.into(), (cas, until));
            }
        }
    }

    fn unlock(&mut self, key: &[u8], cas: CasChoice) {
        let (now, cas) = (self.now, self.cas(key, cas));
        let outcome = self.vbucket.unlock(key, cas, now);
        let expected = match (self.expected.live(key, now), self.expected.lock(key, now)) {
            (None, _) => Err(OpError::KeyNotFound),
            (_, None) => Err(OpError::NotLocked),
            (_, Some(lock)) if lock == cas => Ok(Outcome::Done(())),
            _ => Err(OpError::Locked),
        };
        assert_eq!(outcome, expected);
        if outcome.is_ok() {
            self.expected.locks.remove(key);
        }
    }

    fn flush_begin(&mut self, items: usize) {
        // 0 stands for everything.
        let items = if items == 0 { usize::MAX } else { items };
        let batch = self.vbucket.begin_flush(
            FlushBudget {
                items,
                bytes: usize::MAX,
            },
            &mut engine::SpareBuffers::default(),
        );
        assert!(
            batch.is_none() || self.batch.is_none(),
            "two flushes at once"
        );
        self.batch = batch.or(self.batch.take());
    }

    fn flush_end(&mut self, ok: bool, written: bool) {
        let Some(batch) = self.batch.take() else {
            return;
        };
        let high = batch.record.high_seqno;
        self.store.end_flush(&mut self.vbucket, batch, ok, written);
        if ok {
            self.expected.flushed = self.expected.flushed.max(high);
            self.check_store();
        }
    }

    fn restart(&mut self, unclean: bool) {
        self.uuids += 1;
        let history = unclean.then_some(VbUuid(self.uuids));
        let Some((vbucket, stale)) = self.store.warm_up(Arc::clone(&self.config), history) else {
            return;
        };
        assert_eq!(stale, 0);
        self.vbucket = vbucket;
        self.batch = None;
        self.memory = 0;
        let record = self.store.record.clone().unwrap();
        let mut expected = Expected {
            high: record.high_seqno,
            flushed: record.high_seqno,
            max_cas: record.max_cas,
            cas_start: record.failover_log.newest().uuid.0,
            max_deleted_rev: record.max_deleted_rev,
            ..Expected::default()
        };
        let kept = self.store.history.keys();
        let kept = kept.map(|seqno| (*seqno, self.expected.history[seqno].clone()));
        expected.history = kept.collect();
        for (seqno, row) in self.store.rows.iter().filter(|row| !is_event(row.1)) {
            let (key, known) = self.expected.history[seqno].clone();
            assert!(known.matches(row));
            assert!(!row.kind().is_tombstone() || row.rev() <= record.max_deleted_rev);
            expected.documents.insert(key.clone(), known.clone());
            expected.history.insert(*seqno, (key, known));
        }
        self.expected = expected;
    }

    fn other(&mut self, op: &Op) {
        let now = self.now;
        match op {
            Op::Clock { seconds, back } => {
                let step = u64::from(*seconds) * SECOND;
                self.now.mono_ns += step;
                self.now.unix_ns = if *back {
                    now.unix_ns - step / 2
                } else {
                    now.unix_ns + step
                };
            }
            Op::ExpireDue => {
                let before = self.expected.high;
                let progress = self.vbucket.expire_due(usize::MAX, now);
                // Documents expire in the order of the table: take the order from the result.
                let mut expired: Vec<(Seqno, Vec<u8>)> = Vec::new();
                for key in (0..KEYS).map(key_of) {
                    if let Ok(Outcome::Done(found)) = self.vbucket.get_meta(&key, now)
                        && found.meta.seqno > before
                    {
                        expired.push((found.meta.seqno, key));
                    }
                }
                expired.sort();
                assert_eq!(progress.changed, expired.len());
                for (_, key) in expired {
                    assert!(self.expected.live(&key, now).is_none());
                    self.expected.remove(&key, Kind::Expiration, now);
                }
            }
            Op::Evict { key } => self.evict(&key_of(*key)),
            Op::Restore { key } => {
                let key = key_of(*key);
                let Some(row) = self.store.row(&key).map(reread) else {
                    return;
                };
                let asked = FetchKey {
                    wanted: DocumentPart::Value(row.seqno()),
                    key: key.clone().into(),
                };
                let is_wanted = self.expected.fetch(&key).as_ref() == Some(&asked);
                let restored = self.vbucket.restore(&asked, Some(row));
                assert_eq!(restored == Restored::Done, is_wanted);
                if is_wanted {
                    self.expected.evicted.remove(&key);
                }
            }
            Op::Demote => {
                for state in [VbState::Replica, VbState::Active] {
                    self.uuids += 1;
                    self.vbucket.set_state(state, None, VbUuid(self.uuids));
                }
                let newest = self.vbucket.failover_log().newest();
                assert_eq!(newest.uuid, VbUuid(self.uuids));
            }
            _ => unreachable!("{op:?}"),
        }
    }

    fn evict(&mut self, key: &[u8]) {
        let known = self.expected.documents.get(key);
        let may = known.is_some_and(|known| {
            known.meta.seqno <= self.expected.flushed
                && known.meta.kind == Kind::Mutation
                && !known.value.is_empty()
        });
        let evicted = self.vbucket.evict(key, self.now);
        assert_eq!(evicted, may && self.expected.evicted.insert(key.into()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..Default::default() })]

    #[test]
    fn a_vbucket_behaves_like_a_map_with_history(
        checkpoint_bytes_max in prop::sample::select(&[1, 600, 1 << 20][..]),
        keeps_history in any::<bool>(),
        ops in prop::collection::vec(op(), 1..250),
    ) {
        let mut world = World::new(checkpoint_bytes_max, keeps_history).with_history();
        for op in &ops {
            world.run(op);
            world.check();
        }
        world.drain();
        world.restart(false);
        world.check();
    }
}
