use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use model::{Seqno, VbId};

use super::engine::Engine;
use super::view::View;
use super::*;
use crate::port::KvStore;
use crate::{ErrorKind, suite};

#[test]
fn the_suite_passes_with_the_journal_flushed_often() {
    let dir = tempfile::tempdir().unwrap();
    for journal_bytes in [0, 300, 2000] {
        let options = DiskOptions {
            journal_bytes,
            ..DiskOptions::default()
        };
        let path = dir.path().join(journal_bytes.to_string());
        suite::run(&mut |case| DiskStore::open(&path.join(case), options).unwrap().0);
    }
}

#[test]
fn the_suite_passes_with_rows_apart_from_the_tables() {
    let dir = tempfile::tempdir().unwrap();
    let options = DiskOptions {
        journal_bytes: 300,
        blob_bytes_min: 1,
        ..DiskOptions::default()
    };
    suite::run(&mut |case| DiskStore::open(&dir.path().join(case), options).unwrap().0);
}

#[test]
fn the_suite_passes_with_rows_that_stay_in_their_journals() {
    let dir = tempfile::tempdir().unwrap();
    let options = DiskOptions {
        journal_bytes: 300,
        refer_bytes_min: 1,
        ..DiskOptions::default()
    };
    suite::run(&mut |case| DiskStore::open(&dir.path().join(case), options).unwrap().0);
}

/// Rows that are written from where they lie, and those apart from the tables, beside small ones.
#[test]
fn large_documents_are_read_back_from_the_journal_and_from_the_tables() {
    let dir = tempfile::tempdir().unwrap();
    let vb = VbId(3);
    let values = [300 << 10, 5, 2 << 20, 1 << 20, 255 << 10]
        .map(|length| "abcdefg".repeat(length / 7 + 1)[..length].to_owned());
    let check = |store: &DiskStore| {
        let found: Vec<_> = suite::scan(store, vb, 0).0;
        assert_eq!(found.len(), values.len());
        for ((_, found, meta), value) in found.iter().zip(&values) {
            assert!(found == value.as_bytes(), "{}", meta.seqno);
        }
    };
    let (store, _) = open(dir.path());
    let rows: Vec<_> = (1..)
        .zip(&values)
        .map(|(seqno, value)| {
            (
                suite::document(seqno, &format!("k{seqno}"), value),
                Seqno::ZERO,
            )
        })
        .collect();
    suite::put(&store, vb, &rows);
    check(&store);
    drop(store);
    let (store, opened) = open(dir.path());
    assert!(!opened.clean);
    check(&store);
    let engine = store.reader("draining").ok().unwrap();
    assert!(engine.rotation.flush_now(None).is_ok());
    drop(engine);
    check(&store);
    drop(store);
    let blobs = dir.path().join("db/keyspaces/1/blobs");
    assert_eq!(
        std::fs::read_dir(blobs).unwrap().count(),
        2,
        "those of 1 MiB and more"
    );
    check(&open(dir.path()).0);
}

fn open(path: &Path) -> (DiskStore, Opened) {
    DiskStore::open(path, DiskOptions::default()).unwrap()
}

#[test]
fn the_suite_passes() {
    let dir = tempfile::tempdir().unwrap();
    suite::run(&mut |case| open(&dir.path().join(case)).0);
}

#[test]
fn the_suite_passes_with_batches_written_directly() {
    let dir = tempfile::tempdir().unwrap();
    for direct_rows_min in [1, 3] {
        let options = DiskOptions {
            direct_rows_min,
            ..DiskOptions::default()
        };
        let path = dir.path().join(direct_rows_min.to_string());
        suite::run(&mut |case| DiskStore::open(&path.join(case), options).unwrap().0);
    }
}

