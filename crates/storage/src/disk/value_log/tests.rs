use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use model::{Seqno, VbId};

use super::super::{DiskOptions, DiskStore, OpenErrorKind, salvage};
use super::log::SPARE;
use super::*;
use crate::KvStore;
use crate::disk::journal_files::{journals, numbered, path_of};
use crate::suite::{self, document};

const VB: VbId = VbId(1);
/// What every document has; the tables of one that has only references do not.
const VALUE: &str =
    "a value that is long enough to be found in a file, and most of what there is in its journal";
/// Runs that lie side by side until they are merged.
const RUNS: u64 = 16;

fn options() -> DiskOptions {
    DiskOptions {
        refer_bytes_min: 1,
        left_percent: 0,
        free_bytes_min: 0,
        dead_bytes_min: u64::MAX,
        ..DiskOptions::default()
    }
}

fn open_store(path: &Path) -> DiskStore {
    DiskStore::open(path, options()).unwrap().0
}

/// Writes one key anew and a new one, and makes a run of both.
fn add_run(store: &DiskStore, number: u64) {
    put(store, number);
    let engine = store.reader("testing").unwrap();
    engine.rotation.flush_now(None).ok().unwrap();
}

fn put(store: &DiskStore, number: u64) {
    let (again, new) = (2 * number - 1, 2 * number);
    let before = if number > 1 { again - 2 } else { 0 };
    let rows = [
        (document(again, "again", VALUE), Seqno(before)),
        (document(new, &format!("key{number}"), VALUE), Seqno(0)),
    ];
    suite::put(store, VB, &rows);
}

/// The rows that are there after so many runs, by a scan and by their seqnos.
fn check(store: &DiskStore, runs: u64) {
    let found: BTreeSet<u64> = suite::scan(store, VB, 0)
        .0
        .iter()
        .inspect(|row| assert_eq!(row.1, VALUE.as_bytes()))
        .map(|row| row.2.seqno.0)
        .collect();
    let wanted: BTreeSet<u64> = (1..=runs)
        .map(|number| 2 * number)
        .chain([2 * runs - 1])
        .collect();
    assert_eq!(found, wanted);
    let engine = store.reader("testing").unwrap();
    for seqno in 1..=2 * runs {
        let row = engine.get(VB, Seqno(seqno)).unwrap();
        assert_eq!(row.is_some(), wanted.contains(&seqno), "{seqno}");
    }
}

fn generations(path: &Path) -> BTreeSet<u64> {
    let found = journals(path).unwrap();
    found
        .into_iter()
        .map(|(generation, _)| generation)
        .collect()
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(30);
    while !is_so() {
        assert!(Instant::now() < deadline, "never: {what}");
        std::thread::yield_now();
    }
}

/// Whether a table has a document itself.
fn tables_have_values(path: &Path) -> bool {
    let files = fs::read_dir(path.join("db/keyspaces/1/tables")).unwrap();
    let mut files = files.map(|file| fs::read(file.unwrap().path()).unwrap());
    files.any(|bytes| {
        let mut windows = bytes.windows(VALUE.len());
        windows.any(|window| window == VALUE.as_bytes())
    })
}

/// A store of three runs; gives the journal of the second.
fn three_runs(path: &Path) -> PathBuf {
    let store = open_store(path);
    for number in 1..4 {
        add_run(&store, number);
    }
    path_of(path, 2)
}

fn refusal(path: &Path) -> String {
    let error = DiskStore::open(path, options()).err().expect("refused");
    assert_eq!(error.kind, OpenErrorKind::Damaged, "{error}");
    error.to_string()
}

#[test]
fn rows_lie_in_their_journals_until_they_are_merged() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let store = open_store(path);
    for number in 1..RUNS {
        add_run(&store, number);
    }
    check(&store, RUNS - 1);
    assert!(!tables_have_values(path));
    assert!(generations(path).is_superset(&(1..=RUNS).collect()));
    let usage = store.disk_usage().unwrap();
    assert!(usage.data_bytes > (RUNS - 1) * 2 * VALUE.len() as u64);
    drop(store);
    let store = open_store(path);
    check(&store, RUNS - 1);
    let held = store.snapshot(VB).unwrap();
    add_run(&store, RUNS);
    until("runs are merged", || {
        generations(path).first() > Some(&RUNS)
    });
    assert_eq!(store.upkeep().merges_failed, 0);
    check(&store, RUNS);
    assert!(tables_have_values(path));
    let seen = held
        .by_seqno(Seqno::ZERO)
        .map(|row| row.unwrap().value().to_vec());
    assert!(seen.eq(vec![VALUE.as_bytes().to_vec(); RUNS as usize]));
    drop(held);
    add_run(&store, RUNS + 1);
    drop(store);
    let store = open_store(path);
    check(&store, RUNS + 1);
    let before = generations(path);
    assert!(before.contains(&(RUNS + 1)), "{before:?}");
    assert!(
        store
            .reader("testing")
            .unwrap()
            .rows
            .major_compact()
            .is_ok()
    );
    check(&store, RUNS + 1);
}

