//! Number of reads of a look at few rows of many.

use std::sync::Arc;

use model::{CollectionId, Document, DurabilityLevel, Kind, Meta, Seqno, VbId};

use super::disk::Disk;
use super::files::SimFiles;
use super::plan::OpKind;
use super::random::Random;
use super::threads::SimThreads;
use crate::lsm::{DiskOptions, DiskStore};
use crate::suite::{document, put, tombstone};
use crate::{KeyQuery, KeyRange, KeyRow, KvStore as _, Snapshot};

const VB: VbId = VbId(3);
const ROWS: u64 = 3_000;

struct CountedStore {
    store: DiskStore,
    files: SimFiles,
    threads: SimThreads,
}

impl CountedStore {
    /// Creates a store with logs of so many bytes, and [`ROWS`] rows in each of two vBuckets.
    fn filled(log_bytes: u64) -> Self {
        let files = SimFiles::over(Disk::default(), Random(1));
        let threads = SimThreads::default();
        let options = DiskOptions {
            log_bytes,
            free_bytes_min: 0,
            ..DiskOptions::default()
        };
        let opened = DiskStore::open_files(Arc::new(files.clone()), &threads, options);
        let (store, _) = opened.expect("it opens");
        for vb in [VbId(1), VB] {
            for first in (1..=ROWS).step_by(500) {
                let rows: Vec<_> = (first..first + 500)
                    .map(|seqno| {
                        (
                            document(seqno, &key(seqno * 7 % ROWS), "value"),
                            Seqno::ZERO,
                        )
                    })
                    .collect();
                threads.call(|| put(&store, vb, &rows));
                threads.run(1_000);
            }
        }
        Self {
            store,
            files,
            threads,
        }
    }

    /// Calls `f`. Returns its result and the number of reads.
    fn reads<T>(&self, f: impl FnOnce() -> T) -> (T, u64) {
        let before = self.files.plan().count(Some(OpKind::Read));
        let given = f();
        (given, self.files.plan().count(Some(OpKind::Read)) - before)
    }
}

fn key(number: u64) -> String {
    format!("k{number:06}")
}

fn found(snapshot: &dyn Snapshot, from: u64, to: u64) -> Vec<String> {
    let stored = |number| [b"\0", key(number).as_bytes()].concat();
    let look = KeyQuery {
        range: &KeyRange {
            from: stored(from).into(),
            to: Some(stored(to).into()),
        },
        keys_only: true,
        bytes_max: 1 << 20,
        wants: &|_, _| true,
    };
    let rows = look.look(snapshot).expect("it can be read").rows;
    let name = |row: &KeyRow| match row {
        KeyRow::Key(key) => String::from_utf8_lossy(&key[1..]).into_owned(),
        KeyRow::Whole(_) => unreachable!("keys are asked for"),
    };
    rows.iter().map(name).collect()
}

/// In the log and in runs, and with changes after the order of the log was made.
#[test]
fn look_at_few_keys_does_not_read_the_others() {
    for log_bytes in [1 << 30, 64 << 10] {
        let counted = CountedStore::filled(log_bytes);
        let store = &counted.store;
        drop(store.snapshot_by_key(VB).expect("it opens"));
        let (keys, reads) = counted.reads(|| {
            let snapshot = store.snapshot_by_key(VB).expect("it opens");
            found(&*snapshot, 100, 110)
        });
        assert_eq!(keys, (100..110).map(key).collect::<Vec<_>>());
        assert!(reads < 50, "{reads} reads with logs of {log_bytes} bytes");

        let before = store.snapshot_by_key(VB).expect("it opens");
        let changes = [
            (tombstone(ROWS + 1, &key(103)), Seqno::ZERO),
            (document(ROWS + 2, &key(104), "new"), Seqno::ZERO),
            (document(ROWS + 3, "k000105a", "new"), Seqno::ZERO),
        ];
        counted.threads.call(|| put(store, VB, &changes));
        let after = store.snapshot_by_key(VB).expect("it opens");
        assert_eq!(found(&*before, 100, 110), keys);
        let mut expected = keys;
        expected.remove(3);
        expected.insert(5, "k000105a".to_owned());
        assert_eq!(found(&*after, 100, 110), expected);
    }
}

/// Returns a row of collection 8.
fn of_another(seqno: u64, kind: Kind) -> (Document, Seqno) {
    let key = [b"\x08", key(seqno).as_bytes()].concat();
    let meta = Meta {
        kind,
        level: kind.is_prepare().then_some(DurabilityLevel::Majority),
        ..document(seqno, "", "").meta()
    };
    (Document::from_parts(&key, b"", &meta), Seqno::ZERO)
}

/// Documents, a tombstone and an undecided durable write, in the log and in runs.
#[test]
fn erasure_of_a_small_collection_does_not_read_the_others() {
    for log_bytes in [1 << 30, 64 << 10] {
        let counted = CountedStore::filled(log_bytes);
        let (store, high) = (&counted.store, ROWS + 13);
        let mut rows: Vec<_> = (ROWS + 1..high - 2)
            .map(|seqno| of_another(seqno, Kind::Mutation))
            .collect();
        rows.push(of_another(high - 2, Kind::Deletion));
        rows.push(of_another(high - 1, Kind::Prepare));
        rows.push((document(high, "last", "value"), Seqno::ZERO));
        counted.threads.call(|| put(store, VB, &rows));
        counted.threads.run(1_000);
        drop(store.snapshot_by_key(VB).expect("it opens"));

        let all = KeyRange::of_collection(CollectionId::DEFAULT);
        let others = KeyRange {
            from: all.to.expect("an end"),
            to: None,
        };
        let mut seen = 0;
        let (erased, reads) = counted.reads(|| {
            let is_dead = &mut |_: &Meta, key: &[u8]| {
                seen += 1;
                key.starts_with(b"\x08")
            };
            store.erase(VB, &[others], is_dead)
        });
        assert_eq!(erased.expect("it can be read"), 12);
        assert_eq!(seen, 12, "rows that were looked at");
        assert!(reads < 60, "{reads} reads with logs of {log_bytes} bytes");

        let snapshot = store.snapshot(VB).expect("it opens");
        let left = snapshot.by_seqno(Seqno::ZERO);
        let left: Vec<_> = left.map(|row| row.expect("it can be read")).collect();
        assert_eq!(left.len() as u64, ROWS + 1);
        assert!(left.iter().all(|row| row.key()[0] == 0));
        assert_eq!(snapshot.purge_seqno(), Seqno::ZERO);
    }
}