#[test]
fn a_failed_sync_poisons_the_store_for_good() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let vb = VbId(1);
    suite::put(&store, vb, &[(suite::document(1, "a", "1"), Seqno::ZERO)]);
    let error = fjall::Error::Io(std::io::Error::from_raw_os_error(5));
    let error = store
        .writer
        .lock()
        .failed(error, writer::FailedStep::Sync, "committing");
    assert_eq!(error.kind, ErrorKind::Poisoned);
    for _ in 0..2 {
        let one = [(suite::document(2, "b", "1"), Seqno::ZERO)];
        assert_eq!(
            suite::try_put(&store, vb, &one).unwrap_err().kind,
            ErrorKind::Poisoned
        );
    }
    assert_eq!(store.remove(&[vb]).unwrap_err().kind, ErrorKind::Poisoned);
    assert_eq!(suite::scan(&store, vb, 0).0.len(), 1, "reads go on");
    assert_eq!(store.close().unwrap_err().kind, ErrorKind::Poisoned);
    drop(store);
    let (store, opened) = open(dir.path());
    assert!(!opened.clean && opened.poisoned);
    assert_eq!(suite::scan(&store, vb, 0).0.len(), 1);
    store.close().unwrap();
    drop(store);
    let (_, opened) = open(dir.path());
    assert!(opened.clean && !opened.poisoned, "it was told once");
}

/// A sync that fails for want of space is as bad as any: what the device holds is unknown.
#[test]
fn only_a_write_that_found_no_space_asks_for_a_retry() {
    let full = || fjall::Error::Io(std::io::ErrorKind::StorageFull.into());
    let no_descriptors = || fjall::Error::Io(std::io::Error::from_raw_os_error(24));
    let read_only = || fjall::Error::Io(std::io::Error::from_raw_os_error(30));
    let other = || fjall::Error::Io(std::io::Error::from_raw_os_error(5));
    let cases = [
        (full(), writer::FailedStep::Write, ErrorKind::NoSpace),
        (
            no_descriptors(),
            writer::FailedStep::Write,
            ErrorKind::NoSpace,
        ),
        (read_only(), writer::FailedStep::Write, ErrorKind::Io),
        (full(), writer::FailedStep::Sync, ErrorKind::Poisoned),
        (read_only(), writer::FailedStep::Sync, ErrorKind::Poisoned),
        (other(), writer::FailedStep::Write, ErrorKind::Poisoned),
        (
            fjall::Error::InvalidTrailer,
            writer::FailedStep::Write,
            ErrorKind::Poisoned,
        ),
    ];
    for (error, step, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let (store, _) = open(dir.path());
        assert_eq!(
            store.writer.lock().failed(error, step, "committing").kind,
            expected
        );
        let one = [(suite::document(1, "a", "1"), Seqno::ZERO)];
        let next = suite::try_put(&store, VbId(0), &one);
        match expected {
            ErrorKind::NoSpace | ErrorKind::Io => {
                assert_eq!(next.unwrap().rows, 1, "opened again");
            }
            kind => assert_eq!(next.unwrap_err().kind, kind),
        }
    }
}

/// The worst of a failed commit: it is there all the same after reopening, and its maker, which
/// was told that it failed, comes back with newer versions of the same keys, one by one.
#[test]
fn rows_of_a_failed_commit_are_replaced_by_its_repetition() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let vb = VbId(1);
    let document = suite::document;
    suite::put(
        &store,
        vb,
        &[
            (document(1, "a", "1"), Seqno(0)),
            (document(2, "b", "1"), Seqno(0)),
        ],
    );
    let acknowledged = store.writer.lock().states().clone();
    let failed = [
        (document(3, "a", "2"), Seqno(1)),
        (document(4, "b", "2"), Seqno(2)),
    ];
    suite::put(&store, vb, &failed);
    store.writer.lock().pretend_failed(acknowledged);

    suite::put(&store, vb, &[(document(5, "b", "3"), Seqno(2))]);
    let found: Vec<_> = suite::scan(&store, vb, 0)
        .0
        .into_iter()
        .map(|row| row.2.seqno.0)
        .collect();
    assert_eq!(
        found,
        [3, 5],
        "the old a is gone, its newer version stays until replaced"
    );
    suite::put(&store, vb, &[(document(6, "a", "3"), Seqno(1))]);
    let found: Vec<_> = suite::scan(&store, vb, 0)
        .0
        .into_iter()
        .map(|row| row.2.seqno.0)
        .collect();
    assert_eq!(found, [5, 6]);
}

