use std::fs;
use std::path::Path;
use std::sync::mpsc;

use model::{Seqno, VbId};

use super::super::{DiskOptions, DiskStore};
use super::*;
use crate::suite::{self, document};
use crate::{ErrorKind, KvStore, OpenErrorKind};

const VB: VbId = VbId(1);

/// With a journal that is full after some commits.
fn options() -> DiskOptions {
    DiskOptions {
        journal_bytes: 4 << 10,
        free_bytes_min: 0,
        ..DiskOptions::default()
    }
}

fn open(path: &Path) -> DiskStore {
    DiskStore::open(path, options()).unwrap().0
}

/// Writes one key again and again: after each commit exactly its row is there.
fn put(store: &DiskStore, seqno: u64) -> crate::CommitInfo {
    suite::put(store, VB, &[(document(seqno, "a", "1"), Seqno(seqno - 1))])
}

fn put_all(store: &DiskStore, seqnos: std::ops::Range<u64>) {
    for seqno in seqnos {
        put(store, seqno);
    }
}

fn rows(store: &DiskStore) -> Vec<u64> {
    let (rows, _) = suite::scan(store, VB, 0);
    rows.into_iter().map(|row| row.2.seqno.0).collect()
}

/// Puts a thread of the test in the place of the one that drains.
fn drain_by(
    engine: &super::super::engine::Engine,
    run: impl FnOnce(Drain, Sealed) -> Result<(), fjall::Error> + Send + 'static,
) {
    let room = &engine.room;
    let sealed = room.rotate().unwrap();
    let drain = room.drain.clone();
    let thread = std::thread::spawn(move || run(drain, sealed));
    *room.sealed.lock() = State::Draining(thread);
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            copy(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), &target).unwrap();
        }
    }
}

/// What a crash left: the row of the last commit and nothing else, now and after more commits.
fn check_crashed(path: &Path, last: u64) {
    let (store, opened) = DiskStore::open(path, options()).unwrap();
    assert_eq!(opened.notices, [], "{}", path.display());
    assert_eq!(rows(&store), [last], "{}", path.display());
    for seqno in last + 1..last + 60 {
        put(&store, seqno);
    }
    drop(store);
    assert_eq!(rows(&open(path)), [last + 59], "{}", path.display());
}

/// Every state between two journals and one can be what a crash leaves.
#[test]
fn a_crash_beside_a_drain_loses_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let store = open(&at("store"));
    put_all(&store, 1..4);
    let engine = store.reader("testing").unwrap();
    let (go, wait) = mpsc::channel::<()>();
    drain_by(&engine, move |drain, sealed| {
        wait.recv().unwrap();
        drain.run(sealed, None)
    });
    copy(&at("store"), &at("rotated"));
    assert_eq!(rows(&store), [3], "a sealed journal is read");
    let held = store.snapshot(VB).unwrap();
    put(&store, 4);
    put(&store, 5);
    assert_eq!(rows(&store), [5], "its rows are replaced");
    assert_eq!(engine.get(VB, Seqno(3)).unwrap(), None);
    copy(&at("store"), &at("written"));
    go.send(()).unwrap();
    engine.room.sealed.lock().settle().unwrap();
    assert_eq!(rows(&store), [5]);
    assert_eq!(held.by_seqno(Seqno::ZERO).count(), 1);
    drop(held);
    copy(&at("store"), &at("drained"));
    // The tables have it, and the old journal is not gone.
    copy(&at("drained"), &at("not removed"));
    let (old, spare) = (at("written").join("journal-1"), "journal-3");
    fs::copy(old, at("not removed").join("journal-1")).unwrap();
    copy(&at("not removed"), &at("not renamed"));
    let removed = fs::remove_file(at("not renamed").join(spare));
    assert!(removed.is_err(), "while it was read it was not recycled");
    check_crashed(&at("rotated"), 3);
    for name in ["written", "drained", "not removed"] {
        check_crashed(&at(name), 5);
    }
}

#[test]
fn files_are_recycled_and_few() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for seqno in 1..400 {
        put(&store, seqno);
    }
    assert_eq!(rows(&store), [399]);
    let engine = store.reader("testing").unwrap();
    engine.room.sealed.lock().settle().unwrap();
    assert!(engine.journal.lock().generation() > 5);
    drop(engine);
    let journals = super::super::journal::journals(dir.path()).unwrap();
    assert!(journals.len() <= 2, "{journals:?}");
    drop(store);
    assert_eq!(rows(&open(dir.path())), [399]);
}

