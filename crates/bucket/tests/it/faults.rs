//! A store that fails: kept changes, reported seqnos, and the end of the failure.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bucket::{Counters, Flushed, FlusherState};
use engine::OpError;
use model::{Seqno, VbId};
use storage::ErrorKind;

use crate::world::{
    Ear, Fault, FaultyStore, Kept, Ops, ROOMY, options, restore, rows, running, warm,
};

#[test]
fn full_disk_loses_nothing_duplicates_nothing_and_acknowledges_nothing() {
    let bucket = warm(options(2, ROOMY), FaultyStore::new(Kept::default()), 1);
    bucket.set(0, "old", b"0");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let ear = Ear::new();
    let seqno = bucket.set(0, "a", b"1");
    bucket.set(0, "b", b"1");
    bucket.set(1, "c", b"1");
    bucket.await_persisted(VbId(0), seqno, ear.clone());
    bucket.store().fail_next(3, Fault::NoSpace);
    assert!(!bucket.is_disk_unwritable());
    for round in 0..3 {
        assert!(matches!(bucket.flush_step(), Flushed::Retry(pause) if !pause.is_zero()));
        assert_eq!(bucket.flusher_state(), FlusherState::Retrying);
        assert!(bucket.is_disk_unwritable());
        assert_eq!(bucket.persisted(0), Seqno(1), "round {round}");
        assert_eq!(ear.rings(), 0);
        // Changes of keys of a failed batch that waits.
        bucket.set(0, "a", format!("{}", round + 2).as_bytes());
        bucket.set(0, "old", b"again");
    }
    assert_eq!(Counters::read(&bucket.counters().commits_failed), 3);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(bucket.flusher_state(), FlusherState::Running);
    assert!(!bucket.is_disk_unwritable());
    assert_eq!((ear.rings(), bucket.any_dirty()), (1, false));
    let stored = rows(bucket.store(), 0);
    let mut keys: Vec<_> = stored
        .iter()
        .map(|row| (row.key().to_vec(), row.value().to_vec()))
        .collect();
    keys.sort();
    let expected = [("a", "4"), ("b", "1"), ("old", "again")];
    let expected = expected.map(|(key, value)| (crate::world::stored(key), value.into()));
    assert_eq!(keys, expected);
    assert_eq!(rows(bucket.store(), 1).len(), 1);
}

#[test]
fn a_full_or_read_only_disk_ends_when_the_failed_vbucket_is_deleted() {
    for fault in [Fault::NoSpace, Fault::Io] {
        let bucket = warm(options(2, ROOMY), FaultyStore::new(Kept::default()), 1);
        bucket.set(0, "a", b"1");
        bucket.store().fail_next(1, fault);
        assert!(matches!(bucket.flush_step(), Flushed::Retry(_)));
        assert!(bucket.is_disk_unwritable(), "{fault:?}");
        bucket.delete_vbucket(VbId(0)).expect("it goes");
        assert_eq!(bucket.flush_step(), Flushed::Clean);
        assert!(!bucket.is_disk_unwritable(), "{fault:?}");
    }
}

