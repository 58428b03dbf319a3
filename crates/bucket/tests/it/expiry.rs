//! Expired documents that no client reads.

use std::time::Duration;

use bucket::{Bucket, Counters, Flushed, HOLDS, Hold};
use engine::{MemoryDelta, OpError, Outbox, Outcome, StoreMode, VBucket, Write};
use model::{Cas, Draft, Kind, Meta, VbId, VbState, VbUuid};
use storage::{KvStore, MemStore};

use crate::world::{Ear, Ops, PATIENCE, ROOMY, options, rows, running, warm};

pub(crate) fn set_until(bucket: &Bucket<impl KvStore>, vb: u16, key: &str, expiry: u32) {
    let meta = Meta {
        expiry,
        ..Meta::default()
    };
    let mut write = Write {
        mode: StoreMode::Set,
        draft: Some(Draft::new(&crate::world::stored(key), b"v", &meta)),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
    };
    let now = bucket.clock().now();
    let stored = bucket.run(VbId(vb), |vbucket| vbucket.store(&mut write, now));
    assert!(stored.is_ok());
}

#[test]
fn expiry_pass_makes_tombstones_in_active_vbuckets_only() {
    let bucket = warm(options(3, ROOMY), MemStore::new(), 1);
    let soon = bucket.clock().now().unix_s() + 100;
    for index in 0..1000 {
        set_until(&bucket, index % 2, &format!("gone{index}"), 1);
        set_until(&bucket, index % 2, &format!("stays{index}"), soon + 3600);
    }
    bucket
        .set_vbucket(VbId(1), VbState::Replica, None, VbUuid(9))
        .unwrap();
    assert_eq!(bucket.expiry_step(), 500);
    assert_eq!(bucket.expiry_step(), 0);
    assert_eq!(Counters::read(&bucket.counters().expired), 500);
    assert_eq!(Counters::read(&bucket.counters().expiry_passes), 2);
    assert!(bucket.holds().count(Hold::Expire) > 6, "in small pieces");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let expired = |vb| {
        let rows = rows(bucket.store(), vb);
        let count = |kind| rows.iter().filter(|row| row.kind() == kind).count();
        (count(Kind::Expiration), count(Kind::Mutation))
    };
    assert_eq!((expired(0), expired(1)), ((500, 500), (0, 1000)));
    let gone = bucket.try_get(0, "gone0");
    assert!(matches!(gone, Err(OpError::KeyNotFound)));
}

/// A read of an existing document delivers nothing. A read of an expired one does: the flusher must
/// write the tombstone, and the memory is counted.
#[test]
fn read_of_an_expired_document_delivers_its_effects() {
    let bucket = warm(options(1, ROOMY), MemStore::new(), 1);
    set_until(&bucket, 0, "gone", 1);
    bucket.set(0, "stays", b"v");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let now = bucket.clock().now();
    let read = |key: &str| {
        let key = crate::world::stored(key);
        let read = bucket.read(VbId(0), now.mono_ns, |vbucket| vbucket.get(&key, now));
        read.map(|found| matches!(found, Outcome::Done(_)))
    };
    let used = bucket.memory().used();
    assert_eq!(read("stays"), Ok(true));
    assert!(!bucket.any_dirty());
    assert_eq!(bucket.memory().used(), used);
    let left = |vbucket: &mut VBucket| (vbucket.take_outbox(), vbucket.take_memory_delta());
    let nothing = (Outbox::default(), MemoryDelta::default());
    assert_eq!(bucket.with_vbucket(VbId(0), left), Some(nothing));
    assert_eq!(read("gone"), Err(OpError::KeyNotFound));
    assert!(bucket.any_dirty());
    assert_ne!(
        bucket.memory().used(),
        used,
        "a tombstone is smaller, a change is more"
    );
    assert_eq!(read("never"), Err(OpError::KeyNotFound));
}

#[test]
fn holds_are_recorded_by_reason() {
    let bucket = warm(options(2, ROOMY), MemStore::new(), 1);
    bucket.set(0, "k", b"v");
    let before = HOLDS.map(|hold| bucket.holds().count(hold));
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    bucket.expiry_step();
    let after = HOLDS.map(|hold| bucket.holds().count(hold));
    for (index, hold) in HOLDS.into_iter().enumerate() {
        let expected = matches!(hold, Hold::Flush | Hold::Expire);
        assert_eq!(after[index] > before[index], expected, "{hold:?}");
    }
    assert!(bucket.holds().quantile_ns(Hold::Flush, 1000) > 0);
}

#[test]
fn interval_of_passes_can_be_changed_while_the_bucket_runs() {
    let (bucket, workers) = running(options(2, ROOMY), MemStore::new(), 1);
    let passes = || Counters::read(&bucket.counters().expiry_passes);
    assert!(!bucket.expires());
    bucket.set_expires(true);
    assert!(!bucket.expires(), "there is no time between them yet");
    bucket.set_expiry_pass_s(1);
    assert!(bucket.expires());
    let ear = Ear::new();
    let mut looks = 0;
    while passes() == 0 {
        looks += 1;
        assert!(looks < PATIENCE.as_millis(), "no pass");
        ear.listen_for(Duration::from_millis(1));
    }
    workers.stop().unwrap();
}
