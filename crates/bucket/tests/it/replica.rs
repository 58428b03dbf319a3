//! Replica vBuckets: changes, rollback, promotion.

use bucket::{Bucket, Counters, Flushed};
use collections::{CollectionChange, SystemEvent};
use engine::{OpError, ReplicaError, SnapshotMarker};
use model::{
    Cas, Document, DurabilityLevel, FailoverEntry, FailoverLog, Kind, ManifestUid, Meta, ScopeId,
    Seqno, SnapshotRange, VbId, VbState, VbUuid,
};
use storage::{KvStore, MemStore};

use crate::world::{FaultyStore, Ops, ROOMY, cold, disk, options, rows, uuids, warm};

const VB: VbId = VbId(0);

fn marker(start: u64, end: u64) -> SnapshotMarker {
    SnapshotMarker {
        start: Seqno(start),
        end: Seqno(end),
        checkpoint: true,
        ..SnapshotMarker::default()
    }
}

fn change(key: &str, seqno: u64, kind: Kind) -> Document {
    let meta = Meta {
        cas: Cas(1000 + seqno),
        seqno: Seqno(seqno),
        rev: 1,
        kind,
        ..Meta::default()
    };
    let value: &[u8] = if kind == Kind::Mutation { b"v" } else { b"" };
    Document::from_parts(&crate::world::stored(key), value, &meta)
}

fn log(entries: &[(u64, u64)]) -> FailoverLog {
    let entry = |&(uuid, seqno): &(u64, u64)| FailoverEntry {
        uuid: VbUuid(uuid),
        seqno: Seqno(seqno),
    };
    FailoverLog::from_entries(entries.iter().map(entry).collect()).unwrap()
}

fn replica<S: KvStore>(store: S) -> std::sync::Arc<Bucket<S>> {
    let bucket = cold(options(1, ROOMY), store, 1);
    bucket.become_replica(false, VbUuid(99)).unwrap();
    bucket.warm_up(&mut uuids(10_000));
    assert!(bucket.adopt_history(VB, log(&[(7, 5), (6, 0)])));
    bucket
}

fn take<S: KvStore>(bucket: &Bucket<S>, changes: &[(&str, u64)]) {
    for (key, seqno) in changes {
        let document = change(key, *seqno, Kind::Mutation);
        bucket.replica_change(VB, &document).unwrap();
    }
}

fn high<S: KvStore>(bucket: &Bucket<S>) -> Seqno {
    bucket.replica_position(VB).unwrap().high
}

fn seen<S: KvStore>(bucket: &Bucket<S>, key: &str) -> bool {
    let now = bucket.clock().now();
    match bucket.run(VB, |vbucket| {
        vbucket.get_replica(&crate::world::stored(key), false, now)
    }) {
        Ok(_) => true,
        Err(OpError::KeyNotFound) => false,
        Err(error) => panic!("{key}: {error}"),
    }
}

#[test]
fn bucket_with_own_changes_follows_only_with_demote() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = warm(options(2, ROOMY), disk(dir.path()).0, 1);
    bucket.set(1, "own", b"1");
    assert_eq!(bucket.become_replica(false, VbUuid(9)), Err(1));
    let state = |vb| bucket.with_vbucket(VbId(vb), |vbucket| vbucket.state());
    assert_eq!(state(0), Some(VbState::Active), "nothing is changed");
    assert_eq!(bucket.become_replica(true, VbUuid(9)), Ok(()));
    assert_eq!(
        (state(0), state(1)),
        (Some(VbState::Replica), Some(VbState::Replica))
    );
    assert_eq!(bucket.try_set(1, "own", b"2"), Err(OpError::NotMyVbucket));
    assert_eq!(
        bucket.become_replica(false, VbUuid(9)),
        Ok(()),
        "it follows already"
    );
}

