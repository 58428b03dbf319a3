//! Every version of a collection's documents: kept by the store, over restarts, until it is dropped.

use std::sync::Arc;

use bucket::{BucketOptions, Flushed, HistoryRetention};
use engine::SnapshotMarker;
use model::{Seqno, VbId, VbState, VbUuid};
use storage::{KvStore, MemStore};

use crate::world::{Kept, Ops, ROOMY, disk, options, running, warm};

type Bucket<S> = Arc<bucket::Bucket<S>>;

const VB: VbId = VbId(0);
const AN_HOUR: HistoryRetention = HistoryRetention {
    seconds: 3600,
    bytes: 0,
};

fn keeping() -> BucketOptions {
    BucketOptions {
        history: AN_HOUR,
        ..options(2, ROOMY)
    }
}

fn set_history<S: KvStore>(bucket: &Bucket<S>, on: bool) {
    let changed = bucket.change_manifest(
        |now| now.with_settings("_default", "_default", |settings| settings.history = on),
        |_| Vec::new(),
    );
    changed.unwrap();
}

fn flush<S: KvStore>(bucket: &Bucket<S>) {
    while bucket.any_dirty() {
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
}

/// Returns the seqnos of all versions of documents, and the seqno from which on all are kept.
fn versions<S: KvStore>(bucket: &Bucket<S>) -> (Vec<u64>, Option<u64>) {
    let snapshot = bucket.store().snapshot(VB).unwrap();
    let rows = snapshot.with_history(Seqno(1)).map(Result::unwrap);
    let documents = rows.filter(|row| row.key()[0] == 0);
    let from = snapshot.history_from().unwrap();
    (
        documents.map(|row| row.seqno().0).collect(),
        from.map(|seqno| seqno.0),
    )
}

#[test]
fn versions_survive_restarts_and_end_with_the_history() {
    let place = tempfile::tempdir().unwrap();
    let (bucket, workers) = running(keeping(), disk(place.path()).0, 1);
    assert_eq!(bucket.set(0, "before", b"1"), Seqno(1));
    set_history(&bucket, true); // at seqno 2
    for value in [b"1", b"2", b"3"] {
        bucket.set(0, "key", value);
    }
    bucket.set(0, "before", b"2");
    workers.stop().unwrap();
    drop((bucket, workers));

    let (store, clean) = disk(place.path());
    assert!(clean);
    let (bucket, workers) = running(keeping(), store, 1);
    assert_eq!(bucket.get(0, "key").unwrap(), b"3");
    assert_eq!(versions(&bucket), (vec![3, 4, 5, 6], Some(3)));
    assert_eq!(
        bucket.trim_history(VB, None).unwrap().rows,
        4,
        "all are young"
    );
    assert!(bucket.history_kept(VB).bytes > 0);
    bucket.set(0, "key", b"4");
    workers.stop().unwrap();
    drop((bucket, workers));

    // Opened without history: the old one is dropped, and a new one begins anew.
    let (bucket, workers) = running(options(2, ROOMY), disk(place.path()).0, 1);
    assert_eq!(versions(&bucket), (vec![6, 7], None));
    bucket.set(0, "key", b"5");
    bucket.set(0, "key", b"6");
    bucket.set_history_retention(AN_HOUR).unwrap();
    let (first, second) = (bucket.set(0, "key", b"7"), bucket.set(0, "key", b"8"));
    workers.stop().unwrap();
    drop((bucket, workers));
    let (bucket, workers) = running(keeping(), disk(place.path()).0, 1);
    assert_eq!(
        versions(&bucket),
        (vec![6, first.0, second.0], Some(first.0))
    );
    workers.stop().unwrap();
}

#[test]
fn history_switched_off_and_on_has_no_gap() {
    let bucket = warm(keeping(), MemStore::new(), 1);
    set_history(&bucket, true); // at seqno 1
    bucket.set(0, "key", b"2");
    flush(&bucket);
    bucket.set(0, "key", b"3");
    bucket
        .set_history_retention(HistoryRetention::default())
        .unwrap();
    bucket.set(0, "key", b"4");
    bucket.set(0, "key", b"5");
    bucket.set_history_retention(AN_HOUR).unwrap();
    bucket.set(0, "key", b"6");
    // Changes from the first period are committed only here.
    flush(&bucket);
    assert_eq!(versions(&bucket), (vec![6], Some(6)));
    bucket.set(0, "key", b"7");
    flush(&bucket);
    assert_eq!(versions(&bucket), (vec![6, 7], Some(6)));
}

/// The history has a version of the document, and not its deletion, so the tombstone must stay.
#[test]
fn a_tombstone_stays_as_long_as_the_history_may_need_it() {
    let bucket = warm(keeping(), MemStore::new(), 1);
    set_history(&bucket, true); // at seqno 1
    bucket.set(0, "key", b"2");
    flush(&bucket);
    set_history(&bucket, false); // at seqno 3
    bucket.try_delete(0, "key").unwrap(); // at seqno 4
    bucket.set(0, "last", b"5");
    flush(&bucket);
    let far = 1_700_000_000 + 3600;
    assert_eq!(bucket.purge(VB, far).unwrap().dropped, 0);
    assert_eq!(versions(&bucket), (vec![2, 4, 5], Some(2)));
    // Nothing keeps it once the history is gone.
    bucket
        .set_history_retention(HistoryRetention::default())
        .unwrap();
    bucket.trim_history(VB, None).unwrap();
    assert_eq!(bucket.purge(VB, far).unwrap().dropped, 1);
    assert_eq!(versions(&bucket), (vec![5], None));
}

#[test]
fn history_of_a_dropped_collection_is_dropped() {
    let bucket = warm(keeping(), MemStore::new(), 1);
    set_history(&bucket, true);
    bucket.set(0, "key", b"2");
    bucket.set(0, "key", b"3");
    flush(&bucket);
    assert_eq!(versions(&bucket).0, [2, 3]);
    let dropped = bucket.change_manifest(
        |now| now.without_collection("_default", "_default"),
        |_| Vec::new(),
    );
    dropped.unwrap();
    flush(&bucket);
    assert_eq!(bucket.erase_step(), None);
    assert_eq!(versions(&bucket), (vec![], None));
}

#[test]
fn replica_drops_a_history_with_a_gap() {
    let bucket = warm(keeping(), Kept::default(), 1);
    set_history(&bucket, true);
    bucket.set(0, "key", b"2");
    bucket.set(0, "key", b"3");
    flush(&bucket);
    assert_eq!(versions(&bucket), (vec![2, 3], Some(2)));
    bucket
        .set_vbucket(VB, VbState::Replica, None, VbUuid(7))
        .unwrap();
    let marker = |start, end, historical| SnapshotMarker {
        start: Seqno(start),
        end: Seqno(end),
        checkpoint: true,
        historical,
        ..SnapshotMarker::default()
    };
    bucket.replica_marker(VB, &marker(4, 5, true)).unwrap();
    assert_eq!(versions(&bucket).1, Some(2));
    bucket.replica_marker(VB, &marker(4, 5, false)).unwrap();
    assert_eq!(versions(&bucket), (vec![3], None));
}