/// A store of which merges leave as much in journals.
fn leaving(path: &Path, left_percent: u32, whole_bytes_max: u64) -> DiskStore {
    let options = DiskOptions {
        left_percent,
        whole_bytes_max,
        ..options()
    };
    DiskStore::open(path, options).unwrap().0
}

/// Adds runs up to that number, and waits for so many merges more.
fn add_runs(store: &DiskStore, numbers: std::ops::RangeInclusive<u64>, merges: u64) {
    let before = store.upkeep().merges;
    for number in numbers {
        add_run(store, number);
    }
    until("runs are merged", || {
        store.upkeep().merges >= before + merges
    });
    let engine = store.reader("testing").unwrap();
    until("and few are left", || {
        engine.rows.l0_table_count() < RUNS as usize
    });
}

#[test]
fn a_merge_leaves_the_rows_of_young_journals_where_they_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let store = leaving(path, 1000, u64::MAX);
    add_runs(&store, 1..=RUNS, 1);
    check(&store, RUNS);
    assert!(!tables_have_values(path));
    assert_eq!(store.reader("testing").unwrap().rows.l0_table_count(), 0);
    assert!(generations(path).is_superset(&(1..=RUNS).collect()));
    let data_bytes = store.disk_usage().unwrap().data_bytes;
    assert!(data_bytes > RUNS * 2 * VALUE.len() as u64);
    drop(store);
    // What was left before an opening is taken over, too, once it is old enough.
    let store = leaving(path, 30, u64::MAX);
    check(&store, RUNS);
    let held = store.snapshot(VB).unwrap();
    let first = || *generations(path).first().unwrap();
    add_runs(&store, RUNS + 1..=2 * RUNS, 1);
    check(&store, 2 * RUNS);
    assert!(tables_have_values(path));
    let then = first();
    assert!((RUNS..2 * RUNS).contains(&then), "{then}");
    let seen = held
        .by_seqno(Seqno::ZERO)
        .map(|row| row.unwrap().value().to_vec());
    assert!(seen.eq(vec![VALUE.as_bytes().to_vec(); RUNS as usize + 1]));
    drop(held);
    add_runs(&store, 2 * RUNS + 1..=3 * RUNS, 1);
    check(&store, 3 * RUNS);
    let next = first();
    assert!((then + RUNS / 2..3 * RUNS).contains(&next), "{next}");
    add_runs(&store, 3 * RUNS + 1..=4 * RUNS, 1);
    check(&store, 4 * RUNS);
    let later = first();
    assert!((next + RUNS / 2..4 * RUNS).contains(&later), "{later}");
    drop(store);
    let store = leaving(path, 30, u64::MAX);
    check(&store, 4 * RUNS);
    assert_eq!(first(), later, "nothing is let go of that is needed");
    drop(store);
    let report = salvage(path, &dir.path().join("new")).unwrap();
    let all = (4 * RUNS + 1, 0);
    assert_eq!((report.rows, report.rows_damaged), all, "{report:?}");
}

/// A stop does not wait for a merge, which may take long.
#[test]
fn a_merge_under_way_is_given_up_when_the_store_stops() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let store = open_store(path);
    for number in 1..RUNS {
        add_run(&store, number);
    }
    store.reader("testing").unwrap().value_log.give_up_merges();
    add_run(&store, RUNS);
    until("the merge is given up", || store.upkeep().merges_failed > 0);
    drop(store);
    let store = open_store(path);
    until("it is made", || store.upkeep().merges > 0);
    check(&store, RUNS);
    let engine = store.reader("testing").unwrap();
    let made = engine.rows.table_count();
    until("nothing is left over", || tables(path).len() == made);
}

