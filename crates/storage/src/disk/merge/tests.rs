use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use model::{Seqno, VbId};

use super::super::{DiskOptions, DiskStore};
use super::*;
use crate::KvStore;
use crate::suite::{self, document};

const VB: VbId = VbId(1);
/// Runs that lie side by side until they are merged.
const RUNS: u64 = 16;

fn open(path: &Path, dead_bytes_min: u64) -> DiskStore {
    let options = DiskOptions {
        quiet: Duration::from_millis(1),
        dead_bytes_min,
        free_bytes_min: 0,
        ..DiskOptions::default()
    };
    DiskStore::open(path, options).unwrap().0
}

/// Writes one key anew and a new one, and makes a run of both.
fn add_run(store: &DiskStore, number: u64) {
    let (again, new) = (2 * number - 1, 2 * number);
    let before = if number > 1 { again - 2 } else { 0 };
    let rows = [
        (document(again, "again", "1"), Seqno(before)),
        (document(new, &format!("key{number}"), "1"), Seqno(0)),
    ];
    suite::put(store, VB, &rows);
    let engine = store.reader("testing").unwrap();
    engine.rotation.flush_now(None).ok().unwrap();
}

/// The rows that are there after so many runs.
fn check(store: &DiskStore, runs: u64) {
    let found: BTreeSet<u64> = suite::scan(store, VB, 0)
        .0
        .iter()
        .map(|row| row.2.seqno.0)
        .collect();
    let news = (1..=runs).map(|number| 2 * number);
    assert_eq!(found, news.chain([2 * runs - 1]).collect());
}

fn files(path: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(path.join("db/keyspaces/1/tables")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(std::time::Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

/// Its inputs are there, nothing is left of its output, and commits become tables beside it.
#[test]
fn a_merge_that_fails_is_given_up_whole_and_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = open(&path, u64::MAX);
    let before = files(&path);
    for number in 1..4 {
        add_run(&store, number);
    }
    // The second of three: something has been written when it is missed.
    let missing = files(&path).difference(&before).nth(1).unwrap().clone();
    let engine = store.reader("testing").unwrap();
    let merging = Arc::clone(engine.rotation.merging());
    drop(engine);
    fs::rename(&missing, dir.path().join("away")).unwrap();
    for number in 4..=RUNS + 4 {
        add_run(&store, number);
    }
    until("a merge fails", || store.upkeep().merges_failed > 1);
    for number in RUNS + 5..=RUNS + 30 {
        add_run(&store, number);
    }
    fs::rename(dir.path().join("away"), &missing).unwrap();
    until("runs are merged", || {
        !merging.is_failing() && merging.tables.rows.l0_table_count() < RUNS as usize
    });
    check(&store, RUNS + 30);
    until("nothing is left over", || {
        files(&path).len() == merging.tables.rows.table_count()
    });
    assert!(store.upkeep().merges > 0);
    drop(merging);
    drop(store);
    check(&open(&path, u64::MAX), RUNS + 30);
}

/// A view that was opened before tables were merged reads them, whatever failed meanwhile.
#[test]
fn what_attempts_left_is_removed_and_what_is_read_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let store = open(path, u64::MAX);
    for number in 1..4 {
        add_run(&store, number);
    }
    let held = store.snapshot(VB).unwrap();
    let engine = store.reader("testing").unwrap();
    let merging = Arc::clone(engine.rotation.merging());
    drop(engine);
    let tables = &merging.tables;
    let before = files(path).len();
    // An attempt that leaves something, while the tables are merged beside it.
    let failed = tables.add(5, || {
        assert!(beside(&merging).is_ok());
        fs::write(next_file(path, &merging), b"left").unwrap();
        fs::write(path.join("db/keyspaces/1/blobs/7"), b"left").unwrap();
        tables.rows.tree.get_next_table_id();
        Err(fjall::Error::Poisoned)
    });
    assert!(matches!(failed, Err(TablesError::Later(_))));
    assert!(tables.merge(u64::MAX, || Ok(())).is_ok());
    assert!(
        files(path).len() > before,
        "what is read is there: {:?}",
        files(path)
    );
    assert!(
        files(path)
            .iter()
            .all(|file| fs::read(file).unwrap() != b"left")
    );
    let large = fs::read_dir(path.join("db/keyspaces/1/blobs")).unwrap();
    assert_eq!(large.count(), 0);
    assert_eq!(held.by_seqno(Seqno::ZERO).count(), 4);
    drop(held);
    check(&store, 3);
}

/// Merges all, as while a run is added.
fn beside(merging: &MergeShared) -> Result<(), fjall::Error> {
    merging.tables.installed.lock().extend(merging.tables.ids());
    merging.tables.rows.major_compact()?;
    merging.tables.installed.lock().extend(merging.tables.ids());
    merging.tables.rows.major_compact()
}

/// Where the next table will lie.
fn next_file(path: &Path, merging: &MergeShared) -> PathBuf {
    let number = merging.tables.rows.tree.next_table_id();
    path.join("db/keyspaces/1/tables").join(number.to_string())
}

/// A list of tables that may or may not stay must not be written over.
#[test]
fn after_an_unknown_list_of_tables_nothing_is_added() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), u64::MAX);
    add_run(&store, 1);
    let engine = store.reader("testing").unwrap();
    let current = dir.path().join("db/keyspaces/1/current");
    let whole = fs::read(&current).unwrap();
    let failed = engine.rotation.merging().tables.add(2, || {
        let mut other = whole.clone();
        other[0] += 1;
        fs::write(&current, other).unwrap();
        Err(fjall::Error::Poisoned)
    });
    assert!(matches!(failed, Err(TablesError::Later(_))));
    assert!(matches!(
        engine.rotation.flush_now(None),
        Err(TablesError::Final(_))
    ));
    fs::write(&current, whole).unwrap();
    assert!(engine.rotation.flush_now(None).is_ok());
}

