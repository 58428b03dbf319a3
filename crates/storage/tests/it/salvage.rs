//! Salvage: what can be read of a damaged store comes into a new one, and nothing else.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use model::{Document, Seqno, VbId};
use storage::{DiskOptions, DiskStore, KvStore, SalvageError, Salvaged, VbBatch, salvage};

use crate::damage::{copy, files, has_large_table};
use crate::directory::picture;
use crate::workload::{Random, VBS, World, document, open, options, read, record};

type History = BTreeMap<(VbId, u64), (String, Vec<u8>)>;

/// A store with tables and journals that stopped uncleanly, and every row that it ever had.
fn prepare(path: &Path) -> (World, History) {
    prepare_with(path, options())
}

fn prepare_with(path: &Path, options: DiskOptions) -> (World, History) {
    let store = DiskStore::open(path, options).unwrap().0;
    let mut world = World::default();
    let mut history = History::new();
    while !has_large_table(path) || world.commits % 7 != 0 {
        world.commit(&store).unwrap();
        for (vb, contents) in &world.vbs {
            let rows = contents.rows.iter();
            history.extend(rows.map(|(seqno, row)| ((*vb, *seqno), row.clone())));
        }
        assert!(world.commits < 3_000, "no table was ever written");
    }
    (world, history)
}

fn salvaged(from: &Path, to: &Path) -> (Salvaged, DiskStore) {
    let report = salvage(from, to).unwrap();
    let (store, opened) = DiskStore::open(to, options()).unwrap();
    assert!(!opened.clean, "histories begin anew");
    (report, store)
}

/// Nothing but what was written; tells how many rows of the last state are missing.
fn check(store: &DiskStore, world: &World, history: &History) -> usize {
    let mut missing = 0;
    for vb in VBS {
        let found = read(store, vb).unwrap();
        for (seqno, row) in &found.rows {
            assert_eq!(history.get(&(vb, *seqno)), Some(row), "{vb} {seqno}");
        }
        let wanted = world.vbs[&vb].rows.keys();
        missing += wanted
            .filter(|seqno| !found.rows.contains_key(seqno))
            .count();
    }
    missing
}

fn largest_table(path: &Path) -> PathBuf {
    let mut tables = Vec::new();
    files(&path.join("db/keyspaces/1/tables"), &mut tables);
    let by_size = |path: &PathBuf| path.metadata().unwrap().len();
    tables.into_iter().max_by_key(by_size).unwrap()
}

#[test]
fn a_whole_store_comes_over_whole_and_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let (world, _) = prepare(&old);
    let before = picture(&old);
    let (report, store) = salvaged(&old, &new);
    assert!(report.is_whole(), "{report:?}");
    assert!(picture(&old) == before);
    assert_eq!(report.vbuckets, VBS.len() as u64);
    for vb in VBS {
        assert!(read(&store, vb).unwrap() == world.vbs[&vb], "{vb}");
    }
    drop(store);
    assert!(matches!(
        salvage(&old, &new),
        Err(SalvageError::Occupied(_))
    ));
    let _running = open(&old);
    let other = dir.path().join("other");
    assert!(matches!(salvage(&old, &other), Err(SalvageError::InUse(_))));
}

#[test]
fn what_is_damaged_is_left_out_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let origin = dir.path().join("origin");
    // Which rows tables only refer to depends on when they were merged: here they have all but the longest.
    let own = DiskOptions {
        refer_bytes_min: options().blob_bytes_min,
        ..options()
    };
    let (world, history) = prepare_with(&origin, own);
    let table = largest_table(&origin);
    let bytes = fs::read(&table).unwrap();
    let mut random = Random(11);
    let (mut lost, mut refused) = (0, 0);
    for round in 0..16 {
        let (old, new) = (dir.path().join("old"), dir.path().join("new"));
        copy(&origin, &old);
        // Anywhere, and in every second round in what opening needs: the end of the file.
        let end = bytes.len() as u64;
        let at = match round % 2 {
            0 => random.next(end),
            _ => end - 1 - random.next(1_000),
        };
        let mut damaged = bytes.clone();
        damaged[at as usize] ^= 1 << random.next(8);
        fs::write(old.join(table.strip_prefix(&origin).unwrap()), damaged).unwrap();
        let (report, store) = salvaged(&old, &new);
        let missing = check(&store, &world, &history);
        assert!(missing == 0 || !report.is_whole(), "byte {at}: {report:?}");
        assert!(missing < 400, "one block is missing, not {missing} rows");
        lost += usize::from(missing > 0);
        drop(store);
        refused += usize::from(DiskStore::open(&old, options()).is_err());
        fs::remove_dir_all(old).unwrap();
        fs::remove_dir_all(new).unwrap();
    }
    assert!(lost > 2 && refused > 2, "harm was done: {lost}, {refused}");
}

