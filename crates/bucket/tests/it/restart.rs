//! The content of buckets after a restart, and their failover logs.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bucket::{Bucket, BucketOptions, Counters, Flushed, FlusherState, WarmupStage, Workers};
use engine::OpError;
use model::{FailoverEntry, Seqno, SnapshotRange, VbId, VbState, VbUuid};
use storage::{KvStore, VbBatch};

use crate::world::{
    Ear, FaultyStore, Kept, Ops, ROOMY, cold, disk, options, read_through, rows, running, uuids,
    warm,
};

fn histories<S: KvStore>(bucket: &Bucket<S>, vb: u16) -> Vec<FailoverEntry> {
    let log = bucket.with_vbucket(VbId(vb), |vbucket| vbucket.failover_log().clone());
    log.unwrap().entries().to_vec()
}

#[test]
fn clean_restart_restores_everything_and_continues() {
    let dir = tempfile::tempdir().unwrap();
    let (store, clean) = disk(dir.path());
    assert!(clean);
    let (bucket, workers) = running(options(8, ROOMY), store, 1);
    for index in 0..2000_u32 {
        let value = vec![b'v'; (index % 300) as usize];
        bucket.set((index % 8) as u16, &format!("k{index}"), &value);
    }
    bucket.try_delete(0, "k0").unwrap();
    let cas = bucket
        .with_vbucket(VbId(0), |vbucket| vbucket.max_cas())
        .unwrap();
    let before = histories(&bucket, 3);
    workers.stop().unwrap();
    assert!(!bucket.any_dirty());
    let late = bucket.try_set(0, "late", b"1");
    assert_eq!(late, Err(OpError::TemporaryFailure), "it would be lost");
    drop((bucket, workers));

    let (store, clean) = disk(dir.path());
    assert!(clean);
    let (bucket, workers) = running(options(8, ROOMY), store, 50);
    assert_eq!(bucket.get(0, "k0"), None);
    for index in 1..2000_u32 {
        let value = bucket
            .get((index % 8) as u16, &format!("k{index}"))
            .unwrap();
        assert_eq!(value.len(), (index % 300) as usize);
    }
    assert_eq!(histories(&bucket, 3), before, "the history goes on");
    assert_eq!(bucket.set(0, "new", b"1"), Seqno(252));
    let next = bucket
        .with_vbucket(VbId(0), |vbucket| vbucket.max_cas())
        .unwrap();
    assert!(next > cas, "CAS values go on above");
    let stats = bucket.warmup();
    assert_eq!(Counters::read(&stats.keys), 2000);
    assert_eq!(Counters::read(&stats.vbuckets_done), 8);
    assert_eq!(bucket.memory().used(), bucket.recount());
    workers.stop().unwrap();
}