/// A read asks the runs one after the other; without their filters it would read a block of each.
#[test]
fn runs_have_filters_and_what_is_merged_has_none() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), u64::MAX);
    for number in 1..4 {
        add_run(&store, number);
    }
    let engine = store.reader("testing").unwrap();
    let filters = || -> Vec<bool> {
        let version = engine.rows.tree.current_version();
        version
            .iter_tables()
            .map(|table| table.filter_size() > 0)
            .collect()
    };
    assert_eq!(filters(), [true; 3]);
    assert!(engine.rows.major_compact().is_ok());
    assert_eq!(filters(), [false]);
}

#[test]
fn what_is_dead_is_merged_away_in_a_rest() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path(), 1);
    let value = "x".repeat(1000);
    let engine = store.reader("testing").unwrap();
    let space = || engine.rows.disk_space() + engine.value_log.bytes();
    let mut last = 0;
    for _ in 0..5 {
        let mut rows = Vec::new();
        for key in 0..100 {
            let row = document(last + key + 1, &format!("{key}"), &value);
            rows.push((row, Seqno((last + key + 1).saturating_sub(100))));
        }
        suite::put(&store, VB, &rows);
        engine.rotation.flush_now(None).ok().unwrap();
        last += 100;
    }
    // Half of what is there may be dead.
    until("dead rows go", || space() < 250_000);
    until("and their files", || {
        files(dir.path()).len() == engine.rows.table_count()
    });
    assert_eq!(suite::scan(&store, VB, 0).0.len(), 100);
    until("it is told", || store.upkeep().merges > 0);
}

#[test]
fn pauses_grow_up_to_a_limit() {
    assert_eq!(pause_after(1), PAUSE_MIN);
    assert_eq!(pause_after(3), 4 * PAUSE_MIN);
    assert_eq!(pause_after(u32::MAX), PAUSE_MAX);
}
