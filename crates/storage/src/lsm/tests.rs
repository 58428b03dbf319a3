//! The disk store with the suite of all stores.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use model::{Document, Seqno, VbId};

use super::*;
use crate::suite::{document, parts, put, record, view};
use crate::work::{Next, RunningWorker, Threads, WorkKind, Worker};
use crate::{Change, Changes, DocumentRequest, Keep, KvStore as _, VbBatch};

fn small() -> DiskOptions {
    DiskOptions {
        log_bytes: 16 << 10,
        free_bytes_min: 0,
        apart_bytes_min: 100,
        runs_max: 3,
        dead_bytes_min: 1,
        ..DiskOptions::default()
    }
}

fn directories() -> impl FnMut(&str) -> PathBuf {
    let place = tempfile::tempdir().expect("a directory");
    move |case| place.path().join(case)
}

#[test]
fn disk_store_passes_the_suite() {
    let mut directory = directories();
    crate::suite::run(&mut |case| {
        let options = DiskOptions {
            free_bytes_min: 0,
            ..DiskOptions::default()
        };
        DiskStore::open(&directory(case), options)
            .expect("it opens")
            .0
    });
}

#[test]
fn disk_store_passes_the_suite_with_a_run_for_each_commit() {
    let mut directory = directories();
    crate::suite::run(&mut |case| {
        DiskStore::open(&directory(case), small())
            .expect("it opens")
            .0
    });
}

/// Threads that do nothing: a full log stays sealed.
struct Idle;

impl Threads for Idle {
    fn start(&self, _: WorkKind, _: Box<dyn Worker>) -> io::Result<Box<dyn RunningWorker>> {
        Ok(Box::new(Self))
    }
}

impl RunningWorker for Idle {
    fn ring(&self) {}

    fn join(&self) {}
}

/// The removal of the first row of `k`.
struct Gone;

