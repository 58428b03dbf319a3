//! Purging: old tombstones leave store and memory, and nothing else does.

use std::sync::Arc;
use std::time::Duration;

use bucket::{Bucket, BucketOptions, CompactionRules, CompactionTicket, Counters, Flushed, Wake};
use collections::{CollectionSettings, Manifest};
use model::{Kind, Seqno, VbId};
use storage::{KvStore, MemStore};

use crate::expiry::set_until;
use crate::full_eviction::{evict_all, make_few, set_in, whole};
use crate::world::{
    Ear, Fault, FaultyStore, Ops, PATIENCE, ROOMY, disk, options, rows, running, warm,
};

/// Far in the future of the tests' clock.
const LATER_S: u64 = 1_700_000_000 + 3600;

/// Writes and flushes `k0` to `k99`, then deletes the even ones and flushes.
fn half_deleted(bucket: &Bucket<impl KvStore>) {
    for number in 0..100 {
        bucket.set(0, &format!("k{number}"), b"v");
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    for number in (0..100).step_by(2) {
        bucket.try_delete(0, &format!("k{number}")).unwrap();
    }
    bucket.set(0, "last", b"v");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
}

fn tombstones(bucket: &Bucket<impl KvStore>) -> (u64, usize) {
    let in_memory = bucket.with_vbucket(VbId(0), |vbucket| vbucket.stats().tombstones);
    let rows = rows(bucket.store(), 0);
    let in_store = rows.iter().filter(|row| row.kind() == Kind::Deletion);
    (in_memory.unwrap(), in_store.count())
}

#[test]
fn old_tombstones_leave_store_and_memory_and_young_ones_stay() {
    let dir = tempfile::tempdir().unwrap();
    let purged_to = {
        let bucket = warm(options(1, ROOMY), disk(dir.path()).0, 1);
        half_deleted(&bucket);
        let done = bucket.purge(VbId(0), 1_700_000_000).unwrap();
        assert_eq!((done.dropped, done.kept), (0, 101));
        assert_eq!(tombstones(&bucket), (50, 50));

        let done = bucket.purge(VbId(0), LATER_S).unwrap();
        assert_eq!((done.dropped, done.kept), (50, 51));
        assert_eq!(tombstones(&bucket), (0, 0));
        assert_eq!(Counters::read(&bucket.compaction().rows_purged), 50);
        assert_eq!(Counters::read(&bucket.compaction().running), 0);
        let purged = bucket.with_vbucket(VbId(0), |vbucket| vbucket.purge_seqno());
        assert_eq!(purged, Some(done.purge_seqno));
        assert_eq!(done.purge_seqno, Seqno(150), "the last tombstone");
        // A purged key is like a new one, except for its revision.
        bucket.set(0, "k0", b"again");
        assert_eq!(bucket.flush_step(), Flushed::Clean);
        bucket.store().close().unwrap();
        done.purge_seqno
    };
    let bucket = warm(options(1, ROOMY), disk(dir.path()).0, 1);
    assert_eq!(rows(bucket.store(), 0).len(), 52);
    assert_eq!(bucket.get(0, "k0"), Some(b"again".to_vec()));
    assert_eq!(bucket.get(0, "k1"), Some(b"v".to_vec()));
    assert_eq!(bucket.get(0, "k2"), None);
    let purged = bucket.with_vbucket(VbId(0), |vbucket| vbucket.purge_seqno());
    assert_eq!(purged, Some(purged_to), "it outlives a restart");
}

/// The newest row of a vBucket carries its high seqno, so it stays even as an old tombstone.
#[test]
fn newest_row_is_never_purged() {
    let bucket = warm(options(1, ROOMY), MemStore::new(), 1);
    bucket.set(0, "a", b"v");
    bucket.try_delete(0, "a").unwrap();
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(bucket.purge(VbId(0), LATER_S).unwrap().dropped, 0);
    assert_eq!(tombstones(&bucket), (1, 1));
}

/// Snapshots end at the newest row of the default collection for clients that do not know others.
#[test]
fn newest_row_of_the_default_collection_is_never_purged() {
    let bucket = warm(options(1, ROOMY), MemStore::new(), 1);
    bucket.set(0, "a", b"v");
    bucket.try_delete(0, "a").unwrap();
    set_in(&bucket, make_few(&bucket), b"k");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let purged = || bucket.purge(VbId(0), LATER_S).unwrap().dropped;
    assert_eq!(purged(), 0);
    bucket.set(0, "b", b"v");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(purged(), 1);
}

/// A replica that is filled from the store learns from the end event which rows are dead.
#[test]
fn end_event_stays_until_rows_of_its_collection_are_erased() {
    let bucket = warm(options(1, ROOMY), MemStore::new(), 1);
    set_in(&bucket, make_few(&bucket), b"k");
    let without = |now: &Manifest| now.without_collection("_default", "few");
    bucket.change_manifest(without, |_| Vec::new()).unwrap();
    bucket.set(0, "last", b"v");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let purged = || bucket.purge(VbId(0), LATER_S).unwrap().dropped;
    assert_eq!(purged(), 0);
    assert_eq!(bucket.erase_step(), None);
    assert_eq!(purged(), 1);
    assert_eq!(rows(bucket.store(), 0).len(), 1);
}

/// Nothing else in the vBucket makes a pass due.
#[test]
fn end_events_of_dropped_collections_are_purged_in_time() {
    let aged = BucketOptions {
        purge_age_s: 0,
        ..options(1, ROOMY)
    };
    let (bucket, workers) = running(aged, MemStore::new(), 1);
    let with = |now: &Manifest| now.with_collection("_default", "c", CollectionSettings::default());
    bucket.change_manifest(with, |_| Vec::new()).unwrap();
    let without = |now: &Manifest| now.without_collection("_default", "c");
    bucket.change_manifest(without, |_| Vec::new()).unwrap();
    bucket.set(0, "last", b"v");
    let ended_ns = bucket.clock().mono_ns();
    while bucket.clock().mono_ns() < ended_ns + 2_000_000_000 {}
    let (pause, mut pauses) = (Duration::from_millis(1), 0);
    while bucket.any_dirty() || rows(bucket.store(), 0).len() > 1 {
        assert!(pause * pauses < PATIENCE, "{:?}", rows(bucket.store(), 0));
        Ear::new().listen_for(pause);
        pauses += 1;
    }
    let left = bucket.with_vbucket(VbId(0), |vbucket| vbucket.purgeable_ends());
    assert_eq!(left, Some(0));
    workers.stop().unwrap();
}

/// A deleted key is written again, and not flushed yet, when its tombstone is purged.
#[test]
fn rewritten_key_has_one_row_after_a_purge() {
    let bucket = warm(options(1, ROOMY), MemStore::new(), 1);
    half_deleted(&bucket);
    bucket.set(0, "k4", b"back");
    assert_eq!(bucket.purge(VbId(0), LATER_S).unwrap().dropped, 50);
    assert_eq!(bucket.get(0, "k4"), Some(b"back".to_vec()));
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let rows = rows(bucket.store(), 0);
    let of_key = rows.iter().filter(|row| row.key() == b"\0k4");
    assert_eq!(of_key.count(), 1);
    assert_eq!(rows.len(), 52);
}

#[test]
fn failed_commit_during_a_compaction_loses_nothing() {
    let bucket = warm(options(1, ROOMY), FaultyStore::new(MemStore::new()), 1);
    half_deleted(&bucket);
    let next = bucket.store().commits();
    bucket.store().fail_commits(next..next + 1, Fault::NoSpace);
    bucket.set(0, "k6", b"back");
    assert!(matches!(bucket.flush_step(), Flushed::Retry(_)));
    assert_eq!(bucket.purge(VbId(0), LATER_S).unwrap().dropped, 50);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(rows(bucket.store(), 0).len(), 52);
    assert_eq!(tombstones(&bucket), (0, 0));
}

#[test]
fn expired_row_of_a_sealed_vbucket_stays() {
    let bucket = warm(whole(1, ROOMY), MemStore::new(), 1);
    set_until(&bucket, 0, "gone", 1);
    bucket.set(0, "stays", b"v");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    evict_all(&bucket);
    bucket.seal(VbId(0));
    bucket.compact(VbId(0), CompactionRules::default()).unwrap();
    assert_eq!(Counters::read(&bucket.compaction().expired), 0);
}

/// Expired documents whose keys left memory are found only by reading their rows.
#[test]
fn expired_row_on_disk_expires_through_its_vbucket() {
    let bucket = warm(whole(1, ROOMY), MemStore::new(), 1);
    let soon = bucket.clock().now().unix_s() + 100;
    for number in 0..20 {
        set_until(&bucket, 0, &format!("gone{number}"), 1);
        set_until(&bucket, 0, &format!("stays{number}"), soon + 3600);
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    evict_all(&bucket);
    assert_eq!(bucket.expiry_step(), 0, "they are not in memory");
    let done = bucket.compact(VbId(0), CompactionRules::default()).unwrap();
    assert_eq!((done.dropped, done.kept), (0, 40));
    assert_eq!(Counters::read(&bucket.compaction().expired), 20);
    assert_eq!(
        Counters::read(&bucket.compaction().rows_read),
        39,
        "all but the newest"
    );
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let rows = rows(bucket.store(), 0);
    let count = |kind| rows.iter().filter(|row| row.kind() == kind).count();
    assert_eq!((count(Kind::Expiration), count(Kind::Mutation)), (20, 20));
    let again = bucket.compact(VbId(0), CompactionRules::default());
    assert_eq!(again.unwrap().kept, 40);
    assert_eq!(Counters::read(&bucket.compaction().expired), 20, "once");
}

#[test]
fn rules_select_the_tombstones_to_purge() {
    let bucket = warm(options(1, ROOMY), MemStore::new(), 1);
    half_deleted(&bucket);
    let compact = |rules| bucket.compact(VbId(0), rules).unwrap().dropped;
    let rules = CompactionRules::default();
    assert_eq!(compact(rules), 0, "none is old enough");
    let some = CompactionRules {
        before_s: LATER_S,
        up_to: Seqno(110),
        ..rules
    };
    assert_eq!(compact(some), 10, "those of seqnos 101 to 110");
    let all = CompactionRules {
        drop_deletes: true,
        ..rules
    };
    assert_eq!(
        compact(CompactionRules {
            up_to: Seqno(120),
            ..all
        }),
        10
    );
    assert_eq!(compact(all), 30);
    assert_eq!(tombstones(&bucket), (0, 0));
}

#[test]
fn requester_of_a_compaction_is_woken_at_its_end() {
    let store = FaultyStore::new(MemStore::new());
    let (bucket, workers) = running(options(1, ROOMY), store, 1);
    let ask = |asked_ns| {
        let ear = Ear::new();
        let ticket = CompactionTicket {
            vb: VbId(0),
            asked_ns,
            wake: Arc::clone(&ear) as Arc<dyn Wake>,
        };
        assert!(bucket.ask_compaction(ticket.clone(), CompactionRules::default()));
        ear.listen();
        ticket
    };
    let first = ask(7);
    let other = CompactionTicket {
        asked_ns: 8,
        ..first.clone()
    };
    assert_eq!(
        bucket.compaction_result(&other),
        None,
        "nobody asked for that"
    );
    assert_eq!(bucket.compaction_result(&first), Some(true));
    assert_eq!(bucket.compaction_result(&first), None, "told once");
    assert_eq!(bucket.compactions_waiting(), 0);
    workers.stop().unwrap();
}