/// There merges take a part of the tables each, so none of those below runs may need a journal.
#[test]
fn nothing_stays_in_journals_of_a_store_that_has_become_large() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let store = leaving(path, 1000, u64::MAX);
    add_runs(&store, 1..=RUNS, 1);
    assert!(!tables_have_values(path));
    drop(store);
    let store = leaving(path, 1000, 0);
    add_runs(&store, RUNS + 1..=2 * RUNS, 1);
    check(&store, 2 * RUNS);
    until("all is taken over", || {
        generations(path).first() > Some(&(2 * RUNS - 1))
    });
    // Now by the strategy of the database.
    add_runs(&store, 2 * RUNS + 1..=3 * RUNS, 1);
    check(&store, 3 * RUNS);
    until("all is taken over", || {
        generations(path).first() > Some(&(3 * RUNS - 1))
    });
}

#[test]
fn the_files_of_journals_are_used_again_until_no_more_come() {
    let dir = tempfile::tempdir().unwrap();
    for (name, quiet) in [
        ("busy", Duration::from_hours(1)),
        ("quiet", Duration::from_millis(1)),
    ] {
        let path = &dir.path().join(name);
        let options = DiskOptions { quiet, ..options() };
        let store = DiskStore::open(path, options).unwrap().0;
        let spares = || numbered(path, SPARE).unwrap().len();
        for number in 1..=RUNS {
            add_run(&store, number);
        }
        until("runs are merged", || {
            generations(path).first() > Some(&RUNS)
        });
        if name == "quiet" {
            until("the files go", || spares() == 0);
        } else {
            // The last run's may be read still when the merge ends: then it is removed.
            let all = spares();
            assert!(all + 1 >= RUNS as usize, "{all}");
            add_run(&store, RUNS + 1);
            add_run(&store, RUNS + 2);
            assert_eq!(spares(), all - 2);
        }
        drop(store);
        let store = open_store(path);
        assert_eq!(spares(), 0);
        add_run(&store, RUNS + 3);
        drop(store);
        let found = suite::scan(&open_store(path), VB, 0).0;
        assert!(found.iter().all(|row| row.1 == VALUE.as_bytes()));
        assert!(found.len() > RUNS as usize);
    }
}

fn tables(path: &Path) -> BTreeSet<PathBuf> {
    let entries = fs::read_dir(path.join("db/keyspaces/1/tables")).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

/// A merge that fails, for want of space perhaps, does not leave space to files that are not needed.
#[test]
fn spare_files_go_when_a_merge_fails() {
    let dir = tempfile::tempdir().unwrap();
    let path = &dir.path().join("store");
    let quiet = Duration::from_hours(1);
    let store = DiskStore::open(path, DiskOptions { quiet, ..options() })
        .unwrap()
        .0;
    let spares = || numbered(path, SPARE).unwrap().len();
    let away = dir.path().join("away");
    // Merges that cannot read one of the first runs let more of them gather.
    let missing = |from: u64| {
        let before = tables(path);
        add_run(&store, from);
        let table = tables(path).difference(&before).next().unwrap().clone();
        fs::rename(&table, &away).unwrap();
        table
    };
    add_run(&store, 1);
    let table = missing(2);
    for number in 3..=2 * RUNS {
        add_run(&store, number);
    }
    until("a merge fails", || store.upkeep().merges_failed > 0);
    fs::rename(&away, &table).unwrap();
    until("runs are merged", || spares() == 2 * RUNS as usize);
    let failed = store.upkeep().merges_failed;
    add_run(&store, 2 * RUNS + 1);
    let table = missing(2 * RUNS + 2);
    for number in 2 * RUNS + 3..=3 * RUNS {
        add_run(&store, number);
    }
    until("a merge fails", || store.upkeep().merges_failed > failed);
    until("the files go", || spares() == 0);
    fs::rename(&away, &table).unwrap();
    check(&store, 3 * RUNS);
}

/// A run that failed, or a crash before it counts, leaves a journal that is listed and not in the
/// tables; one between a merge and its end leaves journals that nothing refers to.
#[test]
fn the_list_may_name_more_or_fewer_than_there_are() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let store = open_store(path);
    put(&store, 1);
    {
        let engine = store.reader("testing").unwrap();
        let file = Arc::clone(&engine.index.read().current.file);
        engine.value_log.keep(1, 7, &file).unwrap();
    }
    drop(store);
    let store = open_store(path);
    check(&store, 1);
    put(&store, 2);
    let engine = store.reader("testing").unwrap();
    engine.rotation.flush_now(None).ok().unwrap();
    drop(engine);
    check(&store, 2);
    fs::copy(path_of(path, 1), dir.path().join("away")).unwrap();
    drop(store);
    let store = open_store(path);
    check(&store, 2);
    for number in 3..=RUNS + 2 {
        add_run(&store, number);
    }
    until("runs are merged", || !path_of(path, 1).exists());
    drop(store);
    fs::rename(dir.path().join("away"), path_of(path, 1)).unwrap();
    let store = open_store(path);
    assert!(!path_of(path, 1).exists());
    check(&store, RUNS + 2);
}

