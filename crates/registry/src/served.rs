//! A bucket as the server sees it: the running bucket, its identity and its cluster map.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bucket::{Bucket, Workers};
use parking_lot::RwLock;

use crate::admission_queue::AdmissionQueue;
use crate::claims::Claims;
use crate::dcp::DcpRegistry;
use crate::group::Group;
use crate::loans::Loans;
use crate::maps::MapVersion;
use crate::progress::Progress;
use crate::rate::Rate;
use crate::settings::{BucketKind, BucketSettings};
use crate::store::Store;

/// What makes a bucket follow that of another node.
pub trait Follows: Send + Sync {
    /// How it gets on.
    fn progress(&self) -> &Progress;

    /// Whether it follows, or will: until it was promoted or stopped.
    fn follows(&self) -> bool;

    /// Makes its vBuckets active, with `force` even if something cannot be fetched before. Does not wait
    /// for it.
    fn promote(&self, force: bool);

    /// Ends it, and waits for that.
    fn stop(&self);
}

/// A bucket and what is served around it.
pub struct ServedBucket {
    /// The running bucket.
    pub bucket: Arc<Bucket<Store>>,
    /// Its threads.
    pub workers: Workers<Store>,
    /// 32 hex digits.
    pub uuid: String,
    settings: RwLock<BucketSettings>,
    /// It cannot be selected any more.
    gone: AtomicBool,
    /// Connections that stream its changes.
    pub dcp: DcpRegistry,
    /// Which connection brings the changes of which vBucket here.
    pub claims: Claims,
    /// How many operations on documents there are.
    pub operations: Rate,
    /// What HTTP streams of its changes have made and not sent.
    pub loans: Loans,
    /// Connections with a large request that waits for quota.
    pub admission_queue: Arc<AdmissionQueue>,
    map: RwLock<MapVersion>,
    group: RwLock<Group>,
    /// What the map calls the bucket, when that is another node's name for it.
    shown_uuid: RwLock<Option<Arc<str>>>,
    follower: OnceLock<Arc<dyn Follows>>,
}

impl ServedBucket {
    /// A bucket that runs, with its identity and the first map of this start.
    pub fn new(
        bucket: Arc<Bucket<Store>>,
        workers: Workers<Store>,
        (uuid, settings): (String, BucketSettings),
        map: MapVersion,
    ) -> Self {
        Self {
            claims: Claims::new(bucket.vbuckets()),
            bucket,
            workers,
            uuid,
            settings: RwLock::new(settings),
            gone: AtomicBool::new(false),
            dcp: DcpRegistry::default(),
            operations: Rate::default(),
            loans: Loans::default(),
            admission_queue: Arc::default(),
            map: RwLock::new(map),
            group: RwLock::default(),
            shown_uuid: RwLock::new(None),
            follower: OnceLock::new(),
        }
    }

    /// Where its documents live.
    pub fn kind(&self) -> BucketKind {
        self.settings.read().bucket.kind
    }

    /// What it was made with. The quota in force is that of its memory.
    pub fn settings(&self) -> BucketSettings {
        self.settings.read().clone()
    }

    /// Notes other settings; to follow them is the caller's.
    pub fn set_settings(&self, settings: BucketSettings) {
        *self.settings.write() = settings;
    }

    /// Whether the bucket is being removed: connections that select it now are to end.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// From now on it is gone.
    pub fn set_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// The current cluster map.
    pub fn map(&self) -> MapVersion {
        self.map.read().clone()
    }

    /// Replaces the cluster map; connections and streams are told by the caller.
    pub fn set_map(&self, map: MapVersion) {
        *self.map.write() = map;
    }

    /// The other nodes that have this bucket.
    pub fn group(&self) -> Group {
        self.group.read().clone()
    }

    /// Sets the other nodes; the map is the caller's to change.
    pub fn set_group(&self, group: Group) {
        *self.group.write() = group;
    }

    /// The identity that clients are told: that of the bucket which is followed.
    pub fn shown_uuid(&self) -> Arc<str> {
        let shown = self.shown_uuid.read().clone();
        shown.unwrap_or_else(|| self.uuid.as_str().into())
    }

    /// Sets the identity that clients are told.
    pub fn show_uuid(&self, uuid: &str) {
        *self.shown_uuid.write() = Some(uuid.into());
    }

    /// What makes this bucket follow another node's, if it does or did.
    pub fn follower(&self) -> Option<&Arc<dyn Follows>> {
        self.follower.get()
    }

    /// Notes what makes this bucket follow; once.
    pub fn set_follower(&self, follower: Arc<dyn Follows>) {
        let first = self.follower.set(follower).is_ok();
        assert!(first, "a bucket follows one other");
    }

    /// The bucket's name.
    pub fn name(&self) -> &str {
        self.bucket.name()
    }
}
