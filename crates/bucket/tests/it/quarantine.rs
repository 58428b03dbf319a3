//! A damaged row affects only its vBucket, and that is not changed.

use std::sync::Arc;
use std::sync::mpsc::channel;

use bucket::{CompactionRules, Flushed, WarmupStage};
use engine::{OpError, Outcome};
use model::{Seqno, VbId, VbState, VbUuid};
use storage::KvStore;

use crate::full_eviction::whole;
use crate::world::{FaultyStore, Kept, Ops, ROOMY, cold, options, rows, uuids, warm};

const DAMAGED: VbId = VbId(1);

/// Creates a store with a document in each of four vBuckets, and a wrapper in which one of them is damaged.
fn damaged() -> (Kept, FaultyStore<Kept>) {
    let kept = Kept::default();
    let bucket = warm(options(4, ROOMY), kept.clone(), 1);
    for vb in 0..4 {
        bucket.set(vb, "key", b"value");
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let store = FaultyStore::new(kept.clone());
    store.damage(DAMAGED);
    (kept, store)
}

#[test]
fn damaged_vbucket_is_not_served_and_others_are() {
    let (_, store) = damaged();
    let bucket = warm(options(4, ROOMY), store, 50);
    assert_eq!(bucket.warmup().stage(), WarmupStage::Done);
    let all = bucket.all_quarantined();
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].0, DAMAGED);
    assert!(
        all[0].1.reason.contains("row behind seqno"),
        "{:?}",
        all[0].1
    );
    for vb in [0, 2, 3] {
        assert_eq!(bucket.get(vb, "key").as_deref(), Some(b"value".as_slice()));
        bucket.set(vb, "key", b"another");
    }
    assert_eq!(bucket.try_set(1, "key", b"x"), Err(OpError::NotMyVbucket));
    assert!(bucket.try_get(1, "key").is_err());
    let active = bucket.set_vbucket(DAMAGED, VbState::Active, None, VbUuid(9));
    assert_eq!(active, Err(OpError::NotMyVbucket), "it would be a new one");
    assert_eq!(bucket.memory().used(), bucket.recount());
}

/// A node takes part in its cluster meanwhile, with the copies that it finds.
#[test]
fn damaged_vbucket_is_found_while_its_damage_is_located() {
    let (_, store) = damaged();
    let bucket = cold(options(4, ROOMY), store, 50);
    let (other, (told, found)) = (Arc::clone(&bucket), channel());
    *bucket.store().on_locate.lock() = Some(Box::new(move || {
        let is_there = other.with_vbucket(DAMAGED, |_| ()).is_some();
        told.send(is_there || other.quarantined(DAMAGED).is_some())
            .unwrap();
    }));
    bucket.warm_up(&mut uuids(60));
    assert_eq!(found.try_recv(), Ok(true));
    assert!(bucket.quarantined(DAMAGED).is_some());
}

#[test]
fn damaged_vbucket_is_not_changed() {
    let (kept, store) = damaged();
    let bucket = warm(options(4, ROOMY), store, 50);
    bucket.set(0, "new", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert!(bucket.compact(DAMAGED, CompactionRules::default()).is_err());
    assert!(bucket.trim_history(DAMAGED, None).is_err());
    assert_eq!(bucket.erase_step(), None);
    drop(bucket);
    let rows = rows(&kept, DAMAGED.0);
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].value(), b"value");
    let loaded = kept.load().unwrap();
    assert_eq!(loaded[&VbId(1)].high_seqno, Seqno(1));
    assert_eq!(loaded[&VbId(1)].state, VbState::Active);
}

#[test]
fn damaged_replica_begins_anew() {
    let (kept, store) = damaged();
    let bucket = cold(options(4, ROOMY), store, 50);
    bucket.become_replica(true, VbUuid(7)).unwrap();
    bucket.warm_up(&mut uuids(60));
    assert_eq!(bucket.damaged(), [DAMAGED]);
    assert!(bucket.replica_position(DAMAGED).is_none());
    assert!(bucket.renew_replica(DAMAGED, VbUuid(9)).unwrap());
    assert!(bucket.damaged().is_empty());
    let position = bucket.replica_position(DAMAGED).unwrap();
    assert_eq!(position.high, Seqno::ZERO);
    assert!(rows(&kept, DAMAGED.0).is_empty());
    assert_eq!(bucket.memory().used(), bucket.recount());
}

#[test]
fn replica_with_a_damaged_read_begins_anew_and_an_active_one_does_not() {
    let (kept, _) = damaged();
    let bucket = warm(whole(4, ROOMY), FaultyStore::new(kept.clone()), 50);
    bucket.store().damage(DAMAGED);
    let Ok(Outcome::NeedsFetch(wanted)) = bucket.try_get(DAMAGED.0, "key") else {
        panic!("it is in the store alone");
    };
    assert!(!bucket.fetch_now(DAMAGED, &wanted));
    assert_eq!(bucket.damaged(), [DAMAGED]);
    assert!(bucket.is_damaged(DAMAGED));
    assert!(!bucket.renew_replica(DAMAGED, VbUuid(9)).unwrap());
    let replica = bucket.set_vbucket(DAMAGED, VbState::Replica, None, VbUuid(9));
    replica.unwrap();
    assert!(bucket.renew_replica(DAMAGED, VbUuid(9)).unwrap());
    assert!(bucket.damaged().is_empty());
    assert_eq!(bucket.replica_position(DAMAGED).unwrap().high, Seqno::ZERO);
    assert!(rows(&kept, DAMAGED.0).is_empty());
}

#[test]
fn damaged_vbucket_leaves_quarantine_when_deleted() {
    let (kept, store) = damaged();
    let bucket = warm(options(4, ROOMY), store, 50);
    let known = bucket.quarantined(DAMAGED).unwrap();
    assert_eq!(known.term(), 0);
    assert!(bucket.delete_vbucket(DAMAGED).unwrap());
    assert!(bucket.quarantined(DAMAGED).is_none());
    assert!(!bucket.delete_vbucket(DAMAGED).unwrap(), "it is gone");
    bucket
        .set_vbucket(DAMAGED, VbState::Active, None, VbUuid(9))
        .unwrap();
    assert_eq!(bucket.set(1, "key", b"new"), Seqno(1));
    assert!(rows(&kept, DAMAGED.0).is_empty());
}
