//! Creation, state changes and deletion of vBuckets.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bucket::{Bucket, Counters, Flushed, Wake, Workers};
use collections::Manifest;
use engine::{OpError, Outcome};
use model::{Seqno, VbId, VbState, VbUuid};
use storage::{ErrorKind, KvStore as _};

use crate::world::{
    Ear, Fault, FaultyStore, Gated, HandClock, Kept, Ops, ROOMY, Slow, disk, options, restore,
    rows, running, stored, uuids, warm,
};

#[test]
fn deleted_vbucket_is_gone_at_once_and_after_restarts() {
    let dir = tempfile::tempdir().unwrap();
    let (bucket, workers) = running(options(4, ROOMY), disk(dir.path()).0, 1);
    for vb in 0..4 {
        bucket.set(vb, "a", &[7; 1000]);
    }
    let ear = Ear::new();
    bucket.await_persisted(VbId(2), Seqno(99), ear.clone());
    assert!(bucket.delete_vbucket(VbId(2)).unwrap());
    ear.listen();
    assert!(!bucket.delete_vbucket(VbId(2)).unwrap());
    assert!(!bucket.delete_vbucket(VbId(4)).unwrap());
    assert_eq!(bucket.try_get(2, "a").unwrap_err(), OpError::NotMyVbucket);
    assert_eq!(rows(bucket.store(), 2).len(), 0);
    workers.stop().unwrap();
    // A flush between the two figures would change one of them, so the workers are stopped.
    assert_eq!(bucket.memory().used(), bucket.recount());
    drop((bucket, workers));
    for _ in 0..2 {
        let (bucket, workers) = running(options(4, ROOMY), disk(dir.path()).0, 50);
        assert_eq!(bucket.try_get(2, "a").unwrap_err(), OpError::NotMyVbucket);
        assert_eq!(bucket.get(1, "a").unwrap(), [7; 1000]);
        workers.stop().unwrap();
    }
}

