//! Steps of a store's lives.

use std::collections::BTreeMap;

use model::{
    Cas, Datatype, Document, DurabilityLevel, FailoverEntry, Kind, Meta, Seqno, SnapshotRange,
    VbCounts, VbId, VbRecord, VbState as Life, VbUuid,
};

use super::random::Random;
use super::world::{Batch, OwnedChange, StoreCall, TrimBy, VbState, Verdicts, World};

/// The vBuckets of a workload.
pub(crate) const VBS: [VbId; 4] = [VbId(0), VbId(1), VbId(511), VbId(1023)];
/// Number of keys of each vBucket, in most lives and in some.
const KEYS: u64 = 24;
const KEYS_MANY: u64 = 300;
/// One value in so many is so long that it is not copied into the log's buffer.
const LARGE_IN: u64 = 2_000;
/// A key without a row.
pub(crate) const ABSENT: &[u8] = b"\0absent";

/// Generator of the steps of a life.
#[derive(Clone, Debug)]
pub(crate) struct Workload {
    random: Random,
    keys: u64,
    /// Percentage of rollbacks among the steps.
    rollbacks: u64,
    now_s: u32,
}

impl Workload {
    pub(crate) fn new(mut random: Random) -> Self {
        let keys = if random.one_in(10) { KEYS_MANY } else { KEYS };
        let rollbacks = if random.one_in(6) { 25 } else { 4 };
        Self {
            random,
            keys,
            rollbacks,
            now_s: 1_000,
        }
    }

    /// Returns a step of any kind.
    pub(crate) fn step(&mut self, world: &World) -> StoreCall {
        self.now_s += 1;
        let vb = *self.random.pick(&VBS);
        let high = world.vbs.get(&vb).map(|state| state.record.high_seqno);
        if let Some(high) = high.filter(|_| self.random.next(100) < self.rollbacks) {
            // Mostly a small distance: to the end of a commit of which no row was replaced since.
            let back = if self.one_in(3) {
                high.0 + 1
            } else {
                12.min(high.0 + 1)
            };
            return StoreCall::Rollback(vb, Seqno(high.0 + 1 - self.random.next(back + 1)));
        }
        match (self.random.next(100), high) {
            (4..8, _) => {
                let count = 1 + self.random.next(2);
                let vbs = (0..count).map(|_| *self.random.pick(&VBS));
                StoreCall::Remove(vbs.collect())
            }
            (8..16, Some(high)) => StoreCall::Compact(
                vb,
                Verdicts {
                    gone_to: Seqno(self.random.next(high.0 + 1)),
                    erased: self.one_in(4).then(|| self.random.next(7) as u8),
                },
            ),
            (16..21, Some(_)) => StoreCall::Trim(
                vb,
                TrimBy {
                    before_s: self.now_s - self.random.next(20) as u32,
                    dead: self.one_in(4).then(|| self.random.next(7) as u8),
                },
            ),
            (21..25, _) => {
                let most = if self.one_in(20) { 100_000 } else { 300 };
                let length = self.random.next(most);
                StoreCall::Manifest((0..length).map(|_| self.random.next(256) as u8).collect())
            }
            _ => self.commit(world),
        }
    }

    /// Returns a commit.
    pub(crate) fn commit(&mut self, world: &World) -> StoreCall {
        self.now_s += 1;
        let mut batches = Vec::new();
        let all = self.random.next(15) + 1;
        for (number, vb) in VBS.into_iter().enumerate() {
            if all >> number & 1 == 1 {
                batches.push(self.batch(vb, world.vbs.get(&vb).map(|state| &**state)));
            }
        }
        StoreCall::Commit(batches)
    }

    fn one_in(&mut self, in_how_many: u64) -> bool {
        self.random.one_in(in_how_many)
    }

    fn batch(&mut self, vb: VbId, state: Option<&VbState>) -> Batch {
        let mut changes = Vec::new();
        let mut high = state.map_or(Seqno::ZERO, |state| state.record.high_seqno);
        let stored = state.map(by_key).unwrap_or_default();
        let keeps = vb == VBS[0] || vb == VBS[2];
        let count = match self.random.next(20) {
            0 => 0,
            1 => self.keys,
            _ => 1 + self.random.next(7),
        };
        let first = self.random.next(self.keys);
        for offset in 0..count {
            let key = format!("\0key{}", (first + offset * 7) % self.keys).into_bytes();
            let rows = stored.get(&key[..]).copied().unwrap_or_default();
            high = Seqno(high.0 + 1 + u64::from(self.one_in(5)));
            changes.extend(self.change(&key, rows, &mut high, keeps));
        }
        let record = self.record(high, state);
        Batch {
            vb,
            record,
            changes,
        }
    }