/// What a failed commit left in the tables, and what its repetition writes under the same seqno, is
/// one row: when it goes, nothing of it comes back.
#[test]
fn a_repeated_row_does_not_come_back_from_the_tables() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let vb = VbId(1);
    let document = suite::document;
    suite::put(&store, vb, &[(document(1, "a", "1"), Seqno(0))]);
    let acknowledged = store.writer.lock().states().clone();
    let again = [(document(2, "b", "1"), Seqno(0))];
    suite::put(&store, vb, &again);
    let engine = store.reader("testing").unwrap();
    engine.rotation.flush_now(None).ok().unwrap();
    drop(engine);
    store.writer.lock().pretend_failed(acknowledged);

    suite::put(&store, vb, &again);
    suite::put(&store, vb, &[(document(3, "b", "2"), Seqno(2))]);
    let found = suite::scan(&store, vb, 0).0;
    let found: Vec<_> = found.into_iter().map(|row| row.2.seqno.0).collect();
    assert_eq!(found, [1, 3]);
}

#[test]
fn rows_above_the_record_do_not_count_and_are_cleared_away() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    suite::put(
        &store,
        VbId(1),
        &[(suite::document(1, "a", "1"), Seqno::ZERO)],
    );
    let engine = store.reader("testing").unwrap();
    let mut changes = engine.changes();
    for (vb, seqno) in [(1, 2), (1, 3), (2, 1)] {
        let late = suite::document(seqno, "b", "1");
        let encode = |out: &mut Vec<u8>| crate::record::encode_row_head(VbId(vb), &late, out);
        changes.put(VbId(vb), Seqno(seqno), encode).unwrap();
    }
    changes.write().unwrap();
    assert_eq!(suite::scan(&store, VbId(1), 0).0.len(), 1);
    assert_eq!(suite::scan(&store, VbId(2), 0).0.len(), 0);
    assert_eq!(rows_stored(&engine), 4);
    drop(engine);
    drop(store);
    let (store, _) = open(dir.path());
    assert_eq!(rows_stored(&store.reader("testing").unwrap()), 1);
    assert_eq!(store.load().unwrap().len(), 1);
}

#[test]
fn reopening_waits_for_snapshots() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let one = [(suite::document(1, "a", "1"), Seqno::ZERO)];
    suite::put(&store, VbId(0), &one);
    let acknowledged = store.writer.lock().states().clone();
    store.writer.lock().pretend_failed(acknowledged);
    let snapshot = store.snapshot(VbId(0)).unwrap();
    let next = [(suite::document(2, "b", "1"), Seqno::ZERO)];
    assert_eq!(
        suite::try_put(&store, VbId(0), &next).unwrap_err().kind,
        ErrorKind::NoSpace
    );
    assert_eq!(snapshot.by_seqno(Seqno::ZERO).count(), 1);
    drop(snapshot);
    suite::put(&store, VbId(0), &next);
}

#[test]
fn acknowledged_commits_that_a_reopening_does_not_find_poison_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    suite::put(
        &store,
        VbId(0),
        &[(suite::document(1, "a", "1"), Seqno::ZERO)],
    );
    let mut states = store.writer.lock().states().clone();
    states.slot(VbId(0)).as_mut().unwrap().commit += 7;
    store.writer.lock().pretend_failed(states);
    let next = [(suite::document(2, "b", "1"), Seqno::ZERO)];
    assert_eq!(
        suite::try_put(&store, VbId(0), &next).unwrap_err().kind,
        ErrorKind::Poisoned
    );
}

/// The record is lowered first, so a rollback that was cut short is finished by opening again.
#[test]
fn a_rollback_that_was_cut_short_is_finished() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let vb = VbId(4);
    suite::put(&store, vb, &[(suite::document(1, "a", "1"), Seqno::ZERO)]);
    suite::put(&store, vb, &[(suite::document(2, "b", "1"), Seqno::ZERO)]);
    let acknowledged = store.writer.lock().states().clone();
    let engine = store.reader("testing").unwrap();
    let view = View::open(Arc::clone(&engine), vb);
    let mut stored = view.stored_vb().ok().flatten().unwrap();
    drop(view);
    crate::port::rolled_back(&mut stored.record, Seqno(1));
    stored.commit += 1;
    let mut changes = engine.changes();
    changes.put_record(vb, (&stored).into()).unwrap();
    changes.write().unwrap();
    drop(engine);
    store.writer.lock().pretend_failed(acknowledged);
    assert_eq!(store.rollback(vb, Seqno(1)).unwrap().high_seqno, Seqno(1));
    assert_eq!(suite::scan(&store, vb, 0).0.len(), 1);
    assert_eq!(rows_stored(&store.reader("testing").unwrap()), 1);
}