#[test]
fn poisoned_store_ends_acknowledgements_but_not_the_service() {
    let bucket = warm(options(2, 1 << 20), FaultyStore::new(Kept::default()), 1);
    bucket.set(0, "a", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    bucket.store().fail_next(1, Fault::Sync);
    let ear = Ear::new();
    let seqno = bucket.set(0, "a", b"2");
    bucket.await_persisted(VbId(0), seqno, ear.clone());
    assert_eq!(bucket.flush_step(), Flushed::Failed);
    assert_eq!(bucket.flusher_state(), FlusherState::Failed);
    bucket.store().heal();
    let tried = bucket.store().commits();
    assert_eq!(bucket.flush_step(), Flushed::Failed);
    assert_eq!(bucket.store().commits(), tried, "it is not even tried");
    assert_eq!((bucket.persisted(0), ear.rings()), (Seqno(1), 0));
    // Memory fills up; then writes are refused, reads and deletes are not.
    let mut index = 0;
    let refusal = loop {
        match bucket.try_set(1, &format!("k{index}"), &[7; 1000]) {
            Ok(_) => index += 1,
            Err(error) => break error,
        }
        assert!(index < 2000, "the quota ends this");
    };
    assert_eq!(refusal, OpError::TemporaryFailure);
    assert!(index > 500);
    bucket.relieve_step();
    assert!(bucket.try_set(1, "one more", &[7; 1000]).is_err());
    assert_eq!(bucket.get(0, "a").unwrap(), b"2");
    assert_eq!(bucket.get(1, "k0").unwrap(), [7; 1000]);
    bucket.try_delete(1, "k0").unwrap();
    assert_eq!(bucket.get(1, "k0"), None);
    assert_eq!(bucket.memory().used(), bucket.recount());
}

/// The store reports permanent errors as `Poisoned`.
#[test]
fn commit_is_retried_after_a_device_error() {
    let bucket = warm(options(1, ROOMY), FaultyStore::new(Kept::default()), 1);
    bucket.store().fail_next(2, Fault::Io);
    bucket.set(0, "a", b"1");
    for _ in 0..2 {
        assert!(matches!(bucket.flush_step(), Flushed::Retry(pause) if !pause.is_zero()));
        assert_eq!(bucket.flusher_state(), FlusherState::Retrying);
        assert_eq!(bucket.persisted(0), Seqno::ZERO);
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(bucket.persisted(0), Seqno(1));
}

#[test]
fn flusher_recovers_from_a_full_disk() {
    let (bucket, workers) = running(options(2, ROOMY), FaultyStore::new(Kept::default()), 1);
    bucket.store().fail_next(2, Fault::NoSpace);
    let ear = Ear::new();
    let seqno = bucket.set(1, "a", b"1");
    bucket.await_persisted(VbId(1), seqno, ear.clone());
    ear.listen();
    assert!(bucket.persisted(1) >= seqno);
    assert_eq!(rows(bucket.store(), 1).len(), 1);
    workers.stop().unwrap();
    assert_eq!(bucket.flusher_state(), FlusherState::Stopped);
}

#[test]
fn hurry_does_not_shorten_the_pause_after_a_full_disk() {
    let (bucket, workers) = running(options(1, ROOMY), FaultyStore::new(Kept::default()), 1);
    bucket.store().fail_next(1000, Fault::NoSpace);
    bucket.set(0, "a", b"1");
    let pause = Ear::new();
    let mut looks = 0;
    while Counters::read(&bucket.counters().commits_failed) == 0 {
        looks += 1;
        assert!(looks < 60_000, "the commit failed long ago");
        pause.listen_for(Duration::from_millis(1));
    }
    let tried = bucket.store().commits();
    for _ in 0..20 {
        bucket.hurry();
        pause.listen_for(Duration::from_millis(1));
    }
    // Even if this thread was delayed: far fewer attempts than calls.
    assert!(bucket.store().commits() <= tried + 5);
    bucket.store().heal();
    workers.stop().unwrap();
    assert!(!bucket.any_dirty());
}

#[test]
fn stop_with_a_dead_store_ends_and_is_unclean() {
    let kept = Kept::default();
    let (bucket, workers) = running(options(2, ROOMY), FaultyStore::new(kept.clone()), 1);
    let ear = Ear::new();
    let seqno = bucket.set(0, "a", b"1");
    bucket.await_persisted(VbId(0), seqno, ear.clone());
    ear.listen();
    bucket.store().fail_next(1, Fault::Sync);
    bucket.set(0, "a", b"2");
    let error = workers.stop().unwrap_err();
    assert_eq!(error.kind, ErrorKind::Poisoned);
    assert_eq!(kept.closes.load(Ordering::SeqCst), 0);
    assert_eq!(rows(&kept, 0)[0].value(), b"1");
}

#[test]
fn stop_with_a_full_disk_ends_and_is_unclean() {
    let kept = Kept::default();
    let (bucket, workers) = running(options(1, ROOMY), FaultyStore::new(kept.clone()), 1);
    bucket.store().fail_next(1000, Fault::NoSpace);
    bucket.set(0, "a", b"1");
    assert_eq!(workers.stop().unwrap_err().kind, ErrorKind::NoSpace);
    assert_eq!(kept.closes.load(Ordering::SeqCst), 0);
    // After space was freed, a second stop completes.
    bucket.store().heal();
    workers.stop().unwrap();
    assert_eq!(kept.closes.load(Ordering::SeqCst), 1);
    assert_eq!(rows(&kept, 0).len(), 1);
}

#[test]
fn unreadable_document_wakes_its_reader_and_is_counted() {
    let bucket = warm(options(1, ROOMY), FaultyStore::new(Kept::default()), 1);
    bucket.set(0, "a", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(
        bucket.with_vbucket(VbId(0), |vbucket| vbucket
            .evict(b"\0a", model::Now::default())),
        Some(true)
    );
    let wanted = |bucket: &bucket::Bucket<_>| match bucket.try_get(0, "a").unwrap() {
        engine::Outcome::NeedsFetch(wanted) => wanted,
        other => panic!("it was evicted: {other:?}"),
    };
    let ear = Ear::new();
    bucket.store().set_unreadable(true);
    let failed = bucket.fetch(VbId(0), wanted(&bucket), ear.clone());
    assert!(failed.awaits(VbId(0), &wanted(&bucket)));
    bucket.fetch_step();
    assert!(!failed.awaits(VbId(0), &wanted(&bucket)));
    assert_eq!(ear.rings(), 1);
    assert_eq!(Counters::read(&bucket.counters().fetch_failed), 1);
    bucket.store().set_unreadable(false);
    let fetch = bucket.fetch(VbId(0), wanted(&bucket), ear.clone());
    bucket.fetch_step();
    restore(&bucket, 0, &fetch);
    assert_eq!(
        (ear.rings(), bucket.get(0, "a").unwrap()),
        (2, b"1".to_vec())
    );
    assert_eq!(bucket.memory().used(), bucket.recount());
}
