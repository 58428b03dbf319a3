//! Documents that are evicted with their keys, and are fetched on request.

use std::collections::BTreeMap;
use std::sync::Arc;

use bucket::{Bucket, BucketOptions, Eviction, Flushed, Purpose};
use collections::{CollectionSettings, Manifest};
use engine::{OpError, Outcome, StoreMode, VbConfig, Write};
use model::{Cas, CollectionId, Draft, Meta, Seqno, VbId, VbState, VbUuid};
use storage::{KvStore, MemStore};

use crate::world::{
    Ear, Fault, FaultyStore, Ops, ROOMY, disk, options, read_through, rows, running, warm,
};

const VB: VbId = VbId(0);

pub(crate) fn whole(vbuckets: u16, quota_bytes: u64) -> BucketOptions {
    BucketOptions {
        eviction: Eviction::Documents,
        vb: Arc::new(VbConfig {
            evicts_keys: true,
            ..VbConfig::default()
        }),
        ..options(vbuckets, quota_bytes)
    }
}

/// Runs an operation like a session: fetches the required document, and runs it again.
fn retried<T>(
    bucket: &Bucket<impl KvStore>,
    mut run: impl FnMut() -> Result<Outcome<T>, OpError>,
) -> Result<T, OpError> {
    for _ in 0..100 {
        match run()? {
            Outcome::Done(done) => return Ok(done),
            Outcome::NeedsFetch(wanted) => assert!(bucket.fetch_now(VB, &wanted)),
            Outcome::Prepared(_) => panic!("nothing durable was asked for"),
        }
    }
    panic!("fetched a hundred times in vain");
}

fn asking(mode: StoreMode, key: &[u8], value: &[u8]) -> Write {
    Write {
        mode,
        draft: Some(Draft::new(key, value, &Meta::default())),
        cas: Cas::ANY,
        preserve_expiry: false,
        durability: None,
    }
}

fn write(
    bucket: &Bucket<impl KvStore>,
    mode: StoreMode,
    key: &str,
    value: &[u8],
) -> Result<Seqno, OpError> {
    let mut write = asking(mode, &crate::world::stored(key), value);
    let now = bucket.clock().now();
    retried(bucket, || bucket.run(VB, |vb| vb.store(&mut write, now))).map(|done| done.seqno)
}

fn get(bucket: &Bucket<impl KvStore>, key: &str) -> Option<Vec<u8>> {
    let now = bucket.clock().now();
    match retried(bucket, || {
        bucket.run(VB, |vb| vb.get(&crate::world::stored(key), now))
    }) {
        Ok(got) => Some(got.document.value().to_vec()),
        Err(OpError::KeyNotFound) => None,
        Err(error) => panic!("{key}: {error}"),
    }
}

fn delete(bucket: &Bucket<impl KvStore>, key: &str) -> Result<(), OpError> {
    let now = bucket.clock().now();
    let delete = || {
        bucket.run(VB, |vb| {
            vb.delete(&crate::world::stored(key), Cas::ANY, None, now)
        })
    };
    retried(bucket, delete).map(|_| ())
}

/// Makes a collection with the name `few`.
pub(crate) fn make_few(bucket: &Bucket<impl KvStore>) -> CollectionId {
    let with =
        |now: &Manifest| now.with_collection("_default", "few", CollectionSettings::default());
    let (manifest, _) = bucket.change_manifest(with, |_| Vec::new()).unwrap();
    let collections = &manifest.scope_named("_default").unwrap().collections;
    collections.last().unwrap().id
}

/// Sets a document of a collection.
pub(crate) fn set_in(bucket: &Bucket<impl KvStore>, id: CollectionId, key: &[u8]) {
    let now = bucket.clock().now();
    let mut write = asking(StoreMode::Set, &model::collection_key(id, key), b"v");
    retried(bucket, || bucket.run(VB, |vb| vb.store(&mut write, now))).unwrap();
}

