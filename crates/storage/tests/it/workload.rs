//! A reproducible workload, and the expected content of the store after each commit.

use std::collections::BTreeMap;
use std::path::Path;

use model::{
    Cas, Datatype, Document, FailoverEntry, Kind, Meta, Seqno, SnapshotRange, VbCounts, VbId,
    VbRecord, VbState, VbUuid,
};
use storage::{DiskOptions, DiskStore, KvStore, StoreError, VbBatch};

/// The vBuckets of the workload.
pub(crate) const VBS: [VbId; 3] = [VbId(0), VbId(511), VbId(1023)];

const KEYS: u64 = 400;

/// A small pseudo-random generator.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % below
    }
}

pub(crate) fn record(high: u64) -> VbRecord {
    let first = FailoverEntry {
        uuid: VbUuid(1),
        seqno: Seqno::ZERO,
    };
    VbRecord {
        high_seqno: Seqno(high),
        snapshot: SnapshotRange {
            start: Seqno(high),
            end: Seqno(high),
        },
        max_cas: Cas(high),
        counts: Some(Box::new(VbCounts {
            items: high,
            default_high: Seqno(high),
            ..VbCounts::default()
        })),
        ..VbRecord::new(VbState::Active, first)
    }
}

pub(crate) fn document(seqno: u64, key: &str, value: &[u8]) -> Document {
    let meta = Meta {
        cas: Cas(seqno),
        seqno: Seqno(seqno),
        rev: 1,
        flags: 0,
        expiry: 0,
        datatype: Datatype::RAW,
        kind: Kind::Mutation,
        ..Meta::default()
    };
    Document::from_parts(key.as_bytes(), value, &meta)
}

/// Content of one vBucket: key to seqno, and seqno to key and value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Contents {
    pub(crate) high: u64,
    pub(crate) keys: BTreeMap<String, u64>,
    pub(crate) rows: BTreeMap<u64, (String, Vec<u8>)>,
}

impl Contents {
    /// Returns the changes of commit `number` to vBucket `vb`, after applying them to `self`.
    pub(crate) fn step(&mut self, vb: VbId, number: u64) -> Vec<(Document, Seqno)> {
        let mut random = Random(number << 16 | u64::from(vb.0));
        let large = random.next(8) == 0;
        let count = 1 + random.next(if large { KEYS } else { 12 });
        let first = random.next(KEYS);
        let mut changes = Vec::new();
        for offset in 0..count {
            let key = format!("key{}", (first + offset) % KEYS);
            let length = random.next(300) as usize;
            let value = vec![random.next(256) as u8; length];
            self.high += 1;
            let supersedes = self.keys.insert(key.clone(), self.high).unwrap_or(0);
            self.rows.remove(&supersedes);
            changes.push((document(self.high, &key, &value), Seqno(supersedes)));
            self.rows.insert(self.high, (key, value));
        }
        changes
    }
}

/// All vBuckets of the workload after a number of commits.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) commits: u64,
    pub(crate) vbs: BTreeMap<VbId, Contents>,
}

impl World {
    /// Makes the next commit.
    pub(crate) fn commit(&mut self, store: &dyn KvStore) -> Result<(), StoreError> {
        self.commits += 1;
        let mut changes = Vec::new();
        for vb in VBS {
            let contents = self.vbs.entry(vb).or_default();
            let step = contents.step(vb, self.commits);
            changes.push((vb, record(contents.high), step));
        }
        let slices: Vec<_> = changes.iter().map(|(_, _, step)| step.as_slice()).collect();
        let batches: Vec<_> = changes
            .iter()
            .zip(&slices)
            .map(|((vb, record, _), slice)| VbBatch {
                vb: *vb,
                record,
                changes: slice,
            })
            .collect();
        store.commit(&batches).map(drop)
    }

    /// Runs the generator only.
    pub(crate) fn advance(&mut self) {
        self.commits += 1;
        for vb in VBS {
            self.vbs.entry(vb).or_default().step(vb, self.commits);
        }
    }
}

/// Reads the content of a vBucket from the store.
pub(crate) fn read(store: &dyn KvStore, vb: VbId) -> Result<Contents, StoreError> {
    let mut contents = Contents::default();
    let snapshot = store.snapshot(vb)?;
    for document in snapshot.by_seqno(Seqno::ZERO) {
        let document = document?;
        let key = String::from_utf8_lossy(document.key()).into_owned();
        let twice = contents.keys.insert(key.clone(), document.seqno().0);
        assert_eq!(twice, None, "{key} has two rows");
        contents
            .rows
            .insert(document.seqno().0, (key, document.value().to_vec()));
    }
    contents.high = snapshot.high_seqno().0;
    Ok(contents)
}

/// A small log, so that it often becomes a run; the longest values are stored apart.
pub(crate) fn options() -> DiskOptions {
    DiskOptions {
        log_bytes: 128 << 10,
        free_bytes_min: 0,
        apart_bytes_min: 200,
        runs_max: 3,
        ..DiskOptions::default()
    }
}

pub(crate) fn open(path: &Path) -> DiskStore {
    DiskStore::open(path, options()).expect("the store opens").0
}