#[test]
fn without_the_lists_of_tables_all_rows_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let (world, history) = prepare(&old);
    for entry in fs::read_dir(old.join("db/keyspaces/1")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            fs::remove_file(path).unwrap();
        }
    }
    let (_, store) = salvaged(&old, &new);
    assert_eq!(check(&store, &world, &history), 0);
}

#[test]
fn the_manifest_comes_over_or_is_told_to_be_lost() {
    const TEXT: &[u8] = b"{\"uid\":\"1\"}";
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    let store = open(&old);
    put(&store, VbId(1), 1, &[(document(1, "a", b"1"), Seqno::ZERO)]);
    store.set_manifest(TEXT).unwrap();
    drop(store);
    let (report, store) = salvaged(&old, &dir.path().join("whole"));
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(store.manifest().unwrap().as_deref(), Some(TEXT));
    let lost = |name: &str| {
        let (report, store) = salvaged(&old, &dir.path().join(name));
        assert!(report.manifest_lost && !report.is_whole(), "{report:?}");
        assert_eq!(store.manifest().unwrap(), None);
        assert_eq!(read(&store, VbId(1)).unwrap().rows.len(), 1);
    };
    fs::write(old.join("manifest"), "damaged").unwrap();
    lost("damaged");
    fs::remove_file(old.join("manifest")).unwrap();
    lost("missing");
}

#[test]
fn a_row_that_lies_apart_comes_over_and_a_damaged_one_is_told() {
    const BLOB_BYTES: u64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old");
    let (store, vb, mut high) = (open(&old), VbId(1), 0);
    let value = [7; BLOB_BYTES as usize];
    let two = [
        (document(1, "a", &value), Seqno::ZERO),
        (document(2, "b", &value), Seqno::ZERO),
    ];
    put(&store, vb, 2, &two);
    push_into_tables(&store, &mut high);
    drop(store);
    let (report, store) = salvaged(&old, &dir.path().join("whole"));
    assert!(report.is_whole(), "{report:?}");
    assert_eq!(read(&store, vb).unwrap().rows[&2].1, value);
    let mut apart = Vec::new();
    files(&old.join("db/keyspaces/1/blobs"), &mut apart);
    let file = apart.iter().find(|path| {
        let bytes = fs::read(path).unwrap();
        bytes.windows(value.len()).any(|window| window == value)
    });
    let file = file.expect("it lies in a file of its own");
    let mut bytes = fs::read(file).unwrap();
    bytes[100] ^= 1;
    fs::write(file, bytes).unwrap();
    let (report, store) = salvaged(&old, &dir.path().join("damaged"));
    assert_eq!(report.rows_damaged, 1, "{report:?}");
    assert_eq!(read(&store, vb).unwrap().rows.len(), 1);
}

/// Writes so much of another vBucket that what was written before is in tables.
fn push_into_tables(store: &DiskStore, high: &mut u64) {
    for _ in 0..3 {
        let rows: Vec<_> = (*high + 1..=*high + 200)
            .map(|seqno| {
                (
                    document(seqno, &format!("k{seqno}"), &[1; 1000]),
                    Seqno::ZERO,
                )
            })
            .collect();
        *high += 200;
        put(store, VbId(9), *high, &rows);
    }
}

fn put(store: &DiskStore, vb: VbId, high: u64, rows: &[(Document, Seqno)]) {
    let (record, changes) = (&record(high), &rows);
    store
        .commit(&[VbBatch {
            vb,
            record,
            changes,
        }])
        .unwrap();
}

#[test]
fn a_row_that_a_rollback_took_away_and_that_was_written_anew_comes_over() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (dir.path().join("old"), dir.path().join("new"));
    let (store, vb, mut high) = (open(&old), VbId(1), 0);
    put(&store, vb, 1, &[(document(1, "a", b"1"), Seqno::ZERO)]);
    let two = [
        (document(2, "b", b"2"), Seqno::ZERO),
        (document(3, "c", b"3"), Seqno::ZERO),
    ];
    put(&store, vb, 3, &two);
    push_into_tables(&store, &mut high);
    assert_eq!(store.rollback(vb, Seqno(1)).unwrap().high_seqno, Seqno(1));
    push_into_tables(&store, &mut high);
    put(&store, vb, 2, &[(document(2, "d", b"4"), Seqno::ZERO)]);
    push_into_tables(&store, &mut high);
    drop(store);
    let (report, store) = salvaged(&old, &new);
    assert!(report.is_whole(), "{report:?}");
    let found = read(&store, vb).unwrap();
    let rows: Vec<_> = found
        .rows
        .iter()
        .map(|(seqno, (key, _))| (*seqno, key.as_str()))
        .collect();
    assert_eq!(
        rows,
        [(1, "a"), (2, "d")],
        "and what was not written anew stays away"
    );
    assert_eq!(read(&store, VbId(9)).unwrap().rows.len() as u64, high);
}