#[test]
fn a_store_whose_rows_are_missing_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = &dir.path().join("store");
    let journal = three_runs(path);
    let whole = fs::read(&journal).unwrap();
    fs::write(&journal, &whole[..100]).unwrap();
    assert!(refusal(path).contains("journal-2 is cut"));
    fs::remove_file(&journal).unwrap();
    assert!(refusal(path).contains("journal-2 is missing"));
    let report = salvage(path, &dir.path().join("new")).unwrap();
    assert_eq!((report.rows, report.rows_damaged), (3, 1), "{report:?}");
    fs::write(&journal, &whole).unwrap();
    let list = path.join(NAME);
    let listed = fs::read_to_string(&list).unwrap();
    fs::write(&list, listed.replace("\n2 ", "\n5 ")).unwrap();
    assert!(refusal(path).contains("kept: checksum mismatch"));
    fs::remove_file(&list).unwrap();
    assert!(refusal(path).contains("kept is missing"));
    fs::write(&list, &listed).unwrap();
    check(&open_store(path), 3);
}

#[test]
fn a_damaged_row_is_an_error_and_the_others_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let path = &dir.path().join("store");
    let journal = three_runs(path);
    let mut bytes = fs::read(&journal).unwrap();
    let mut windows = bytes.windows(VALUE.len());
    // That of the key which is replaced later comes first.
    let found: Vec<usize> = (0..)
        .zip(&mut windows)
        .filter(|(_, window)| *window == VALUE.as_bytes())
        .map(|(at, _)| at)
        .collect();
    assert_eq!(found.len(), 2);
    bytes[found[1]] ^= 1;
    fs::write(&journal, bytes).unwrap();
    let store = open_store(path);
    let rows: Vec<_> = store
        .snapshot(VB)
        .unwrap()
        .by_seqno(Seqno::ZERO)
        .map(|row| row.is_ok())
        .collect();
    assert_eq!(rows, [true, false]);
    drop(store);
    let report = salvage(path, &dir.path().join("new")).unwrap();
    assert_eq!((report.rows, report.rows_damaged), (3, 1), "{report:?}");
}

/// What the directory says of its version comes before the first reference.
#[test]
fn an_earlier_store_has_no_references_until_it_is_one_of_this() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    drop(open_store(path));
    fs::write(path.join("FORMAT"), "settee storage 3\n").unwrap();
    fs::remove_file(path.join(NAME)).unwrap();
    let directory = super::super::layout::Directory::lock(path).unwrap();
    let value_log = || {
        let threads = Arc::new(super::super::threads::OwnThreads);
        let background = Arc::new(super::super::merge::Background::new(threads));
        let engine = super::super::engine::Engine::open(&directory, &options(), &background, &[]);
        engine.ok().unwrap().value_log.is_begun()
    };
    assert!(!value_log());
    drop(directory);
    let store = open_store(path);
    assert!(store.reader("testing").unwrap().value_log.is_begun());
    assert!(path.join(NAME).exists());
    add_run(&store, 1);
    assert!(!tables_have_values(path));
    check(&store, 1);
    drop(store);
    // Of this version runs refer to journals, and no other tables.
    fs::write(path.join("FORMAT"), "settee storage 7\n").unwrap();
    let list = path.join(NAME);
    fs::rename(&list, dir.path().join("away")).unwrap();
    assert!(refusal(path).contains("kept is missing"));
    fs::rename(dir.path().join("away"), &list).unwrap();
    let store = leaving(path, 1000, u64::MAX);
    check(&store, 1);
    add_runs(&store, 2..=RUNS, 1);
    check(&store, RUNS);
}

/// A reader of statistics serves clients, and does not wait for a disk that holds up the list.
#[test]
fn bytes_of_the_value_log_are_told_while_its_list_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = open_store(dir.path());
    add_run(&store, 1);
    let engine = store.reader("testing").unwrap();
    let value_log = Arc::clone(&engine.value_log);
    let written = value_log.listed.lock();
    let bytes: u64 = written.values().sum();
    assert!(bytes > VALUE.len() as u64);
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn({
        let value_log = Arc::clone(&value_log);
        move || tell.send(value_log.bytes())
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(30)), Ok(bytes));
}
