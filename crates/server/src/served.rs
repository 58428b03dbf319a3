//! A bucket as the server sees it: the running bucket, its identity and its cluster map.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use bucket::{Bucket, Workers};
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::changes::Pieces;
use crate::cluster_map::MapRevision;
use crate::config::{BucketKind, BucketSettings};
use crate::net::Line;
use crate::rate::Rate;
use crate::replication::{Claims, Follower, Group};
use crate::session::dcp::DcpRegistry;
use crate::store::Store;

/// One revision of a bucket's cluster map.
#[derive(Clone, Debug)]
pub(crate) struct MapVersion {
    pub(crate) revision: MapRevision,
    pub(crate) json: Arc<str>,
}

/// A bucket and what is served around it.
pub(crate) struct ServedBucket {
    pub(crate) bucket: Arc<Bucket<Store>>,
    pub(crate) workers: Workers<Store>,
    /// 32 hex digits.
    pub(crate) uuid: String,
    settings: RwLock<BucketSettings>,
    /// Nobody may select it any more.
    gone: AtomicBool,
    /// Connections that stream its changes.
    pub(crate) dcp: DcpRegistry,
    /// Which connection brings the changes of which vBucket here.
    pub(crate) claims: Claims,
    /// How many operations on documents there are.
    pub(crate) operations: Rate,
    /// What HTTP streams of its changes have made and not sent.
    pub(crate) pieces: Pieces,
    /// Who waits for room for a large request.
    pub(crate) line: Arc<Line>,
    map: RwLock<MapVersion>,
    group: RwLock<Group>,
    /// What the map calls the bucket, when that is another node's name for it.
    shown_uuid: RwLock<Option<Arc<str>>>,
    follower: OnceLock<Arc<Follower>>,
    changed: watch::Sender<u64>,
}

impl ServedBucket {
    pub(crate) fn new(
        bucket: Arc<Bucket<Store>>,
        workers: Workers<Store>,
        (uuid, settings): (String, BucketSettings),
        map: MapVersion,
    ) -> Self {
        let (changed, _) = watch::channel(0);
        Self {
            claims: Claims::new(bucket.vbuckets()),
            bucket,
            workers,
            uuid,
            settings: RwLock::new(settings),
            gone: AtomicBool::new(false),
            dcp: DcpRegistry::default(),
            operations: Rate::default(),
            pieces: Pieces::default(),
            line: Arc::default(),
            map: RwLock::new(map),
            group: RwLock::default(),
            shown_uuid: RwLock::new(None),
            follower: OnceLock::new(),
            changed,
        }
    }

    /// Where its documents live.
    pub(crate) fn kind(&self) -> BucketKind {
        self.settings.read().bucket.kind
    }

    /// What it was made with. The quota in force is that of its memory.
    pub(crate) fn settings(&self) -> BucketSettings {
        self.settings.read().clone()
    }

    /// Notes other settings; to follow them is the caller's.
    pub(crate) fn set_settings(&self, settings: BucketSettings) {
        *self.settings.write() = settings;
    }

    /// Whether the bucket is being removed: connections that select it now are to end.
    pub(crate) fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// From now on it is gone; HTTP streams of its map look again, and end.
    pub(crate) fn set_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// The current cluster map.
    pub(crate) fn map(&self) -> MapVersion {
        self.map.read().clone()
    }

    /// Replaces the cluster map; HTTP streams hear of it, connections are told by the caller.
    pub(crate) fn set_map(&self, map: MapVersion) {
        *self.map.write() = map;
        self.changed.send_modify(|changes| *changes += 1);
    }

    /// Wakes when the map changes.
    pub(crate) fn map_changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The other nodes that have this bucket.
    pub(crate) fn group(&self) -> Group {
        self.group.read().clone()
    }

    /// Sets the other nodes; the map is the caller's to change.
    pub(crate) fn set_group(&self, group: Group) {
        *self.group.write() = group;
    }

    /// The identity that clients are told: that of the bucket which is followed.
    pub(crate) fn shown_uuid(&self) -> Arc<str> {
        let shown = self.shown_uuid.read().clone();
        shown.unwrap_or_else(|| self.uuid.as_str().into())
    }

    /// Sets the identity that clients are told.
    pub(crate) fn show_uuid(&self, uuid: &str) {
        *self.shown_uuid.write() = Some(uuid.into());
    }

    /// What makes this bucket follow another node's, if it does or did.
    pub(crate) fn follower(&self) -> Option<&Arc<Follower>> {
        self.follower.get()
    }

    /// Notes what makes this bucket follow; once.
    pub(crate) fn set_follower(&self, follower: Arc<Follower>) {
        let first = self.follower.set(follower).is_ok();
        assert!(first, "a bucket follows one other");
    }

    /// The bucket's name.
    pub(crate) fn name(&self) -> &str {
        self.bucket.name()
    }
}
