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

/// A worker of the test in the place of the one that flushes.
struct DrainBy<F>(Option<F>, Flush, Option<Sealed>, Arc<FlushProgress>);

impl<F: FnOnce(Flush, Sealed, &Arc<FlushProgress>) -> Option<Sealed> + Send> Worker for DrainBy<F> {
    fn step(&mut self, _: u64) -> Next {
        let (run, sealed) = (self.0.take().unwrap(), self.2.take().unwrap());
        let left = run(self.1.clone(), sealed, &self.3);
        if !self.3.has_ended() {
            self.3.end(left);
        }
        Next::Done
    }
}

fn flush_by(
    engine: &super::super::engine::Engine,
    run: impl FnOnce(Flush, Sealed, &Arc<FlushProgress>) -> Option<Sealed> + Send + 'static,
) {
    let rotation = &engine.rotation;
    let sealed = rotation.rotate().ok().unwrap();
    let progress = Arc::new(FlushProgress::default());
    let by = (rotation.flush.clone(), Some(sealed), Arc::clone(&progress));
    let worker = Box::new(DrainBy(Some(run), by.0, by.1, by.2));
    let threads = &rotation.flush.merging.background.threads;
    let worker = threads.start(Duty::Drain, worker).unwrap();
    *rotation.sealed.lock() = SealedState::Flushing(RunningFlush { worker, progress });
}

/// Does what the one that flushes would do.
fn flush_until_done(flush: Flush, sealed: Sealed, progress: &Arc<FlushProgress>) -> Option<Sealed> {
    let mut drainer = FlushWorker::new(flush, sealed, Arc::clone(progress));
    let mut now_ns = 0;
    loop {
        match drainer.step(now_ns) {
            Next::At(at_ns) => now_ns = at_ns,
            Next::Done => return None,
            Next::Again | Next::OnSignal => {}
        }
    }
}

/// Waits for what is under way.
fn settle(engine: &super::super::engine::Engine) {
    engine.rotation.sealed.lock().settle().ok().unwrap();
}

/// The files of tables of a store at `path`.
fn tables(path: &Path) -> std::path::PathBuf {
    path.join("db/keyspaces/1/tables")
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
    let (store, _) = DiskStore::open(path, options()).unwrap();
    assert_eq!(rows(&store), [last], "{}", path.display());
    for seqno in last + 1..last + 60 {
        put(&store, seqno);
    }
    drop(store);
    assert_eq!(rows(&open(path)), [last + 59], "{}", path.display());
}

/// Every state between two journals and one can be what a crash leaves.
#[test]
fn a_crash_beside_a_flush_loses_and_doubles_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let store = open(&at("store"));
    put_all(&store, 1..4);
    let engine = store.reader("testing").unwrap();
    let (go, wait) = mpsc::channel::<()>();
    flush_by(&engine, move |flush, sealed, progress| {
        wait.recv().unwrap();
        flush_until_done(flush, sealed, progress)
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
    settle(&engine);
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
    settle(&engine);
    assert!(engine.journal.lock().generation() > 5);
    drop(engine);
    let journals = crate::disk::journal_files::journals(dir.path()).unwrap();
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
    flush_by(&engine, move |_, sealed, _| {
        wait.recv().unwrap();
        Some(sealed)
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

/// The journal takes what comes meanwhile, up to a limit; then commits are refused, and nothing
/// needs a restart.
#[test]
fn a_flush_that_fails_is_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let store = open(&path);
    put(&store, 1);
    fs::rename(tables(&path), dir.path().join("away")).unwrap();
    let mut last = 1;
    let error = loop {
        let next = [(document(last + 1, "a", "1"), Seqno(last))];
        match suite::try_put(&store, VB, &next) {
            Ok(_) => last += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(error.kind, ErrorKind::Io, "{error}");
    let engine = store.reader("testing").unwrap();
    assert_eq!(engine.journal.lock().generation(), 2);
    let bytes = engine.journal.lock().bytes();
    assert!(bytes >= 2 * options().journal_bytes, "{bytes}");
    assert!(store.upkeep().runs_failed > 0);
    assert_eq!(rows(&store), [last], "it can be read all the same");

    fs::rename(dir.path().join("away"), tables(&path)).unwrap();
    let next = [(document(last + 1, "a", "1"), Seqno(last))];
    while let Err(error) = suite::try_put(&store, VB, &next) {
        assert_eq!(error.kind, ErrorKind::Io, "{error}");
        std::thread::yield_now();
    }
    put_all(&store, last + 2..last + 100);
    assert!(engine.journal.lock().generation() > 3);
    assert_eq!(rows(&store), [last + 99]);
    drop(engine);
    drop(store);
    check_crashed(&path, last + 99);
}

/// As above, with a batch that is to become tables at once.
#[test]
fn a_large_commit_that_fails_may_be_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("store");
    let options = DiskOptions {
        direct_rows_min: 1,
        ..options()
    };
    let (store, _) = DiskStore::open(&path, options).unwrap();
    put(&store, 1);
    fs::rename(tables(&path), dir.path().join("away")).unwrap();
    let next = [(document(2, "a", "1"), Seqno(1))];
    for _ in 0..2 {
        let error = suite::try_put(&store, VB, &next).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Io, "{error}");
    }
    fs::rename(dir.path().join("away"), tables(&path)).unwrap();
    assert_eq!(rows(&store), [1]);
    while suite::try_put(&store, VB, &next).is_err() {
        std::thread::yield_now();
    }
    put(&store, 3);
    assert_eq!(rows(&store), [3]);
    drop(store);
    check_crashed(&path, 3);
}

#[test]
fn a_flush_after_which_nothing_is_known_poisons_the_store_and_loses_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    put(&store, 1);
    let engine = store.reader("testing").unwrap();
    flush_by(&engine, |_, sealed, progress| {
        let error = std::io::Error::from_raw_os_error(5);
        progress.failed(&TablesError::Final(error.into()));
        Some(sealed)
    });
    // With the current one full, the next commit waits for the end of the flush.
    while engine.journal.lock().bytes() < options().journal_bytes {
        let mut changes = engine.changes();
        changes
            .put(VbId(9), Seqno(1), |out| {
                out.resize(out.len() + 500, 1);
                &[]
            })
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
    assert!(!opened.clean);
    assert_eq!(rows(&store), [1]);
}

#[test]
fn commits_go_on_beside_a_flush_until_both_journals_are_full() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    put(&store, 1);
    let engine = store.reader("testing").unwrap();
    let shared = Arc::clone(&engine);
    flush_by(&engine, move |flush, sealed, progress| {
        while shared.rotation.waits() == 0 {
            std::thread::yield_now();
        }
        drop(shared);
        flush_until_done(flush, sealed, progress)
    });
    let mut beside = 0;
    let waited = (2..1000).find(|seqno| {
        let info = put(&store, *seqno);
        beside += u64::from(!info.waited);
        info.waited
    });
    assert!(beside > 3, "commits went on beside the drain");
    assert_eq!(rows(&store), [waited.unwrap()]);
}

/// Several groups that are made durable together may lie in two journals.
#[test]
fn what_is_sealed_is_durable() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let engine = store.reader("testing").unwrap();
    let mut changes = engine.changes();
    changes
        .put(VB, Seqno(1), |out| {
            out.push(1);
            &[]
        })
        .unwrap();
    changes.write().unwrap();
    assert!(!engine.journal.lock().is_synced());
    let sealed = engine.rotation.rotate().ok().unwrap();
    assert!(sealed.bytes > 0 && engine.journal.lock().is_synced());
    *engine.rotation.sealed.lock() = SealedState::Waiting(sealed);
}
