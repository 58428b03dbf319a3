//! Many buckets share the threads of one pool, and none blocks another.

use std::sync::Arc;

use bucket::{Bucket, Counters, Pool, Workers};
use engine::OpError;
use model::VbId;
use storage::KvStore;

use crate::world::{Ear, Gated, Kept, Ops, ROOMY, cold, options, read_through, uuids};

fn running_in<S: KvStore>(
    pool: &Arc<Pool>,
    store: S,
    quota_bytes: u64,
) -> (Arc<Bucket<S>>, Workers<S>) {
    let bucket = cold(options(2, quota_bytes), store, 1);
    let ear = Ear::new();
    let warmed = Arc::clone(&ear);
    let warmed_up = move || bucket::Wake::wake(&*warmed);
    let workers = Workers::start(pool, &bucket, uuids(1000), warmed_up).unwrap();
    ear.listen();
    (bucket, workers)
}

fn await_persisted<S: KvStore>(bucket: &Bucket<S>, key: &str, value: &[u8]) {
    // Retries like a client while the reliever is slower than the writes.
    let seqno = loop {
        match bucket.try_set(0, key, value) {
            Err(OpError::TemporaryFailure) => std::thread::yield_now(),
            set => break set.unwrap(),
        }
    };
    let ear = Ear::new();
    bucket.await_persisted(VbId(0), seqno, ear.clone());
    ear.listen();
    assert!(bucket.persisted(0) >= seqno);
}

#[test]
fn bucket_with_a_hanging_disk_blocks_no_other() {
    let pool = Arc::new(Pool::new());
    let (hung, hung_workers) = running_in(&pool, Gated::new(Kept::default()), ROOMY);
    await_persisted(&hung, "before", b"1");
    hung.store().shut();
    hung.set(0, "a", b"1");
    hung.store().reached.listen();
    // Commits, relief of memory and reads of another bucket continue.
    let (other, workers) = running_in(&pool, Kept::default(), 2 << 20);
    for index in 0..40 {
        await_persisted(&other, &format!("k{index}"), &vec![7; 100_000]);
    }
    assert!(Counters::read(&other.counters().evicted) > 0);
    assert_eq!(
        read_through(&other, 0, "k0").map(|value| value.len()),
        Some(100_000)
    );
    workers.stop().unwrap();
    drop((workers, other));
    assert!(hung.any_dirty(), "it still hangs");
    hung.store().open();
    hung_workers.stop().unwrap();
    assert!(!hung.any_dirty());
}

#[test]
fn buckets_start_and_stop_in_one_pool() {
    let pool = Arc::new(Pool::new());
    let mut all = Vec::new();
    for round in 0..40 {
        let (bucket, workers) = running_in(&pool, Kept::default(), ROOMY);
        bucket.set(0, "a", b"1");
        all.push((bucket, workers));
        if round % 2 == 1 {
            let (bucket, workers) = all.remove(round / 3);
            workers.stop().unwrap();
            assert!(!bucket.any_dirty());
            drop(workers);
            assert_eq!(Arc::strong_count(&bucket), 1, "no worker is left");
        }
    }
    for (bucket, workers) in all {
        await_persisted(&bucket, "b", b"2");
        workers.stop().unwrap();
    }
}
