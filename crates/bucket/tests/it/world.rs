//! Shared parts of the tests: a manual clock, counting wakers, a working bucket.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bucket::{
    Bell, Bucket, BucketOptions, Clock, Eviction, Fetch, Pool, Purpose, Reservation, Shortage,
    Wake, Workers,
};
use engine::{OpError, Outcome, StoreMode, VbConfig, Write};
use model::{Cas, Document, Draft, Meta, Now, Seqno, VbId, VbUuid};
use storage::{DiskOptions, DiskStore, KvStore};

/// Maximum wait of a test before it fails.
pub(crate) const PATIENCE: Duration = Duration::from_mins(1);

/// A clock that advances by one microsecond at each read.
#[derive(Default)]
pub(crate) struct HandClock(AtomicU64);

impl Clock for HandClock {
    fn now(&self) -> Now {
        let ns = 1_000 * (1 + self.0.fetch_add(1, Ordering::Relaxed));
        Now {
            unix_ns: 1_700_000_000_000_000_000 + ns,
            mono_ns: ns,
        }
    }
}

/// A waker that counts its rings, and on which a test can wait.
#[derive(Default)]
pub(crate) struct Ear {
    rings: AtomicUsize,
    bell: Bell,
}

impl Wake for Ear {
    fn wake(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        self.bell.ring();
    }
}

impl Ear {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self::default())
    }

    pub(crate) fn rings(&self) -> usize {
        self.rings.load(Ordering::SeqCst)
    }

    /// Waits for the next ring.
    pub(crate) fn listen(&self) {
        assert!(self.bell.wait(Some(PATIENCE)), "a wakeup was lost");
    }

    pub(crate) fn listen_for(&self, limit: Duration) -> bool {
        self.bell.wait(Some(limit))
    }
}

/// Returns distinct numbers, beginning with `first`.
pub(crate) fn uuids(first: u64) -> impl FnMut() -> VbUuid + Send + 'static {
    let mut next = first;
    move || {
        next += 1;
        VbUuid(next - 1)
    }
}

pub(crate) fn options(vbuckets: u16, quota_bytes: u64) -> BucketOptions {
    BucketOptions {
        name: "test".into(),
        vbuckets,
        quota_bytes,
        vb: Arc::new(VbConfig::default()),
        clean: true,
        eviction: Eviction::Values,
        compression: model::CompressionMode::Passive,
        compress: |_| None,
        expiry_pass_s: 0,
        history: bucket::HistoryRetention::default(),
        purge_age_s: 259_200,
        flush_interval_ms: 1,
        member: false,
        buffers: Arc::default(),
    }
}

pub(crate) const ROOMY: u64 = 1 << 30;

/// Creates a bucket that is not warmed up.
pub(crate) fn cold<S: KvStore>(
    options: BucketOptions,
    store: S,
    first_uuid: u64,
) -> Arc<Bucket<S>> {
    let clock = Arc::new(HandClock::default());
    Bucket::open(options, store, clock, &mut uuids(first_uuid)).unwrap()
}

/// Creates a bucket without workers that serves.
pub(crate) fn warm<S: KvStore>(
    options: BucketOptions,
    store: S,
    first_uuid: u64,
) -> Arc<Bucket<S>> {
    let bucket = cold(options, store, first_uuid);
    bucket.warm_up(&mut uuids(first_uuid + 10_000));
    bucket
}

/// Creates a bucket with workers that serves.
pub(crate) fn running<S: KvStore>(
    options: BucketOptions,
    store: S,
    first_uuid: u64,
) -> (Arc<Bucket<S>>, Workers<S>) {
    let bucket = cold(options, store, first_uuid);
    let ear = Ear::new();
    let warmed = Arc::clone(&ear);
    let pool = Arc::new(Pool::new());
    let uuids = uuids(first_uuid + 10_000);
    let workers = Workers::start(&pool, &bucket, uuids, move || warmed.wake());
    let workers = workers.unwrap();
    ear.listen();
    (bucket, workers)
}

pub(crate) fn disk(path: &Path) -> (DiskStore, bool) {
    let (store, opened) = DiskStore::open(path, DiskOptions::default()).unwrap();
    (store, opened.clean)
}

/// Operations on a bucket for tests.
pub(crate) trait Ops {
    /// Reserves memory without a wait.
    fn admit(&self, purpose: Purpose, bytes: usize) -> Result<(), Shortage>;
    fn try_set(&self, vb: u16, key: &str, value: &[u8]) -> Result<Seqno, OpError>;
    fn try_get(&self, vb: u16, key: &str) -> Result<Outcome<Document>, OpError>;
    fn try_delete(&self, vb: u16, key: &str) -> Result<Seqno, OpError>;
    /// Returns the memory of the vBuckets by their own account.
    fn recount(&self) -> u64;
    fn persisted(&self, vb: u16) -> Seqno;
    fn any_dirty(&self) -> bool;

    fn set(&self, vb: u16, key: &str, value: &[u8]) -> Seqno {
        self.try_set(vb, key, value).unwrap()
    }