    /// Adds the changes of one key.
    fn change(
        &mut self,
        key: &[u8],
        rows: ExpectedRows<'_>,
        high: &mut Seqno,
        keeps: bool,
    ) -> Vec<OwnedChange> {
        let mut changes = Vec::new();
        let committed = rows.committed.map_or(Seqno::ZERO, Document::seqno);
        if let Some(prepare) = rows.prepared.filter(|row| row.kind().is_prepare()) {
            if self.one_in(3) {
                let aborted = prepare.aborted(*high);
                return vec![OwnedChange::Put(aborted, prepare.seqno())];
            }
            let decided = prepare.committed(*high);
            if keeps {
                changes.push(OwnedChange::Keep(decided.clone(), self.now_s));
            }
            changes.push(OwnedChange::Put(decided, committed));
            changes.push(OwnedChange::Remove(prepare.clone()));
        } else if self.one_in(8) {
            let deletes = self.one_in(4);
            let kind = if deletes {
                Kind::PrepareDeletion
            } else {
                Kind::Prepare
            };
            let abort = rows.prepared.map_or(Seqno::ZERO, Document::seqno);
            let prepare = self.document(key, *high, kind);
            changes.push(OwnedChange::Put(prepare, abort));
        } else {
            let mut supersedes = committed;
            if keeps && self.one_in(6) {
                // Two versions in one batch, both kept.
                let document = self.document(key, *high, Kind::Mutation);
                changes.push(OwnedChange::Keep(document, self.now_s));
                changes.extend(rows.committed.cloned().map(OwnedChange::Remove));
                supersedes = Seqno::ZERO;
                *high = high.next();
            }
            let kind = match self.random.next(20) {
                0..3 => Kind::Deletion,
                3 => Kind::Expiration,
                _ => Kind::Mutation,
            };
            let document = self.document(key, *high, kind);
            if keeps {
                changes.push(OwnedChange::Keep(document.clone(), self.now_s));
            }
            changes.push(OwnedChange::Put(document, supersedes));
        }
        changes
    }

    fn document(&mut self, key: &[u8], seqno: Seqno, kind: Kind) -> Document {
        let prepare = kind.is_prepare();
        let meta = Meta {
            cas: Cas(seqno.0 << 16 | self.random.next(1 << 16)),
            seqno,
            rev: 1 + self.random.next(1 << 20),
            flags: self.random.next(1 << 32) as u32,
            expiry: self.random.next(3) as u32 * 70_000,
            datatype: Datatype::RAW,
            kind,
            level: prepare.then_some(DurabilityLevel::PersistToMajority),
            ..Meta::default()
        };
        let gone = kind.is_tombstone() || kind == Kind::PrepareDeletion;
        let length = match self.random.next(60) {
            _ if gone => 0,
            _ if self.one_in(LARGE_IN) => 256 << 10 | self.random.next(1 << 16),
            0 => 6_000 + self.random.next(20_000),
            1..5 => 900 + self.random.next(3_000),
            5..15 => self.random.next(700),
            _ => self.random.next(60),
        };
        let (first, step) = (self.random.next(256), self.random.next(256) | 1);
        let value: Vec<u8> = (0..length)
            .map(|at| (first + at * step + at / 251) as u8)
            .collect();
        Document::from_parts(key, &value, &meta)
    }

    fn record(&mut self, high: Seqno, state: Option<&VbState>) -> VbRecord {
        let entry = FailoverEntry {
            uuid: VbUuid(self.random.next(1 << 48)),
            seqno: high,
        };
        let mut record = match state {
            Some(state) => state.record.clone(),
            None => VbRecord::new(Life::Active, entry),
        };
        record.high_seqno = high;
        let whole = !self.one_in(5);
        record.snapshot = SnapshotRange {
            start: high,
            end: if whole { high } else { Seqno(high.0 + 3) },
        };
        record.max_cas = Cas(high.0 << 20);
        record.max_deleted_rev += self.random.next(3);
        record.counts = self.one_in(2).then(|| {
            Box::new(VbCounts {
                items: self.random.next(9),
                default_high: high,
                ..VbCounts::default()
            })
        });
        if self.one_in(6) {
            record.failover_log.begin(entry);
        }
        if self.one_in(6) {
            record.state =
                *self
                    .random
                    .pick(&[Life::Active, Life::Replica, Life::Pending, Life::Dead]);
            record.term += 1;
            record.topology = format!("[[\"n{}\"]]", self.random.next(100));
        }
        record.high_prepared = Seqno(high.0 / 2);
        record
    }
}

/// Rows of a key.
#[derive(Clone, Copy, Default)]
struct ExpectedRows<'s> {
    committed: Option<&'s Document>,
    /// A prepare or an abort.
    prepared: Option<&'s Document>,
}

fn by_key(state: &VbState) -> BTreeMap<&[u8], ExpectedRows<'_>> {
    let mut found: BTreeMap<&[u8], ExpectedRows<'_>> = BTreeMap::new();
    for row in state.rows.values() {
        let rows = found.entry(row.key()).or_default();
        if row.kind().is_prepared() {
            rows.prepared = Some(row);
        } else {
            rows.committed = Some(row);
        }
    }
    found
}

/// Returns a commit for a retry after a failure: unchanged, or with a newer version of a document in each batch.
pub(crate) fn again(step: &StoreCall, random: &mut Random) -> StoreCall {
    let StoreCall::Commit(batches) = step else {
        return step.clone();
    };
    let mut batches = batches.clone();
    for batch in batches.iter_mut().filter(|_| random.one_in(2)) {
        let is_plain = |change: &OwnedChange| matches!(change, OwnedChange::Put(row, _) if !row.kind().is_durable());
        let Some(at) = batch.changes.iter().position(is_plain) else {
            continue;
        };
        let OwnedChange::Put(row, older) = batch.changes[at].clone() else {
            continue;
        };
        let seqno = batch.record.high_seqno.next();
        let newer = row.with_meta(&Meta {
            seqno,
            ..row.meta()
        });
        let meta = Meta {
            seqno: older,
            ..row.meta()
        };
        batch.changes[at] = OwnedChange::Remove(row.with_meta(&meta));
        batch.changes.push(OwnedChange::Put(newer, row.seqno()));
        batch.record.high_seqno = seqno;
        batch.record.snapshot = SnapshotRange {
            start: seqno,
            end: seqno,
        };
    }
    StoreCall::Commit(batches)
}