impl Changes for Gone {
    fn for_each(&self, f: &mut dyn FnMut(Change<'_>)) {
        f(Change::Remove {
            key: b"\0k",
            prepared: false,
            seqno: Seqno(1),
        });
    }
}

/// Like a compaction that saw the row before it was replaced.
#[test]
fn removal_of_an_old_row_does_not_hide_a_newer_one_in_the_older_log() {
    let place = tempfile::tempdir().expect("a directory");
    let (store, _) = DiskStore::open_with(&Idle, place.path(), small(), None).expect("it opens");
    let vb = VbId(3);
    let none = Seqno::ZERO;
    put(&store, vb, &[(document(1, "k", "old"), none)]);
    let newer: Document = document(2, "k", "new");
    put(&store, vb, &[(newer.clone(), Seqno(1))]);
    put(
        &store,
        vb,
        &[(document(3, "large", &"v".repeat(20_000)), none)],
    );
    let batch = VbBatch {
        vb,
        record: &record(3),
        changes: &Gone,
    };
    store.commit(&[batch]).expect("it goes into the next log");
    let want = DocumentRequest {
        key: b"\0k",
        seqno: None,
    };
    let found = store.fetch(vb, &[want]).expect("it can be read");
    assert_eq!(found[0].as_ref().map(parts), Some(parts(&newer)));
}

#[test]
fn compaction_during_a_rollback_reports_no_dropped_rows() {
    let place = tempfile::tempdir().expect("a directory");
    let (store, _) = DiskStore::open_with(&Idle, place.path(), small(), None).expect("it opens");
    let vb = VbId(3);
    for seqno in 1..=3 {
        let row = document(seqno, &format!("k{seqno}"), "value");
        put(&store, vb, &[(row, Seqno::ZERO)]);
    }
    let done = store.compact(vb, &mut |meta, _| {
        if meta.seqno == Seqno(1) {
            store.rollback(vb, Seqno(2)).expect("it goes back");
        }
        Keep::Erase
    });
    assert_eq!(done.expect("it ends").dropped, 0);
    assert_eq!(view(&store, vb).high_seqno(), Seqno(2));
    let erased = store.compact(vb, &mut |_, _| Keep::Erase);
    assert_eq!(erased.expect("it ends").dropped, 1);
}

/// Workers that make a step when the test says so.
#[derive(Default)]
struct Stepped(Mutex<Vec<Box<dyn Worker>>>);

impl Threads for Stepped {
    fn start(&self, _: WorkKind, worker: Box<dyn Worker>) -> io::Result<Box<dyn RunningWorker>> {
        self.0.lock().expect("no panic").push(worker);
        Ok(Box::new(Idle))
    }
}

impl Stepped {
    /// Makes a step of each worker, up to one that is to make another at once; returns whether there is one.
    fn step(&self, now: Duration) -> bool {
        let mut workers = self.0.lock().expect("no panic");
        let mut workers = workers.iter_mut();
        workers.any(|worker| worker.step(now.as_nanos() as u64) == Next::Again)
    }
}

#[test]
fn values_leave_mostly_dead_files_in_several_merges_when_quiet() {
    let place = tempfile::tempdir().expect("a directory");
    let threads = Stepped::default();
    let (store, _) = DiskStore::open_with(&threads, place.path(), small(), None).expect("it opens");
    let (vb, value) = (VbId(3), "v".repeat(2_000));
    let mut seqno = 0;
    for round in 0..2 {
        for key in (0..96).filter(|key| round == 0 || key % 3 == 0) {
            seqno += 1;
            let replaced = Seqno(if round == 0 { 0 } else { key + 1 });
            put(
                &store,
                vb,
                &[(document(seqno, &format!("k{key}"), &value), replaced)],
            );
            while threads.step(Duration::from_secs(1)) {}
        }
    }
    let before = store.upkeep().merges;
    while threads.step(Duration::from_mins(1)) {}
    let merges = store.upkeep().merges - before;
    assert!((2..=8).contains(&merges), "{merges} merges");
    let bytes = store.disk_usage().expect("it can be read").file_bytes;
    assert!(bytes < 96 * 2_000 * 13 / 10, "{bytes} bytes on disk");
}

#[test]
fn removed_vbuckets_leave_the_disk_when_quiet() {
    let place = tempfile::tempdir().expect("a directory");
    let threads = Stepped::default();
    let (store, _) = DiskStore::open_with(&threads, place.path(), small(), None).expect("it opens");
    let value = "v".repeat(2_000);
    for key in 0..96 {
        let row = (document(key / 4 + 1, &format!("k{key}"), &value), Seqno(0));
        put(&store, VbId((key % 4) as u16), &[row]);
        while threads.step(Duration::from_secs(1)) {}
    }
    while threads.step(Duration::from_mins(1)) {}
    let removed = [VbId(0), VbId(1), VbId(2)];
    store.remove(&removed).expect("they are removed");
    while threads.step(Duration::from_mins(1)) {}
    let bytes = store.disk_usage().expect("it can be read").file_bytes;
    assert!(bytes < 96 * 2_000 / 2, "{bytes} bytes on disk");
    assert_eq!(crate::suite::scan(&store, VbId(3), 1).len(), 24);
}

/// Returns the sizes of the runs by their names.
fn run_bytes(place: &Path) -> BTreeMap<String, u64> {
    let files = std::fs::read_dir(place).expect("it can be read");
    let files = files.map(|file| file.expect("it can be read"));
    let named = files.map(|file| {
        let bytes = file.metadata().expect("it can be read").len();
        (file.file_name().into_string().expect("a plain name"), bytes)
    });
    named.filter(|(name, _)| name.starts_with("run-")).collect()
}

#[test]
fn log_of_several_pieces_becomes_one_run() {
    let place = tempfile::tempdir().expect("a directory");
    let threads = Stepped::default();
    let options = DiskOptions {
        log_bytes: 2 << 20,
        apart_bytes_min: 1000,
        ..small()
    };
    let (store, _) = DiskStore::open_with(&threads, place.path(), options, None).expect("it opens");
    let value = "v".repeat(900);
    let rows = (1..=110).map(|seqno| (document(seqno, &format!("k{seqno}"), &value), Seqno(0)));
    let rows: Vec<_> = rows.collect();
    for vb in (0..24).map(VbId) {
        put(&store, vb, &rows);
    }
    while threads.step(Duration::from_secs(1)) {}
    assert_eq!(run_bytes(place.path()).len(), 1);
    for vb in (0..24).map(VbId) {
        assert_eq!(crate::suite::scan(&store, vb, 1).len(), 110);
    }
}

#[test]
fn dead_rows_of_a_large_store_go_in_merges_of_a_part_when_quiet() {
    let place = tempfile::tempdir().expect("a directory");
    let threads = Stepped::default();
    let options = DiskOptions {
        runs_max: 8,
        ..small()
    };
    let (store, _) = DiskStore::open_with(&threads, place.path(), options, None).expect("it opens");
    let value = "v".repeat(90);
    for round in 0..2 {
        for keys in [1..=8, 9..=16, 17..=24, 25..=32_u64] {
            let keys = keys.filter(|key| round == 0 || key % 4 == 0);
            let row = |key| {
                let row = document(round * 32 + key, &format!("k{key}"), &value);
                (row, Seqno(round * key))
            };
            let rows: Vec<_> = keys.map(row).collect();
            for vb in (0..64).map(VbId) {
                put(&store, vb, &rows);
                while threads.step(Duration::from_secs(1)) {}
            }
        }
    }
    let mut before = run_bytes(place.path());
    let loaded: u64 = before.values().sum();
    while threads.step(Duration::from_mins(1)) {
        let after = run_bytes(place.path());
        let new = after.iter().filter(|(name, _)| !before.contains_key(*name));
        let new: u64 = new.map(|(_, bytes)| bytes).sum();
        assert!(new < loaded / 4, "{new} of {loaded} bytes in one merge");
        before = after;
    }
    let rested: u64 = before.values().sum();
    assert!(
        rested < loaded * 10 / 11,
        "{rested} of {loaded} bytes are left"
    );
    for vb in (0..64).map(VbId) {
        assert_eq!(crate::suite::scan(&store, vb, 1).len(), 32);
    }
}

#[test]
fn merges_end_above_a_damaged_run_whose_rows_are_dead() {
    let place = tempfile::tempdir().expect("a directory");
    let threads = Stepped::default();
    let (store, _) = DiskStore::open_with(&threads, place.path(), small(), None).expect("it opens");
    let (vbs, value) = ([VbId(3), VbId(4)], "v".repeat(90));
    for round in 0..3 {
        for key in 1..=70_u64 {
            let row = document(round * 70 + key, &format!("k{key}"), &value);
            let replaced = Seqno((round * 70 + key).saturating_sub(70));
            for vb in vbs {
                put(&store, vb, &[(row.clone(), replaced)]);
            }
            while threads.step(Duration::from_secs(1)) {}
        }
        if round == 0 {
            while threads.step(Duration::from_mins(1)) {}
            for run in run_bytes(place.path()).keys() {
                let path = place.path().join(run);
                let mut bytes = std::fs::read(&path).expect("it can be read");
                bytes
                    .iter_mut()
                    .skip(100)
                    .take(1000)
                    .for_each(|byte| *byte ^= 1);
                std::fs::write(&path, bytes).expect("it can be written");
            }
            let is_damaged = |key: u64| {
                let name = format!("\0k{key}");
                let want = DocumentRequest {
                    key: name.as_bytes(),
                    seqno: None,
                };
                store.fetch(vbs[0], &[want]).is_err()
            };
            assert!((1..=70).filter(|key| is_damaged(*key)).count() > 0);
        }
    }
    let steps = (0..100).take_while(|_| threads.step(Duration::from_mins(2)));
    assert!(steps.count() < 100, "they go on");
}