    /// Returns the value, which must be in memory.
    fn get(&self, vb: u16, key: &str) -> Option<Vec<u8>> {
        match self.try_get(vb, key) {
            Ok(Outcome::Done(document) | Outcome::Prepared(document)) => {
                Some(document.value().to_vec())
            }
            Ok(Outcome::NeedsFetch(_)) => panic!("{key} is not resident"),
            Err(OpError::KeyNotFound) => None,
            Err(error) => panic!("{key}: {error}"),
        }
    }
}

/// Returns the stored form of a key of the default collection.
pub(crate) fn stored(key: &str) -> Vec<u8> {
    model::collection_key(model::CollectionId::DEFAULT, key.as_bytes())
}

impl<S: KvStore> Ops for Bucket<S> {
    fn admit(&self, purpose: Purpose, bytes: usize) -> Result<(), Shortage> {
        match self.reserve(purpose, bytes, Duration::MAX) {
            Reservation::Granted => Ok(()),
            Reservation::Refused { shortage, .. } => Err(shortage),
            Reservation::Wait { limit, .. } => panic!("longer than forever, at {limit:?}"),
        }
    }

    fn try_set(&self, vb: u16, key: &str, value: &[u8]) -> Result<Seqno, OpError> {
        self.admit(Purpose::Write, key.len() + value.len() + 64)?;
        let mut write = Write {
            mode: StoreMode::Set,
            draft: Some(Draft::new(&stored(key), value, &Meta::default())),
            cas: Cas::ANY,
            preserve_expiry: false,
            durability: None,
        };
        let now = self.clock().now();
        match self.run(VbId(vb), |vbucket| vbucket.store(&mut write, now))? {
            Outcome::Done(mutated) | Outcome::Prepared(mutated) => Ok(mutated.seqno),
            Outcome::NeedsFetch(_) => panic!("a plain set needs no old value"),
        }
    }

    fn try_get(&self, vb: u16, key: &str) -> Result<Outcome<Document>, OpError> {
        let now = self.clock().now();
        let got = self.run(VbId(vb), |vbucket| vbucket.get(&stored(key), now))?;
        Ok(match got {
            Outcome::Done(got) | Outcome::Prepared(got) => Outcome::Done(got.document),
            Outcome::NeedsFetch(key) => Outcome::NeedsFetch(key),
        })
    }

    fn try_delete(&self, vb: u16, key: &str) -> Result<Seqno, OpError> {
        let now = self.clock().now();
        let deleted =
            |vbucket: &mut engine::VBucket| vbucket.delete(&stored(key), Cas::ANY, None, now);
        match self.run(VbId(vb), deleted)? {
            Outcome::Done(mutated) | Outcome::Prepared(mutated) => Ok(mutated.seqno),
            Outcome::NeedsFetch(_) => panic!("a deletion needs no old value"),
        }
    }

    fn recount(&self) -> u64 {
        let each = (0..self.vbuckets())
            .filter_map(|vb| self.with_vbucket(VbId(vb), |vbucket| vbucket.memory_bytes() as u64));
        each.sum()
    }

    fn persisted(&self, vb: u16) -> Seqno {
        let persisted = self.with_vbucket(VbId(vb), |vbucket| vbucket.persisted_seqno());
        persisted.unwrap()
    }

    fn any_dirty(&self) -> bool {
        (0..self.vbuckets())
            .any(|vb| self.with_vbucket(VbId(vb), |vbucket| vbucket.is_dirty()) == Some(true))
    }
}

/// Restores a fetched document like a session, in a hold of its vBucket.
pub(crate) fn restore<S: KvStore>(bucket: &Bucket<S>, vb: u16, fetch: &Fetch) {
    bucket.with_vbucket(VbId(vb), |vbucket| bucket.restore(fetch, vbucket));
}

/// Reads a value like a session: fetches it if it is not in memory, and runs again.
pub(crate) fn read_through<S: KvStore>(bucket: &Bucket<S>, vb: u16, key: &str) -> Option<Vec<u8>> {
    let ear = Ear::new();
    for _ in 0..1000 {
        match bucket.try_get(vb, key) {
            Ok(Outcome::Done(document) | Outcome::Prepared(document)) => {
                return Some(document.value().to_vec());
            }
            Ok(Outcome::NeedsFetch(wanted)) => {
                let reservation = bucket.reserve(Purpose::Fetch, 0, Duration::MAX);
                if reservation.is_granted() {
                    let fetch = bucket.fetch(VbId(vb), wanted, ear.clone());
                    ear.listen();
                    restore(bucket, vb, &fetch);
                } else {
                    // There is no memory for it at the moment.
                    ear.listen_for(Duration::from_millis(5));
                }
            }
            Err(OpError::KeyNotFound) => return None,
            Err(error) => panic!("{key}: {error}"),
        }
    }
    panic!("{key} was fetched a thousand times in vain");
}

/// Returns all rows of a vBucket in the store, ascending by seqno.
pub(crate) fn rows(store: &impl KvStore, vb: u16) -> Vec<Document> {
    let snapshot = store.snapshot(VbId(vb)).unwrap();
    snapshot.by_seqno(Seqno(1)).map(Result::unwrap).collect()
}

pub(crate) use crate::faulty::{Fault, FaultyStore};
pub(crate) use crate::stores::{Gated, Kept, Slow};