#[test]
fn recreated_vbucket_has_no_purged_tombstones() {
    let bucket = warm(options(2, ROOMY), Kept::default(), 1);
    bucket.set(1, "a", b"1");
    bucket.try_delete(1, "a").unwrap();
    bucket.set(1, "b", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let purge_seqno = || bucket.store().snapshot(VbId(1)).unwrap().purge_seqno();
    bucket.purge(VbId(1), u64::MAX).unwrap();
    assert_eq!(purge_seqno(), Seqno(2));
    assert!(bucket.delete_vbucket(VbId(1)).unwrap());
    let made = bucket.set_vbucket(VbId(1), VbState::Active, None, VbUuid(77));
    assert_eq!(made, Ok(()));
    bucket.set(1, "a", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(purge_seqno(), Seqno::ZERO);
}

#[test]
fn recreated_vbucket_is_empty_and_stays() {
    let kept = Kept::default();
    let bucket = warm(options(2, ROOMY), kept.clone(), 1);
    bucket.set(1, "a", b"1");
    bucket.set(1, "b", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert!(bucket.delete_vbucket(VbId(1)).unwrap());
    let made = bucket.set_vbucket(VbId(1), VbState::Active, None, VbUuid(77));
    assert_eq!(made, Ok(()));
    assert_eq!(bucket.get(1, "a"), None);
    assert_eq!(bucket.set(1, "c", b"1"), Seqno(1));
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(bucket.memory().used(), bucket.recount());
    let bucket = warm(options(2, ROOMY), kept, 50);
    assert_eq!(
        (bucket.get(1, "a"), bucket.get(1, "c")),
        (None, Some(b"1".to_vec()))
    );
    let uuid = bucket.with_vbucket(VbId(1), |vbucket| vbucket.failover_log().newest().uuid);
    assert_eq!(uuid, Some(VbUuid(77)));
}

#[test]
fn many_vbuckets_are_emptied_with_two_commits() {
    let kept = Kept::default();
    let bucket = warm(options(64, ROOMY), FaultyStore::new(kept.clone()), 1);
    let with_scope = |now: &Manifest| now.with_scope("shop");
    bucket.change_manifest(with_scope, |_| Vec::new()).unwrap();
    let only_collections =
        |vb| bucket.with_vbucket(VbId(vb), |vbucket| vbucket.holds_only_collections());
    assert_eq!(only_collections(3), Some(true));
    for vb in 0..64 {
        bucket.set(vb, "a", b"1");
    }
    assert_eq!(only_collections(3), Some(false));
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let (commits, removals) = (bucket.store().commits(), bucket.store().removals());
    let all: Vec<VbId> = (0..64).map(VbId).collect();
    bucket.empty_vbuckets(&all, &mut uuids(500)).unwrap();
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let made = bucket.store().commits() - commits + bucket.store().removals() - removals;
    assert!(made <= 3, "{made}");
    assert_eq!(bucket.memory().used(), bucket.recount());
    for vb in 0..64 {
        assert_eq!(only_collections(vb), Some(true));
        assert_eq!(rows(&kept, vb).len(), 1, "the scope");
        assert_eq!(bucket.get(vb, "a"), None);
    }
    bucket.set(5, "b", b"2");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let bucket = warm(options(64, ROOMY), kept, 5000);
    assert_eq!((bucket.get(5, "a"), bucket.get(6, "a")), (None, None));
    assert_eq!(bucket.get(5, "b").unwrap(), b"2");
}

/// A wait that was added after the vBucket was emptied is not ended by that.
#[test]
fn a_wait_returns_the_history_whose_end_ends_it() {
    let bucket = warm(options(2, ROOMY), Kept::default(), 1);
    let old = bucket.with_vbucket(VbId(0), |vbucket| vbucket.failover_log().newest().uuid);
    let ear = Ear::new();
    let awaited = bucket.await_persisted(VbId(0), Seqno(9), ear.clone());
    assert_eq!(awaited, old);
    bucket.empty_vbuckets(&[VbId(0)], &mut uuids(500)).unwrap();
    assert_eq!((ear.rings(), bucket.persistence_waiters()), (1, 0));
    let awaited = bucket.await_persisted(VbId(0), Seqno(9), ear.clone());
    assert_eq!(awaited, Some(VbUuid(500)));
    assert_eq!((ear.rings(), bucket.persistence_waiters()), (1, 1));
    assert_eq!(bucket.await_persisted(VbId(7), Seqno(9), ear.clone()), None);
}

/// For each failing step of the store: later documents stay, and earlier ones are deleted.
#[test]
fn refused_emptying_is_done_later() {
    let kept = Kept::default();
    let bucket = warm(options(2, ROOMY), FaultyStore::new(kept.clone()), 1);
    bucket.set(0, "old", b"1");
    bucket.set(1, "old", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    bucket.store().fail_next(2, Fault::NoSpace);
    let error = bucket.empty_vbuckets(&[VbId(0), VbId(1)], &mut uuids(500));
    assert_eq!(error.unwrap_err().kind, ErrorKind::NoSpace);
    bucket.set(1, "new", b"2");
    assert!(matches!(bucket.flush_step(), Flushed::Retry(_)));
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let bucket = warm(options(2, ROOMY), kept, 50);
    assert_eq!((bucket.get(0, "old"), bucket.get(1, "old")), (None, None));
    assert_eq!(bucket.get(1, "new").unwrap(), b"2");
}

#[test]
fn flush_under_way_does_not_restore_a_deleted_vbucket() {
    let kept = Kept::default();
    let store = Gated::new(kept.clone());
    let bucket = warm(options(2, ROOMY), store, 1);
    bucket.set(0, "a", b"1");
    bucket.set(1, "a", b"1");
    bucket.store().shut();
    let flushing = Arc::clone(&bucket);
    let flush = std::thread::Builder::new()
        .spawn(move || flushing.flush_step())
        .unwrap();
    bucket.store().reached.listen();
    let deleting = Arc::clone(&bucket);
    let delete = std::thread::Builder::new()
        .spawn(move || deleting.delete_vbucket(VbId(1)))
        .unwrap();
    // Whether or not the deletion has begun, it must take effect after the commit.
    Ear::new().listen_for(std::time::Duration::from_millis(20));
    bucket.store().open();
    assert_eq!(flush.join().unwrap(), Flushed::Clean);
    assert!(delete.join().unwrap().unwrap());
    assert_eq!((rows(&kept, 0).len(), rows(&kept, 1).len()), (1, 0));
    let bucket = warm(options(2, ROOMY), kept, 50);
    assert_eq!(bucket.try_get(1, "a").unwrap_err(), OpError::NotMyVbucket);
}

#[test]
fn refused_deletion_is_done_later() {
    let kept = Kept::default();
    let bucket = warm(options(2, ROOMY), FaultyStore::new(kept.clone()), 1);
    bucket.set(0, "a", b"1");
    bucket.set(1, "a", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    bucket.store().fail_next(2, Fault::NoSpace);
    let error = bucket.delete_vbucket(VbId(1)).unwrap_err();
    assert_eq!(error.kind, ErrorKind::NoSpace);
    let counters = bucket.counters();
    let told = [&counters.vbuckets_deleted, &counters.vbucket_deletes_failed];
    assert_eq!(told.map(Counters::read), [0, 1]);
    assert_eq!(bucket.try_get(1, "a").unwrap_err(), OpError::NotMyVbucket);
    assert!(matches!(bucket.flush_step(), Flushed::Retry(_)));
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let bucket = warm(options(2, ROOMY), kept, 50);
    assert_eq!(bucket.try_get(1, "a").unwrap_err(), OpError::NotMyVbucket);
    assert_eq!(bucket.get(0, "a").unwrap(), b"1");
}

#[test]
fn refused_deletion_does_not_affect_the_next_vbucket() {
    let kept = Kept::default();
    let (bucket, workers) = running(options(1, ROOMY), FaultyStore::new(kept.clone()), 1);
    let ear = Ear::new();
    let seqno = bucket.set(0, "old", b"1");
    bucket.await_persisted(VbId(0), seqno, ear.clone());
    ear.listen();
    bucket.store().fail_next(1, Fault::NoSpace);
    bucket.delete_vbucket(VbId(0)).unwrap_err();
    let made = bucket.set_vbucket(VbId(0), VbState::Active, None, VbUuid(77));
    assert_eq!(made, Ok(()));
    bucket.set(0, "new", b"1");
    workers.stop().unwrap();
    let stored = rows(&kept, 0);
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].key(), b"\0new");
}

#[test]
fn states_are_counted_and_survive_restarts() {
    let kept = Kept::default();
    let bucket = warm(options(3, ROOMY), kept.clone(), 1);
    bucket.set(1, "a", b"1");
    let chain = Some("[[\"a\",null]]".to_owned());
    let set = |vb, state, topology| bucket.set_vbucket(VbId(vb), state, topology, VbUuid(90));
    assert_eq!(set(1, VbState::Replica, None), Ok(()));
    assert_eq!(bucket.try_get(1, "a").unwrap_err(), OpError::NotMyVbucket);
    assert_eq!(set(1, VbState::Active, chain), Ok(()));
    assert_eq!(bucket.get(1, "a").unwrap(), b"1");
    assert_eq!(set(2, VbState::Pending, None), Ok(()));
    assert_eq!(set(3, VbState::Active, None), Err(OpError::NotMyVbucket));
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(bucket.memory().used(), bucket.recount());
    let bucket = warm(options(3, ROOMY), kept, 50);
    let look = |vb| {
        let look = |vbucket: &mut engine::VBucket| {
            let log = vbucket.failover_log().entries().len();
            (vbucket.state(), vbucket.topology().to_owned(), log)
        };
        bucket.with_vbucket(VbId(vb), look).unwrap()
    };
    assert_eq!(look(1), (VbState::Active, "[[\"a\",null]]".into(), 2));
    assert_eq!(look(2).0, VbState::Pending);
    assert_eq!(
        bucket.try_get(2, "a").unwrap_err(),
        OpError::WouldBlockPending
    );
}

#[test]
fn document_with_many_waiters_is_read_once() {
    let bucket = warm(options(1, ROOMY), Kept::default(), 1);
    let large = vec![b'1'; 100_000];
    bucket.set(0, "a", &large);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    bucket.with_vbucket(VbId(0), |vbucket| {
        vbucket.evict(b"\0a", model::Now::default())
    });
    let Ok(Outcome::NeedsFetch(wanted)) = bucket.try_get(0, "a") else {
        panic!("it was evicted");
    };
    let ear = Ear::new();
    let fetch = || bucket.fetch(VbId(0), wanted.clone(), ear.clone());
    let fetches: Vec<_> = std::iter::repeat_with(fetch).take(50).collect();
    bucket.fetch_step();
    assert_eq!(ear.rings(), 50);
    assert_eq!(bucket.counters().fetched.load(Ordering::Relaxed), 1);
    let once = bucket.memory().transit();
    assert!(
        (100_000..200_000).contains(&once),
        "one row is held: {once} bytes"
    );
    for fetch in &fetches {
        restore(&bucket, 0, fetch);
    }
    assert_eq!(bucket.memory().transit(), 0);
    assert_eq!(bucket.get(0, "a").unwrap(), large);
}

/// Documents that may be large are read one at a time: none is counted before it is in memory.
#[test]
fn helpers_assist_the_fetcher_while_the_disk_is_slow() {
    for (has_large, at_once) in [(false, 2), (true, 1)] {
        let clock = Arc::new(HandClock::default());
        let store = Slow::new(has_large, Arc::clone(&clock));
        let bucket = Bucket::open(options(1, ROOMY), store, clock, &mut uuids(1)).unwrap();
        let ear = Ear::new();
        let warmed = Arc::clone(&ear);
        let workers = Workers::start(
            &Arc::new(bucket::Pool::new()),
            &bucket,
            uuids(1000),
            move || warmed.wake(),
        )
        .unwrap();
        ear.listen();
        let keys: Vec<String> = (0..20).map(|index| format!("key{index}")).collect();
        for key in &keys {
            bucket.set(0, key, b"1");
        }
        bucket.await_persisted(VbId(0), Seqno(20), ear.clone());
        ear.listen();
        let read = Ear::new();
        let mut fetches = Vec::new();
        for key in &keys {
            let evict =
                |vbucket: &mut engine::VBucket| vbucket.evict(&stored(key), model::Now::default());
            assert_eq!(bucket.with_vbucket(VbId(0), evict), Some(true));
            let Ok(Outcome::NeedsFetch(wanted)) = bucket.try_get(0, key) else {
                panic!("it was evicted");
            };
            fetches.push(bucket.fetch(VbId(0), wanted, read.clone()));
        }
        bucket.store().all_asked_for();
        while read.rings() < keys.len() {
            read.listen();
        }
        for fetch in &fetches {
            restore(&bucket, 0, fetch);
        }
        for key in &keys {
            assert_eq!(bucket.get(0, key).unwrap(), b"1");
        }
        let most = bucket.store().reads_at_once();
        assert!(most >= at_once && (most == 1) == has_large, "{most}");
        workers.stop().unwrap();
    }
}

#[test]
fn fetch_for_a_deleted_or_new_vbucket_wakes_its_waiter() {
    let bucket = warm(options(1, ROOMY), Kept::default(), 1);
    bucket.set(0, "a", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let evicted = bucket.with_vbucket(VbId(0), |vbucket| {
        vbucket.evict(b"\0a", model::Now::default())
    });
    assert_eq!(evicted, Some(true));
    let Ok(Outcome::NeedsFetch(wanted)) = bucket.try_get(0, "a") else {
        panic!("it was evicted");
    };
    let ear = Ear::new();
    let fetch = bucket.fetch(VbId(0), wanted.clone(), ear.clone());
    assert!(bucket.delete_vbucket(VbId(0)).unwrap());
    bucket.fetch_step();
    restore(&bucket, 0, &fetch);
    assert_eq!(ear.rings(), 1);
    assert_eq!(bucket.try_get(0, "a").unwrap_err(), OpError::NotMyVbucket);
    let fetch = bucket.fetch(VbId(0), wanted.clone(), ear.clone());
    let made = bucket.set_vbucket(VbId(0), VbState::Active, None, VbUuid(77));
    assert_eq!(made, Ok(()));
    bucket.set(0, "a", b"2");
    bucket.fetch_step();
    restore(&bucket, 0, &fetch);
    assert_eq!(
        (ear.rings(), bucket.get(0, "a").unwrap()),
        (2, b"2".to_vec())
    );
    assert_eq!(bucket.memory().used(), bucket.recount());
    // A wait that begins after that is woken as well.
    let fetch = bucket.fetch(VbId(5), wanted, ear.clone());
    bucket.fetch_step();
    restore(&bucket, 0, &fetch);
    assert_eq!(ear.rings(), 3);
}