/// Damage in a sealed journal is told, and nothing is cleared away.
#[test]
fn a_damaged_sealed_journal_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let store = open(&at("store"));
    put_all(&store, 1..4);
    let engine = store.reader("testing").unwrap();
    let (go, wait) = mpsc::channel::<()>();
    drain_by(&engine, move |_, _| {
        wait.recv().unwrap();
        Ok(())
    });
    put_all(&store, 4..6);
    let bytes = fs::read(at("store").join("journal-1")).unwrap();
    let end = bytes.iter().rposition(|byte| *byte != 0).unwrap();
    for damaged in (0..end).step_by(23) {
        let path = at("copy");
        copy(&at("store"), &path);
        let mut bytes = bytes.clone();
        bytes[damaged] ^= 4;
        fs::write(path.join("journal-1"), bytes).unwrap();
        let error = DiskStore::open(&path, options())
            .err()
            .expect("it is damaged");
        assert_eq!(
            error.kind,
            OpenErrorKind::Damaged,
            "byte {damaged}: {error}"
        );
        fs::remove_dir_all(path).unwrap();
    }
    go.send(()).unwrap();
}

#[test]
fn a_drain_without_space_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    put(&store, 1);
    let engine = store.reader("testing").unwrap();
    drain_by(&engine, |_, _| {
        Err(fjall::Error::Io(std::io::ErrorKind::StorageFull.into()))
    });
    while !matches!(&*engine.room.sealed.lock(), State::Draining(thread) if thread.is_finished()) {
        std::thread::yield_now();
    }
    drop(engine);
    let held = store.snapshot(VB).unwrap();
    let one = [(document(2, "a", "1"), Seqno(1))];
    let error = suite::try_put(&store, VB, &one).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSpace);
    assert_eq!(rows(&store), [1], "it can be read all the same");
    drop(held);
    put(&store, 2);
    let engine = store.reader("testing").unwrap();
    engine.room.sealed.lock().settle().unwrap();
    assert_eq!(rows(&store), [2]);
}

#[test]
fn a_drain_whose_sync_fails_poisons_the_store_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    put(&store, 1);
    let engine = store.reader("testing").unwrap();
    drain_by(&engine, |_, _| {
        Err(fjall::Error::Io(std::io::Error::from_raw_os_error(5)))
    });
    // With the current one full, the next commit waits for the end of the drain.
    while engine.journal.lock().bytes() < options().journal_bytes {
        let mut changes = engine.changes();
        changes
            .put(VbId(9), Seqno(1), |out| out.resize(out.len() + 500, 1))
            .unwrap();
        changes.write().unwrap();
    }
    drop(engine);
    for _ in 0..2 {
        let one = [(document(2, "a", "1"), Seqno(1))];
        let error = suite::try_put(&store, VB, &one).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Poisoned);
    }
    assert_eq!(rows(&store), [1]);
    drop(store);
    let (store, opened) = DiskStore::open(dir.path(), options()).unwrap();
    assert_eq!((opened.clean, opened.notices), (false, vec![]));
    assert_eq!(rows(&store), [1]);
}

#[test]
fn commits_go_on_beside_a_drain_until_both_journals_are_full() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    put(&store, 1);
    let engine = store.reader("testing").unwrap();
    let shared = Arc::clone(&engine);
    drain_by(&engine, move |drain, sealed| {
        while shared.room.waits() == 0 {
            std::thread::yield_now();
        }
        drop(shared);
        drain.run(sealed, None)
    });
    let (mut beside, mut hurried) = (0, 0);
    let waited = (2..1000).find(|seqno| {
        let info = put(&store, *seqno);
        beside += u64::from(!info.waited);
        if !info.waited && engine.room.drain.hurried.load(Ordering::Relaxed) {
            hurried += 1;
        }
        info.waited
    });
    assert!(beside > 3, "commits went on beside the drain");
    assert!(
        0 < hurried && hurried < beside,
        "the drain is hurried before somebody waits, but not at once: {hurried} of {beside}"
    );
    assert_eq!(rows(&store), [waited.unwrap()]);
}

/// Several groups that are made durable together may lie in two journals.
#[test]
fn what_is_sealed_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let engine = store.reader("testing").unwrap();
    let mut changes = engine.changes();
    changes.put(VB, Seqno(1), |out| out.push(1)).unwrap();
    changes.write().unwrap();
    assert!(!engine.journal.lock().is_synced());
    let sealed = engine.room.rotate().unwrap();
    assert!(sealed.bytes > 0 && engine.journal.lock().is_synced());
    *engine.room.sealed.lock() = State::Waiting(sealed);
}