/// Rows, whether they count or not, of vBuckets 0 to 9.
fn rows_stored(engine: &Arc<Engine>) -> usize {
    let rows = |vb| {
        View::open(Arc::clone(engine), vb)
            .rows(Seqno::ZERO, survey::ROWS_END)
            .count()
    };
    (0..10).map(VbId).map(rows).sum()
}

/// A crash after the tables took the journal, and before there is a new one: the old one must not
/// be replayed, or rows that are gone by then would come back.
#[test]
fn a_journal_that_became_tables_is_not_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let vb = VbId(1);
    let journal = |generation| dir.path().join(format!("journal-{generation}"));
    {
        let (store, _) = open(dir.path());
        suite::put(&store, vb, &[(suite::document(1, "a", "1"), Seqno::ZERO)]);
        std::fs::copy(journal(1), dir.path().join("away")).unwrap();
        suite::put(&store, vb, &[(suite::document(2, "a", "2"), Seqno(1))]);
        let engine = store.reader("testing").unwrap();
        engine.rotation.flush_now(None).ok().unwrap();
        assert!(
            engine
                .index
                .read()
                .indexes()
                .all(|index| index.vbs.keys().count() == 0)
        );
        assert!(!journal(1).exists() && journal(2).exists());
        assert_eq!(rows_stored(&engine), 1);
    }
    std::fs::rename(dir.path().join("away"), journal(1)).unwrap();
    let (store, _) = open(dir.path());
    assert!(!journal(1).exists() && journal(2).exists());
    let found = suite::scan(&store, vb, 0).0;
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].2.seqno, Seqno(2));
}

/// A snapshot keeps what it saw, in the tables and in front of them, whatever becomes of the
/// journal.
#[test]
fn a_snapshot_outlives_its_journal() {
    let dir = tempfile::tempdir().unwrap();
    let (store, _) = open(dir.path());
    let vb = VbId(1);
    let engine = store.reader("testing").unwrap();
    suite::put(&store, vb, &[(suite::document(1, "a", "1"), Seqno::ZERO)]);
    engine.rotation.flush_now(None).ok().unwrap();
    suite::put(&store, vb, &[(suite::document(2, "b", "1"), Seqno::ZERO)]);
    let snapshot = store.snapshot(vb).unwrap();
    suite::put(&store, vb, &[(suite::document(3, "a", "2"), Seqno(1))]);
    suite::put(&store, vb, &[(suite::document(4, "b", "2"), Seqno(2))]);
    engine.rotation.flush_now(None).ok().unwrap();
    let seen: Vec<_> = snapshot
        .by_seqno(Seqno::ZERO)
        .map(|row| row.unwrap().seqno().0)
        .collect();
    assert_eq!(seen, [1, 2]);
    let now: Vec<_> = suite::scan(&store, vb, 0)
        .0
        .iter()
        .map(|row| row.2.seqno.0)
        .collect();
    assert_eq!(now, [3, 4]);
}

#[test]
fn what_a_store_takes_is_told_while_a_commit_waits_for_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(open(dir.path()).0);
    suite::put(
        &*store,
        VbId(1),
        &[(suite::document(1, "a", "1"), Seqno::ZERO)],
    );
    let before = store.disk_usage().unwrap();
    let engine = store.reader("looking").ok().unwrap();
    // What a commit holds while its sync does not return.
    let (_writer, _journal) = (store.writer.lock(), engine.journal.lock());
    let (told, answer) = std::sync::mpsc::channel();
    let asked = Arc::clone(&store);
    std::thread::spawn(move || told.send(asked.disk_usage().map_err(|error| error.kind)));
    let usage = answer.recv_timeout(Duration::from_secs(20)).unwrap();
    assert_eq!(usage, Ok(before));
}
