//! After a start, documents that are only in the store are loaded without a request.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bucket::{Bucket, Flushed, RefillState};
use engine::{OpError, Outcome};
use model::VbId;
use storage::KvStore;

use crate::full_eviction::{evict_all, whole};
use crate::world::{Kept, Ops, ROOMY, disk, options, read_through, running, warm};

const VBS: u16 = 4;

/// Writes documents of one KB, `k0` first, and makes them durable.
fn fill(bucket: &Bucket<impl KvStore>, documents: u16) {
    for index in 0..documents {
        bucket.set(index % VBS, &format!("k{index}"), &[7; 1000]);
    }
    while bucket.any_dirty() {
        assert_eq!(bucket.flush_step(), Flushed::Clean);
    }
}

pub(crate) fn await_refill(bucket: &Bucket<impl KvStore>) {
    while bucket.warmup().refill() != RefillState::Done {
        thread::yield_now();
    }
}

fn is_here(bucket: &Bucket<impl KvStore>, index: u16) -> bool {
    let got = bucket.try_get(index % VBS, &format!("k{index}")).unwrap();
    matches!(got, Outcome::Done(_))
}

fn away(bucket: &Bucket<impl KvStore>) -> u64 {
    let away = |vb| bucket.with_vbucket(VbId(vb), |vb| vb.stats().non_resident);
    (0..VBS).filter_map(away).sum()
}

#[test]
fn refill_loads_everything_that_fits() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = warm(whole(VBS, ROOMY), disk(dir.path()).0, 1);
    fill(&bucket, 2000);
    bucket.try_delete(0, "k0").unwrap();
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    bucket.store().close().unwrap();
    drop(bucket);
    let bucket = warm(whole(VBS, ROOMY), disk(dir.path()).0, 100);
    assert_eq!(away(&bucket), 1999);
    assert_eq!(bucket.warmup().refill(), RefillState::Waiting);
    bucket.refill();
    assert_eq!(away(&bucket), 0);
    assert_eq!(bucket.warmup().refill(), RefillState::Done);
    assert!((1..2000).all(|index| is_here(&bucket, index)));
    assert_eq!(bucket.memory().used(), bucket.recount());
    let fetched = bucket::Counters::read(&bucket.counters().fetched);
    assert_eq!(fetched, 0);
}

#[test]
fn refill_loads_the_last_written_documents_up_to_a_mark() {
    for whole_documents in [true, false] {
        let with = if whole_documents { whole } else { options };
        let dir = tempfile::tempdir().unwrap();
        let bucket = warm(with(VBS, ROOMY), disk(dir.path()).0, 1);
        fill(&bucket, 6000);
        bucket.store().close().unwrap();
        drop(bucket);
        let (bucket, workers) = running(with(VBS, 4 << 20), disk(dir.path()).0, 100);
        await_refill(&bucket);
        let (used, low) = (bucket.memory().used(), bucket.memory().low_mark());
        assert!(used > low / 10 * 8 && used <= low, "{used} of {low}");
        let here = |from: u16| (from..from + 1000).filter(|index| is_here(&bucket, *index));
        assert!(here(5000).count() > 950, "{}", here(5000).count());
        assert_eq!(here(0).count(), 0);
        workers.stop().unwrap();
    }
}

/// Returns a value that contains its number.
fn value(number: u32) -> [u8; 100] {
    let mut value = [0; 100];
    value[..4].copy_from_slice(&number.to_be_bytes());
    value
}

#[test]
fn refill_never_restores_an_old_version() {
    let kept = Kept::default();
    let bucket = warm(whole(1, ROOMY), kept.clone(), 1);
    for key in 0..300 {
        bucket.set(0, &format!("k{key}"), &value(0));
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let (bucket, workers) = running(whole(1, ROOMY), kept, 100);
    let ends = AtomicBool::new(false);
    let mut expected: BTreeMap<u32, u32> = (0..300).map(|key| (key, 0)).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            while !ends.load(Ordering::SeqCst) {
                bucket.refill();
            }
        });
        for number in 1..6000_u32 {
            let key = number * 7919 % 300;
            let name = format!("k{key}");
            read_through(&bucket, 0, &name);
            if number % 5 == 0 {
                match bucket.try_delete(0, &name) {
                    Ok(_) | Err(OpError::KeyNotFound) => {}
                    Err(error) => panic!("{error}"),
                }
                expected.remove(&key);
            } else {
                bucket.set(0, &name, &value(number));
                expected.insert(key, number);
            }
            if number % 50 == 0 {
                bucket.hurry();
                while bucket.any_dirty() {
                    thread::yield_now();
                }
                evict_all(&bucket);
            }
        }
        ends.store(true, Ordering::SeqCst);
    });
    for key in 0..300 {
        let got = read_through(&bucket, 0, &format!("k{key}"));
        let expected = expected.get(&key).map(|number| value(*number).to_vec());
        assert_eq!(got, expected, "k{key}");
    }
    let items = bucket.with_vbucket(VbId(0), |vb| vb.stats().items);
    assert_eq!(items, Some(expected.len() as u64));
    workers.stop().unwrap();
    assert_eq!(bucket.memory().used(), bucket.recount());
}