/// Evicts everything evictable.
pub(crate) fn evict_all(bucket: &Bucket<impl KvStore>) {
    let now = bucket.clock().now();
    let mut garbage = Vec::new();
    for _ in 0..8 {
        bucket.with_vbucket(VB, |vb| {
            while !vb.evict_cold(64, usize::MAX, now, &mut garbage).finished {}
        });
    }
}

#[test]
fn evicted_keys_are_fetched_again() {
    let bucket = warm(whole(1, ROOMY), MemStore::new(), 1);
    for index in 0..1000 {
        bucket.set(0, &format!("k{index}"), &[7; 100]);
    }
    bucket.try_delete(0, "k0").unwrap();
    evict_all(&bucket);
    let stats = || bucket.with_vbucket(VB, |vb| vb.stats()).unwrap();
    assert_eq!(stats().evicted, 0, "nothing is durable yet");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let before = bucket.memory().used();
    evict_all(&bucket);
    let left = stats();
    assert_eq!((left.document_bytes, left.evicted), (0, 1000));
    assert_eq!(
        (left.items, left.tombstones, left.non_resident),
        (999, 1, 999)
    );
    assert!(
        before > 150_000 && bucket.memory().used() < 40_000,
        "{left:?}"
    );
    assert_eq!(bucket.memory().used(), bucket.recount());
    assert_eq!(get(&bucket, "k1").unwrap(), [7; 100]);
    assert_eq!(get(&bucket, "k0"), None);
    assert_eq!(
        write(&bucket, StoreMode::Add, "k2", b"x"),
        Err(OpError::KeyExists)
    );
    assert_eq!(delete(&bucket, "absent"), Err(OpError::KeyNotFound));
    let replaced = write(&bucket, StoreMode::Replace, "k3", b"new").unwrap();
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let rows = rows(bucket.store(), 0);
    assert_eq!(rows.len(), 1000, "the row that k3 had is gone");
    let newest = rows.last().unwrap();
    assert_eq!((newest.seqno(), newest.rev()), (replaced, 2));
}