fn goes_back<S: KvStore>(store: S) {
    let bucket = replica(store);
    bucket.replica_marker(VB, &marker(1, 3)).unwrap();
    take(&bucket, &[("a", 1), ("b", 2), ("c", 3)]);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    bucket.replica_marker(VB, &marker(4, 6)).unwrap();
    take(&bucket, &[("d", 4), ("e", 6)]);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    bucket.replica_marker(VB, &marker(7, 9)).unwrap();
    take(&bucket, &[("f", 7)]);
    let within = SnapshotRange {
        start: Seqno(6),
        end: Seqno(9),
    };
    assert_eq!(bucket.replica_position(VB).unwrap().snapshot, within);

    assert_eq!(bucket.roll_back(VB, Seqno(3)).unwrap(), Seqno(3));
    let at = bucket.replica_position(VB).unwrap();
    assert_eq!(
        (at.high, at.snapshot.start, at.snapshot.end),
        (Seqno(3), Seqno(3), Seqno(3))
    );
    assert_eq!(
        at.failover_log,
        log(&[(6, 0)]),
        "what began later never was"
    );
    let keys = ["a", "b", "c", "d", "e", "f"].map(|key| seen(&bucket, key));
    assert_eq!(keys, [true, true, true, false, false, false]);
    assert_eq!(bucket.memory().used(), bucket.recount());

    bucket.replica_marker(VB, &marker(4, 4)).unwrap();
    take(&bucket, &[("g", 4)]);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let stored: Vec<_> = rows(bucket.store(), 0)
        .iter()
        .map(Document::seqno)
        .collect();
    assert_eq!(stored, [1, 2, 3, 4].map(Seqno));
    assert_eq!(bucket.roll_back(VB, Seqno(0)).unwrap(), Seqno(0));
    assert!(!seen(&bucket, "a"));
    assert_eq!(rows(bucket.store(), 0).len(), 0);
    let counters = bucket.counters();
    let told = [&counters.rollbacks, &counters.rolled_back].map(Counters::read);
    assert_eq!(told, [2, 4 + 4], "from 7 to 3, and from 4 to 0");
}

#[test]
fn replica_rolls_back_on_disk() {
    let dir = tempfile::tempdir().unwrap();
    goes_back(disk(dir.path()).0);
}

#[test]
fn replica_rolls_back_in_memory() {
    goes_back(MemStore::new());
}

#[test]
fn events_of_collections_do_not_count_as_drift() {
    let bucket = replica(MemStore::new());
    let counted = || bucket.with_vbucket(VB, |vbucket| vbucket.stats().drift_count);
    let event = SystemEvent {
        manifest: ManifestUid(1),
        change: CollectionChange::ScopeBegun {
            scope: ScopeId(8),
            name: "s",
        },
    };
    let meta = Meta {
        seqno: Seqno(1),
        kind: event.kind(),
        ..Meta::default()
    };
    let document = Document::from_parts(&event.key(), &event.value(), &meta);
    bucket.replica_marker(VB, &marker(1, 2)).unwrap();
    bucket.replica_change(VB, &document).unwrap();
    assert_eq!(counted(), Some(0));
    take(&bucket, &[("a", 2)]);
    assert_eq!(counted(), Some(1));
}

#[test]
fn damage_that_a_rollback_meets_is_reported() {
    let bucket = replica(FaultyStore::new(MemStore::new()));
    bucket.replica_marker(VB, &marker(1, 1)).unwrap();
    take(&bucket, &[("a", 1)]);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert!(!bucket.rollback_loses(VB, Seqno(1)).unwrap());
    bucket.store().damage(VB);
    assert!(!bucket.is_damaged(VB));
    assert!(bucket.rollback_loses(VB, Seqno(1)).is_ok_and(|loses| loses));
    assert!(bucket.is_damaged(VB), "it is to be made anew");
}

#[test]
fn a_rollback_keeps_counting_the_prepares_on_disk() {
    let bucket = replica(MemStore::new());
    let counted = || bucket.with_vbucket(VB, |vbucket| vbucket.high_prepared_seqno());
    bucket.replica_marker(VB, &marker(1, 1)).unwrap();
    let meta = Meta {
        level: Some(DurabilityLevel::PersistToMajority),
        ..change("a", 1, Kind::Prepare).meta()
    };
    let prepare = Document::from_parts(&crate::world::stored("a"), b"v", &meta);
    bucket.replica_change(VB, &prepare).unwrap();
    assert_eq!(counted(), Some(Seqno::ZERO));
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(counted(), Some(Seqno(1)), "the store's record is older");
    bucket.replica_marker(VB, &marker(2, 2)).unwrap();
    take(&bucket, &[("b", 2)]);
    assert_eq!(bucket.roll_back(VB, Seqno(1)).unwrap(), Seqno(1));
    assert_eq!(counted(), Some(Seqno(1)));
}