#[test]
fn only_an_unclean_stop_begins_a_new_history() {
    let kept = Kept::default();
    let mut expected = 1;
    for (round, clean) in [true, true, false, true, false].into_iter().enumerate() {
        let mut options = options(2, ROOMY);
        options.clean = clean;
        let first = 100 * (1 + round as u64);
        let bucket = warm(options, kept.clone(), first);
        let log = histories(&bucket, 1);
        if round > 0 && !clean {
            expected += 1;
            let high = Seqno(round as u64);
            let newest = log[0];
            assert_eq!((newest.uuid, newest.seqno), (VbUuid(first + 10_001), high));
        }
        assert_eq!(log.len(), expected, "round {round}");
        bucket.set(1, &format!("k{round}"), b"v");
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
}

/// Changes the store as if a replica had stopped in the middle of a snapshot.
fn cut(kept: &Kept, vb: u16, snapshot: SnapshotRange) {
    let loaded = kept.load().unwrap();
    let mut record = loaded[&VbId(vb)].clone();
    record.snapshot = snapshot;
    let nothing: &[(model::Document, Seqno)] = &[];
    let batch = VbBatch {
        vb: VbId(vb),
        record: &record,
        changes: &nothing,
    };
    kept.commit(&[batch]).unwrap();
}

#[test]
fn partial_snapshot_begins_a_new_history_after_the_last_whole_one() {
    let kept = Kept::default();
    let bucket = warm(options(2, ROOMY), kept.clone(), 1);
    for key in ["a", "b", "c"] {
        bucket.set(0, key, b"1");
        bucket.set(1, key, b"1");
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    cut(
        &kept,
        0,
        SnapshotRange {
            start: Seqno(2),
            end: Seqno(9),
        },
    );
    let bucket = warm(options(2, ROOMY), kept, 50);
    let (cut, whole) = (histories(&bucket, 0), histories(&bucket, 1));
    assert_eq!((cut.len(), whole.len()), (2, 1));
    assert_eq!(cut[0].seqno, Seqno(2));
    assert_eq!(bucket.get(0, "c").unwrap(), b"1");
}

#[test]
fn nothing_is_served_before_warmup_is_over() {
    let kept = Kept::default();
    let bucket = warm(options(2, ROOMY), kept.clone(), 1);
    bucket.set(0, "a", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let bucket = cold(options(2, ROOMY), kept, 50);
    assert_eq!(bucket.warmup().stage(), WarmupStage::Loading);
    assert_eq!(
        bucket.try_get(0, "a").unwrap_err(),
        OpError::TemporaryFailure
    );
    assert_eq!(bucket.try_set(0, "a", b"2"), Err(OpError::TemporaryFailure));
    assert_eq!(bucket.try_delete(0, "a"), Err(OpError::TemporaryFailure));
    let state = bucket.set_vbucket(VbId(1), VbState::Replica, None, VbUuid(9));
    assert_eq!(state, Err(OpError::TemporaryFailure));
    let still = bucket.with_vbucket(VbId(1), |vbucket| vbucket.state());
    assert_eq!(still, Some(VbState::Active), "refused means unchanged");
    bucket.warm_up(&mut uuids(60));
    assert_eq!(bucket.warmup().stage(), WarmupStage::Done);
    assert_eq!(bucket.get(0, "a").unwrap(), b"1");
}

/// Workers that have loaded some vBuckets, and wait before they load the others.
struct HalfLoaded {
    bucket: Arc<Bucket<FaultyStore<Kept>>>,
    workers: Arc<Workers<FaultyStore<Kept>>>,
    go: Arc<Ear>,
}

impl HalfLoaded {
    /// The warmup of a bucket waits after it took `numbers` uuids: one for each vBucket.
    fn after(numbers: usize, options: BucketOptions, kept: Kept) -> Self {
        let bucket = cold(options, FaultyStore::new(kept), 50);
        let (reached, go) = (Ear::new(), Ear::new());
        let (at_gate, gate) = (reached.clone(), go.clone());
        let (mut next, mut asked) = (uuids(60), 0);
        let held = move || {
            asked += 1;
            if asked == numbers {
                bucket::Wake::wake(&*at_gate);
                gate.listen();
            }
            next()
        };
        let workers = Workers::start(&Arc::new(bucket::Pool::new()), &bucket, held, || ());
        let workers = Arc::new(workers.unwrap());
        reached.listen();
        while Counters::read(&bucket.warmup().vbuckets_done) + 1 < numbers as u64 {
            std::thread::yield_now();
        }
        Self {
            bucket,
            workers,
            go,
        }
    }

    /// Stops the workers, and lets the warmup continue after it was told to stop.
    fn stop(&self) {
        let stopping = Arc::clone(&self.workers);
        let stop = std::thread::Builder::new()
            .spawn(move || stopping.stop())
            .unwrap();
        while !self.bucket.is_stopping() {
            std::thread::yield_now();
        }
        bucket::Wake::wake(&*self.go);
        stop.join().unwrap().unwrap();
    }
}

#[test]
fn vbucket_is_served_as_soon_as_it_is_loaded() {
    let kept = Kept::default();
    let bucket = warm(options(4, ROOMY), kept.clone(), 1);
    for vb in 0..4 {
        bucket.set(vb, "a", b"1");
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let half = HalfLoaded::after(2, options(4, ROOMY), kept.clone());
    let bucket = &half.bucket;
    assert_eq!(bucket.warmup().stage(), WarmupStage::Loading);
    // Each worker takes the next vBucket, so the first loaded one is not known.
    let (loaded, others): (Vec<u16>, Vec<_>) =
        (0..4).partition(|vb| bucket.try_get(*vb, "a").is_ok());
    assert_eq!(loaded.len(), 1, "{loaded:?} and not {others:?}");
    for vb in others {
        let refused = bucket.try_set(vb, "a", b"2");
        assert_eq!(refused, Err(OpError::TemporaryFailure));
    }
    assert_eq!(bucket.set(loaded[0], "a", b"2"), Seqno(2));
    // Changes made until then are stored, although the other vBuckets were never loaded.
    half.stop();
    assert_eq!(half.bucket.warmup().stage(), WarmupStage::Loading);
    assert_eq!(kept.closes.load(Ordering::SeqCst), 1);
    let bucket = warm(options(4, ROOMY), kept, 90);
    for vb in 0..4 {
        let expected = if vb == loaded[0] { b"2" } else { b"1" };
        assert_eq!(bucket.get(vb, "a").unwrap(), expected);
    }
}

#[test]
fn vbucket_deleted_during_warmup_stays_deleted() {
    let kept = Kept::default();
    let bucket = warm(options(1, ROOMY), kept.clone(), 1);
    bucket.set(0, "a", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let bucket = cold(options(1, ROOMY), kept.clone(), 50);
    assert!(bucket.delete_vbucket(VbId(0)).unwrap());
    bucket.warm_up(&mut uuids(60));
    assert_eq!(bucket.try_get(0, "a").unwrap_err(), OpError::NotMyVbucket);
    assert_eq!((bucket.memory().used(), rows(&kept, 0).len()), (0, 0));
}

#[test]
fn unreadable_store_fails_warmup_and_stops_without_an_error() {
    let kept = Kept::default();
    let bucket = warm(options(2, ROOMY), kept.clone(), 1);
    bucket.set(1, "a", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let mut unclean = options(2, ROOMY);
    unclean.clean = false;
    let store = FaultyStore::new(kept.clone());
    store.set_unreadable(true);
    let (bucket, workers) = running(unclean, store, 50);
    assert_eq!(bucket.warmup().stage(), WarmupStage::Failed);
    assert_eq!(
        bucket.try_get(1, "a").unwrap_err(),
        OpError::TemporaryFailure
    );
    assert_eq!(bucket.flush_step(), Flushed::Failed);
    assert_eq!(bucket.flusher_state(), FlusherState::Failed);
    workers.stop().unwrap();
    // The pending new histories are still pending: this was no clean stop.
    assert_eq!(kept.closes.load(Ordering::SeqCst), 0);
}

#[test]
fn stop_during_warmup_admits_nothing_and_leaves_the_store_unchanged() {
    let kept = Kept::default();
    let bucket = warm(options(4, ROOMY), kept.clone(), 1);
    bucket.set(3, "a", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    for (clean, closes) in [(true, 1), (false, 1)] {
        let mut options = options(4, ROOMY);
        options.clean = clean;
        let half = HalfLoaded::after(1, options, kept.clone());
        half.stop();
        let bucket = &half.bucket;
        assert_eq!(bucket.warmup().stage(), WarmupStage::Loading);
        assert_eq!(bucket.try_set(3, "a", b"2"), Err(OpError::TemporaryFailure));
        assert_eq!(bucket.store().commits(), 0);
        assert_eq!(kept.closes.load(Ordering::SeqCst), closes, "clean {clean}");
    }
}

#[test]
fn values_beyond_the_low_mark_stay_in_the_store() {
    let kept = Kept::default();
    let bucket = warm(options(2, ROOMY), kept.clone(), 1);
    for index in 0..2000 {
        bucket.set(index % 2, &format!("k{index}"), &[7; 1000]);
    }
    while bucket.any_dirty() {
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
    let (bucket, workers) = running(options(2, 1 << 20), kept, 50);
    crate::refill::await_refill(&bucket);
    let memory = bucket.memory();
    assert!(memory.used() < memory.mutation_limit(), "{memory:?}");
    let values = Counters::read(&bucket.warmup().values);
    assert!((100..1000).contains(&values), "{values} values were loaded");
    for index in 0..2000 {
        assert_eq!(
            read_through(&bucket, index % 2, &format!("k{index}")).unwrap(),
            [7; 1000]
        );
    }
    workers.stop().unwrap();
    assert_eq!(bucket.memory().used(), bucket.recount());
}