#[test]
fn absent_key_does_not_read_the_store() {
    let bucket = warm(whole(1, ROOMY), MemStore::new(), 1);
    for index in 0..1000 {
        bucket.set(0, &format!("k{index}"), b"v");
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    evict_all(&bucket);
    let fetches = || bucket.with_vbucket(VB, |vb| vb.stats()).unwrap().fetches;
    for index in 0..10_000 {
        assert_eq!(get(&bucket, &format!("absent{index}")), None);
    }
    assert_eq!(fetches(), 0);
}

/// The request that waited for a document finds it, though every document leaves memory again and again.
#[test]
fn fetched_document_is_there_for_its_request_under_any_pressure() {
    let bucket = warm(whole(1, ROOMY), MemStore::new(), 1);
    bucket.set(0, "a", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    bucket.set_memory_excess(ROOMY);
    let relieve = || (0..8).for_each(|_| assert!(!bucket.relieve_step()));
    relieve();
    let Ok(Outcome::NeedsFetch(wanted)) = bucket.try_get(0, "a") else {
        panic!("it was evicted");
    };
    let fetch = bucket.fetch(VB, wanted, Ear::new());
    bucket.fetch_step();
    relieve();
    let now = bucket.clock().now();
    let found = bucket.with_vbucket(VB, |vbucket| {
        bucket.restore(&fetch, vbucket);
        vbucket.get(b"\0a", now)
    });
    assert!(matches!(found, Some(Ok(Outcome::Done(_)))));
    relieve();
    assert!(matches!(bucket.try_get(0, "a"), Ok(Outcome::NeedsFetch(_))));
}

#[test]
fn locked_documents_keep_their_keys_and_replicas_fetch_theirs() {
    let bucket = warm(whole(1, ROOMY), MemStore::new(), 1);
    bucket.set(0, "locked", b"1");
    bucket.set(0, "free", b"1");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let now = bucket.clock().now();
    let locked = bucket.run(VB, |vb| vb.get_locked(b"\0locked", 15, now));
    let Ok(Outcome::Done(locked)) = locked else {
        panic!("it can be locked");
    };
    evict_all(&bucket);
    assert!(matches!(bucket.try_get(0, "locked"), Ok(Outcome::Done(_))));
    assert!(matches!(
        bucket.try_get(0, "free"),
        Ok(Outcome::NeedsFetch(_))
    ));
    let unlock =
        |key: &[u8], cas| retried(&bucket, || bucket.run(VB, |vb| vb.unlock(key, cas, now)));
    assert_eq!(unlock(b"\0free", locked.cas), Err(OpError::NotLocked));
    assert_eq!(unlock(b"\0none", locked.cas), Err(OpError::KeyNotFound));
    evict_all(&bucket);
    assert_eq!(unlock(b"\0locked", locked.cas), Ok(()));
    bucket
        .set_vbucket(VB, VbState::Replica, None, VbUuid(7))
        .unwrap();
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    evict_all(&bucket);
    let wanted = bucket.with_vbucket(VB, |vb| vb.fetch_before_apply(b"\0free"));
    let wanted = wanted.flatten().unwrap();
    assert!(bucket.fetch_now(VB, &wanted));
    let known = bucket.with_vbucket(VB, |vb| vb.fetch_before_apply(b"\0free"));
    assert_eq!(known, Some(None));
}

#[test]
fn random_operations_match_a_map() {
    let bucket = warm(whole(1, ROOMY), MemStore::new(), 1);
    let mut expected: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut state = 0x5eed_u64;
    let mut draw = |below: u64| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (state >> 33) % below
    };
    for step in 0..20_000_u32 {
        let key = format!("k{}", draw(300));
        let value = step.to_be_bytes().to_vec();
        match draw(16) {
            0..4 => {
                write(&bucket, StoreMode::Set, &key, &value).unwrap();
                expected.insert(key, value);
            }
            4..6 => {
                let added = write(&bucket, StoreMode::Add, &key, &value);
                assert_eq!(added.is_err(), expected.contains_key(&key), "{step}: {key}");
                expected.entry(key).or_insert(value);
            }
            6..9 => {
                let gone = delete(&bucket, &key);
                assert_eq!(
                    gone.is_ok(),
                    expected.remove(&key).is_some(),
                    "{step}: {key}"
                );
            }
            9..14 => assert_eq!(
                get(&bucket, &key),
                expected.get(&key).cloned(),
                "{step}: {key}"
            ),
            14 => assert_eq!(bucket.flush_step(), Flushed::Clean),
            _ => evict_all(&bucket),
        }
        let items = bucket.with_vbucket(VB, |vb| vb.items());
        assert_eq!(items, Some(expected.len() as u64), "{step}");
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let mut stored = BTreeMap::new();
    for row in rows(bucket.store(), 0) {
        if !row.kind().is_tombstone() {
            let key = String::from_utf8(row.key()[1..].to_vec()).unwrap();
            assert!(
                stored.insert(key, row.value().to_vec()).is_none(),
                "two rows of a key"
            );
        }
    }
    assert_eq!(stored, expected);
    assert_eq!(bucket.memory().used(), bucket.recount());
}

/// Writes documents, waiting for memory.
fn fill<S: KvStore>(bucket: &Bucket<S>, count: u32, value: &[u8]) {
    let ear = crate::world::Ear::new();
    for index in 0..count {
        let (key, vb) = (format!("k{index}"), VbId((index % 4) as u16));
        let now = bucket.clock().now();
        let mut write = asking(StoreMode::Set, &crate::world::stored(&key), value);
        for tries in 0.. {
            assert!(tries < 60_000, "nobody made room for {key}");
            if bucket.admit(Purpose::Write, value.len() + 100).is_err() {
                ear.listen_for(std::time::Duration::from_millis(1));
                continue;
            }
            match bucket.run(vb, |vbucket| vbucket.store(&mut write, now)) {
                Ok(Outcome::Done(_) | Outcome::Prepared(_)) => break,
                Ok(Outcome::NeedsFetch(wanted)) => assert!(bucket.fetch_now(vb, &wanted)),
                Err(error) => panic!("{key}: {error}"),
            }
        }
    }
}

#[test]
fn bucket_of_ten_times_its_quota_serves_all() {
    let store = crate::world::Kept::default();
    let (bucket, workers) = running(whole(4, 1 << 20), store, 1);
    fill(&bucket, 10_000, &[7; 1000]);
    for index in (0..10_000_u32).step_by(37) {
        let value = read_through(&bucket, (index % 4) as u16, &format!("k{index}"));
        assert_eq!(value.unwrap(), [7; 1000], "{index}");
    }
    assert!(bucket.memory().used() <= bucket.memory().quota());
    workers.stop().unwrap();
    assert_eq!(bucket.memory().used(), bucket.recount());
}

#[test]
fn keys_are_evicted_from_a_value_evicting_bucket_if_they_fill_it() {
    const COUNT: u32 = 15_000;
    let quota = 1 << 20;
    let dir = tempfile::tempdir().unwrap();
    let (bucket, workers) = running(options(4, quota), disk(dir.path()).0, 1);
    fill(&bucket, 100, &[7; 100]);
    let evicted_whole = |bucket: &Bucket<_>| {
        (0..4).any(|vb| {
            let found = bucket.with_vbucket(VbId(vb), |vb| (vb.stats(), vb.hash_stats()));
            found.is_some_and(|(stats, table)| stats.items > table.entries as u64)
        })
    };
    assert!(!evicted_whole(&bucket), "there is no need yet");
    fill(&bucket, COUNT, &[7; 100]);
    assert!(evicted_whole(&bucket));
    assert!(bucket.memory().used() <= quota);
    let check = |bucket: &Bucket<_>| {
        for index in (0..COUNT).step_by(97) {
            let value = read_through(bucket, (index % 4) as u16, &format!("k{index}"));
            assert_eq!(value.unwrap(), [7; 100], "{index}");
        }
        assert_eq!(read_through(bucket, 0, "absent"), None);
    };
    check(&bucket);
    workers.stop().unwrap();
    drop((bucket, workers));
    let (again, workers) = running(options(4, quota), disk(dir.path()).0, 9);
    let relieved = (0..8).any(|_| again.relieve_step());
    assert!(relieved, "{:?}", again.memory());
    let items: u64 = (0..4)
        .filter_map(|vb| again.with_vbucket(VbId(vb), |vb| vb.items()))
        .sum();
    assert_eq!(items, u64::from(COUNT));
    check(&again);
    workers.stop().unwrap();
}

#[test]
fn warmup_keeps_documents_that_stay_in_the_store_readable() {
    let store = MemStore::new();
    let first = warm(whole(1, ROOMY), store, 1);
    for index in 0..4000 {
        first.set(0, &format!("k{index}"), &[7; 1000]);
    }
    assert_eq!(first.flush_step(), Flushed::Clean);
    let copy = MemStore::new();
    for row in rows(first.store(), 0) {
        let record = first.with_vbucket(VB, |vb| vb.record()).unwrap();
        let changes: &[_] = &[(row, Seqno::ZERO)];
        let batch = storage::VbBatch {
            vb: VB,
            record: &record,
            changes: &changes,
        };
        copy.commit(&[batch]).unwrap();
    }
    let again = warm(whole(1, 2 << 20), copy, 9);
    let stats = again.with_vbucket(VB, |vb| vb.stats()).unwrap();
    assert_eq!(stats.items, 4000);
    assert!(stats.non_resident > 2000, "{stats:?}");
    assert!(again.memory().used() <= again.memory().high_mark());
    for index in (0..4000).step_by(97) {
        assert_eq!(get(&again, &format!("k{index}")).unwrap(), [7; 1000]);
    }
}

#[test]
fn erasure_waits_longer_for_a_store_that_fails_than_for_the_flusher() {
    let bucket = warm(whole(1, ROOMY), FaultyStore::new(MemStore::new()), 1);
    let few = make_few(&bucket);
    set_in(&bucket, few, b"k");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    let without = |now: &Manifest| now.without_collection("_default", "few");
    bucket.change_manifest(without, |_| Vec::new()).unwrap();
    let unflushed = bucket.erase_step().expect("it waits for the flusher");
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    bucket.set(0, "a", b"1");
    bucket.store().fail_next(1, Fault::Sync);
    assert_eq!(bucket.flush_step(), Flushed::Failed);
    let failed = bucket.erase_step().expect("it waits for the store");
    assert!(failed > unflushed, "{failed:?}");
}

#[test]
fn evicted_documents_of_a_dropped_collection_are_not_counted() {
    let dir = tempfile::tempdir().unwrap();
    let bucket = warm(whole(1, ROOMY), disk(dir.path()).0, 1);
    let few = make_few(&bucket);
    let set = |id, number: u32| set_in(&bucket, id, &number.to_be_bytes());
    for number in 0..300 {
        set(CollectionId::DEFAULT, number);
        set(few, number);
    }
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    evict_all(&bucket);
    for number in 0..100 {
        set(few, number);
    }
    let without = |now: &Manifest| now.without_collection("_default", "few");
    bucket.change_manifest(without, |_| Vec::new()).unwrap();
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(bucket.erase_step(), None);
    let stats = bucket.with_vbucket(VB, |vb| vb.stats()).unwrap();
    assert_eq!((stats.items, stats.non_resident), (300, 300), "{stats:?}");
    assert_eq!(get(&bucket, "\0\0\0\u{7}").unwrap(), b"v");
}

#[test]
fn start_reads_no_documents() {
    let dir = tempfile::tempdir().unwrap();
    let few = {
        let bucket = warm(whole(1, ROOMY), disk(dir.path()).0, 1);
        let few = make_few(&bucket);
        for index in 0..100 {
            bucket.set(0, &format!("k{index}"), b"v");
        }
        bucket.try_delete(0, "k0").unwrap();
        let key = model::collection_key(few, b"k");
        let mut write = asking(StoreMode::Set, &key, b"few");
        let now = bucket.clock().now();
        bucket.run(VB, |vb| vb.store(&mut write, now)).unwrap();
        assert_eq!(bucket.flush_step(), Flushed::Clean);
        // No close: as after a kill.
        few
    };
    let bucket = warm(whole(1, ROOMY), disk(dir.path()).0, 50);
    let facts = || {
        let figures = bucket.with_vbucket(VB, |vb| (vb.stats(), vb.hash_stats(), vb.collections()));
        let (stats, table, collections) = figures.unwrap();
        let of_few = collections.iter().find(|one| one.counts.id == few);
        (stats, table, of_few.unwrap().counts.items)
    };
    let (stats, table, of_few) = facts();
    assert_eq!((stats.items, stats.tombstones, of_few), (100, 1, 1));
    assert_eq!((stats.non_resident, table.entries), (100, 0));
    assert_eq!(get(&bucket, "k1").unwrap(), b"v");
    assert_eq!(get(&bucket, "k0"), None);
    assert_eq!(get(&bucket, "k100"), None);
    let added = write(&bucket, StoreMode::Add, "k2", b"x");
    assert_eq!(added, Err(OpError::KeyExists));
    delete(&bucket, "k3").unwrap();
    write(&bucket, StoreMode::Set, "k0", b"again").unwrap();
    let key = bucket.stored_key(VB, few, 7).unwrap().unwrap();
    assert_eq!(key, model::collection_key(few, b"k"));
    let (stats, table, of_few) = facts();
    assert_eq!((stats.items, stats.tombstones, of_few), (100, 1, 1));
    assert_eq!(table.entries, 4);
    assert_eq!(bucket.memory().used(), bucket.recount());
    assert_eq!(bucket.flush_step(), Flushed::Clean);
    assert_eq!(
        rows(bucket.store(), 0).len(),
        102,
        "documents, a tombstone, an event"
    );
}
