//! Large commits are finished beside the next one: nothing is told before its time, or lost.

use std::ops::Range;

use bucket::{Bucket, Counters, Flushed};
use model::{Seqno, VbId};
use storage::{KvStore, MemStore};

use crate::world::{Ear, Ops, ROOMY, disk, options, rows, running, warm};

const VBUCKETS: u16 = 16;
/// Of each vBucket: together more than the flusher finishes by itself.
const DOCUMENTS: u64 = 250;

fn fill<S: KvStore>(bucket: &Bucket<S>, vbuckets: Range<u16>, value: &[u8]) {
    for vb in vbuckets {
        for index in 0..DOCUMENTS {
            bucket.set(vb, &format!("k{index}"), value);
        }
    }
}

fn commits<S: KvStore>(bucket: &Bucket<S>) -> u64 {
    Counters::read(&bucket.counters().commits)
}

#[test]
fn what_is_left_to_the_finisher_is_in_the_store_and_told_later() {
    let bucket = warm(options(VBUCKETS, ROOMY), MemStore::new(), 1);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let leaves = bucket.leave_commits();
    fill(&bucket, 0..VBUCKETS, b"1");
    let ear = Ear::new();
    bucket.await_persisted(VbId(3), Seqno(DOCUMENTS), ear.clone());
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(rows(bucket.store(), 3).len() as u64, DOCUMENTS);
    assert_eq!((bucket.persisted(3), ear.rings()), (Seqno::ZERO, 0));
    // Its vBuckets give nothing meanwhile; what came is not forgotten.
    let before = commits(&bucket);
    bucket.set(3, "k0", b"2");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(commits(&bucket), before);
    assert!(bucket.finish_step());
    assert_eq!((bucket.persisted(3), ear.rings()), (Seqno(DOCUMENTS), 1));
    assert!(!bucket.finish_step(), "once");
    // A small one is finished at once.
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(commits(&bucket), before + 1);
    assert_eq!(bucket.persisted(3), Seqno(DOCUMENTS + 1));
    assert!(!bucket.any_dirty());
    drop(leaves);
    fill(&bucket, 0..VBUCKETS, b"3");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert!(!bucket.any_dirty(), "nobody else finishes it");
}

#[test]
fn what_comes_while_one_waits_is_finished_by_the_flusher() {
    let bucket = warm(options(2 * VBUCKETS, ROOMY), MemStore::new(), 1);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let _leaves = bucket.leave_commits();
    fill(&bucket, 0..VBUCKETS, b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    fill(&bucket, VBUCKETS..2 * VBUCKETS, b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(bucket.persisted(0), Seqno::ZERO);
    assert_eq!(bucket.persisted(VBUCKETS), Seqno(DOCUMENTS));
    assert!(bucket.finish_step());
    assert_eq!(bucket.persisted(0), Seqno(DOCUMENTS));
    assert!(!bucket.any_dirty());
}

#[test]
fn a_vbucket_goes_and_rolls_back_after_what_is_on_its_way() {
    let bucket = warm(options(VBUCKETS, ROOMY), MemStore::new(), 1);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let _leaves = bucket.leave_commits();
    fill(&bucket, 0..VBUCKETS, b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    std::thread::scope(|scope| {
        let gone = scope.spawn(|| bucket.delete_vbucket(VbId(3)));
        assert!(bucket.finish_step());
        assert!(gone.join().unwrap().unwrap());
    });
    assert!(rows(bucket.store(), 3).is_empty());
    fill(&bucket, 4..VBUCKETS, b"2");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    std::thread::scope(|scope| {
        let back = scope.spawn(|| bucket.roll_back(VbId(4), Seqno(DOCUMENTS)));
        assert!(bucket.finish_step());
        let at = back.join().unwrap().unwrap();
        assert!(at <= Seqno(DOCUMENTS), "{at:?}");
    });
    assert_eq!(bucket.persisted(5), Seqno(2 * DOCUMENTS));
    assert!(bucket.persisted(4) <= Seqno(DOCUMENTS));
}

#[test]
fn a_stop_waits_for_what_is_left_to_the_finisher() {
    let folder = tempfile::tempdir().unwrap();
    for round in 1..=5 {
        let (store, clean) = disk(folder.path());
        let (bucket, workers) = running(
            bucket::BucketOptions {
                clean,
                ..options(VBUCKETS, ROOMY)
            },
            store,
            round * 1000,
        );
        assert!(clean, "round {round}");
        for _ in 0..5 {
            fill(&bucket, 0..VBUCKETS, &round.to_be_bytes());
        }
        workers.stop().unwrap();
        assert!(!bucket.any_dirty());
        for vb in 0..VBUCKETS {
            assert_eq!(bucket.persisted(vb), Seqno(5 * DOCUMENTS * round));
        }
    }
}