/// Zero is also the answer to a replica that lacks purged tombstones: the active copy may have all that it has.
#[test]
fn a_rollback_to_zero_loses_acknowledged_prepares() {
    let bucket = replica(MemStore::new());
    bucket.replica_marker(VB, &marker(1, 2)).unwrap();
    take(&bucket, &[("a", 1), ("b", 2)]);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert!(!bucket.rollback_loses(VB, Seqno::ZERO).unwrap());
    bucket.replica_marker(VB, &marker(3, 3)).unwrap();
    let meta = Meta {
        level: Some(DurabilityLevel::Majority),
        ..change("c", 3, Kind::Prepare).meta()
    };
    let prepare = Document::from_parts(&crate::world::stored("c"), b"v", &meta);
    bucket.replica_change(VB, &prepare).unwrap();
    assert!(bucket.rollback_loses(VB, Seqno::ZERO).unwrap());
}

#[test]
fn rollback_drops_changes_that_the_store_never_had() {
    let bucket = replica(MemStore::new());
    bucket.replica_marker(VB, &marker(1, 2)).unwrap();
    take(&bucket, &[("a", 1), ("b", 2)]);
    assert_eq!(bucket.roll_back(VB, Seqno(1)).unwrap(), Seqno::ZERO);
    assert_eq!(high(&bucket), Seqno::ZERO);
    assert!(!seen(&bucket, "a"));
    bucket.replica_marker(VB, &marker(1, 2)).unwrap();
    take(&bucket, &[("a", 1), ("b", 2)]);
    assert!(seen(&bucket, "b"));
}

/// A caller can wait until a crash would not undo a promotion, whatever is written meanwhile.
#[test]
fn durability_of_a_promotion_is_known() {
    let bucket = replica(MemStore::new());
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert!(bucket.are_states_durable() && bucket.has_replicas());
    assert_eq!(bucket.promote_vbucket(VB, VbUuid(8)), Ok(true));
    assert!(!bucket.are_states_durable() && !bucket.has_replicas());
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    bucket.set(0, "a", b"1");
    assert!(bucket.are_states_durable());
}

#[test]
fn promoted_replica_continues_from_its_last_whole_snapshot() {
    let bucket = replica(MemStore::new());
    bucket.replica_marker(VB, &marker(1, 2)).unwrap();
    take(&bucket, &[("a", 1), ("b", 2)]);
    bucket.replica_marker(VB, &marker(3, 9)).unwrap();
    take(&bucket, &[("c", 3)]);
    assert_eq!(bucket.promote_vbucket(VB, VbUuid(8)), Ok(true));
    assert_eq!(
        bucket.promote_vbucket(VB, VbUuid(9)),
        Ok(false),
        "it is active"
    );
    let entries = bucket.with_vbucket(VB, |vbucket| vbucket.failover_log().entries()[0]);
    let begun = FailoverEntry {
        uuid: VbUuid(8),
        seqno: Seqno(2),
    };
    assert_eq!(entries, Some(begun));
    assert_eq!(bucket.set(0, "d", b"1"), Seqno(4));
    assert!(bucket.get(0, "c").is_some(), "what came of the rest stays");
    let late = change("e", 5, Kind::Mutation);
    let refused = bucket.replica_change(VB, &late).err();
    assert_eq!(refused, Some(ReplicaError::NotReplica));
    assert!(!bucket.adopt_history(VB, log(&[(6, 0)])));
    assert_eq!(bucket.replica_position(VB), None);
}

#[test]
fn restarted_replica_knows_its_partial_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = replica(disk(dir.path()).0);
    bucket.replica_marker(VB, &marker(1, 2)).unwrap();
    take(&bucket, &[("a", 1), ("b", 2)]);
    bucket.replica_marker(VB, &marker(3, 9)).unwrap();
    take(&bucket, &[("c", 3)]);
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let before = bucket.replica_position(VB).unwrap();
    assert_eq!(
        (before.snapshot.start, before.snapshot.end),
        (Seqno(2), Seqno(9))
    );
    drop(bucket);
    let again = cold(options(1, ROOMY), disk(dir.path()).0, 50);
    assert_eq!(again.become_replica(false, VbUuid(9)), Ok(()));
    again.warm_up(&mut uuids(60));
    let after = again.replica_position(VB).unwrap();
    assert_eq!(
        (after.high, after.snapshot.end, after.failover_log),
        (before.high, before.snapshot.end, before.failover_log)
    );
    assert!(
        after.snapshot.start < after.high,
        "not at a consistent point"
    );
}
