//! Buckets without another copy of their documents, when they are full.

use bucket::{BucketOptions, Counters, Eviction, Flushed, Purpose};
use engine::OpError;
use model::{Kind, VbId, VbState, VbUuid};
use storage::MemStore;

use crate::world::{Ops, options, rows, warm};

fn deleting() -> BucketOptions {
    BucketOptions {
        eviction: Eviction::Delete,
        ..options(2, 4 << 20)
    }
}

#[test]
fn full_bucket_deletes_no_documents_of_a_sealed_vbucket() {
    let bucket = warm(deleting(), MemStore::new(), 1);
    for index in 0.. {
        if bucket.memory().is_pressed() {
            break;
        }
        bucket.set(0, &format!("k{index}"), &[7; 950]);
    }
    bucket.seal(VbId(0));
    for _ in 0..8 {
        bucket.relieve_step();
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
    assert_eq!(Counters::read(&bucket.counters().auto_deleted), 0);
}

#[test]
fn full_bucket_deletes_least_used_documents_of_active_vbuckets() {
    let bucket = warm(deleting(), MemStore::new(), 1);
    bucket
        .set_vbucket(VbId(1), VbState::Active, None, VbUuid(3))
        .unwrap();
    for index in 0..300 {
        bucket.set(1, &format!("replica{index}"), &[7; 950]);
    }
    bucket
        .set_vbucket(VbId(1), VbState::Replica, None, VbUuid(3))
        .unwrap();
    let mut written = 0;
    while !bucket.memory().is_pressed() {
        bucket.set(0, &format!("k{written}"), &[7; 950]);
        written += 1;
    }
    // Documents that are read repeatedly stay.
    for _ in 0..2 {
        for index in 0..100 {
            bucket.get(0, &format!("k{index}")).unwrap();
        }
    }
    for _ in 0..8 {
        bucket.relieve_step();
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
    assert!(!bucket.memory().is_pressed(), "{:?}", bucket.memory());
    let deleted = Counters::read(&bucket.counters().auto_deleted);
    assert!(
        (1..written - 100).contains(&deleted),
        "{deleted} of {written}"
    );
    for index in 0..100 {
        assert!(
            bucket.get(0, &format!("k{index}")).is_some(),
            "k{index} is hot"
        );
    }
    // A deletion is a change like any other: streams and replicas see it.
    let gone = rows(bucket.store(), 0);
    let gone = gone.iter().filter(|row| row.kind() == Kind::Deletion);
    assert_eq!(gone.count() as u64, deleted);
    let replica = bucket.with_vbucket(VbId(1), |vbucket| vbucket.stats());
    assert_eq!(
        replica.unwrap().items,
        300,
        "a replica deletes nothing by itself"
    );
    assert_eq!(bucket.memory().used(), bucket.recount());
    bucket.set(0, "more", &[7; 950]);
}

#[test]
fn full_bucket_without_eviction_refuses_writes() {
    let mut keeps = deleting();
    keeps.eviction = Eviction::None;
    let bucket = warm(keeps, MemStore::new(), 1);
    let mut written = 0;
    while bucket.try_set(0, &format!("k{written}"), &[7; 950]).is_ok() {
        written += 1;
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let mut refusal = bucket.admit(Purpose::Write, 1 << 10);
    while refusal.is_ok() {
        bucket.set(0, &format!("k{written}"), &[7; 950]);
        written += 1;
        refusal = bucket.admit(Purpose::Write, 1 << 10);
    }
    assert_eq!(
        refusal.map_err(OpError::from),
        Err(OpError::TemporaryFailure)
    );
    assert!(!bucket.relieve_step());
    let items = bucket.with_vbucket(VbId(0), |vbucket| vbucket.items());
    assert_eq!(items, Some(written));
    assert_eq!(Counters::read(&bucket.counters().auto_deleted), 0);
}
