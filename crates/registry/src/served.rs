//! A bucket as the server sees it: the running bucket, its identity and its cluster map.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bucket::{Bucket, Workers};
use parking_lot::RwLock;

use crate::admission_queue::AdmissionQueue;
use crate::claims::Claims;
use crate::cluster_map::{
    BUCKET_CAPABILITIES, BucketMap, DISK_BUCKET_CAPABILITIES, HISTORY_BUCKET_CAPABILITIES,
    MapRevision, NodeAddress, Rows, bucket_config,
};
use crate::dcp::DcpRegistry;
use crate::group::Group;
use crate::loans::Loans;
use crate::maps::{MapVersion, Reached, group_nodes, group_row};
use crate::progress::Progress;
use crate::rate::{Rate, Rates};
use crate::recaching::Recaching;
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

/// A bucket that runs and is not served yet.
pub struct OpenedBucket {
    /// The running bucket.
    pub bucket: Arc<Bucket<Store>>,
    /// Its threads.
    pub workers: Workers<Store>,
    /// 32 hex digits.
    pub uuid: String,
    /// What it was made with.
    pub settings: BucketSettings,
    /// Of its map.
    pub epoch: i64,
    /// The nodes that have it, as far as they are known by now.
    pub group: Group,
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
    /// How many documents are read back from the store.
    pub fetches: Rate,
    /// How fast what monitoring reads of it rises.
    pub rates: Rates,
    /// How long a client waits for a seqno to become durable; `None` for what the node says.
    pub persistence_wait: RwLock<Option<Duration>>,
    /// Large values that HTTP readers of its changes hold.
    pub loans: Loans,
    /// What clients of the meta protocol make anew.
    pub recaching: Recaching,
    /// Connections with a large request that waits for quota.
    pub admission_queue: Arc<AdmissionQueue>,
    map: RwLock<MapVersion>,
    group: RwLock<Group>,
    /// What the map calls the bucket, when that is another node's name for it.
    shown_uuid: RwLock<Option<Arc<str>>>,
    follower: OnceLock<Arc<dyn Follows>>,
}

impl ServedBucket {
    /// A bucket that runs, with the first map of this start.
    pub fn new(opened: OpenedBucket, at: Reached<'_>, revision: MapRevision) -> Self {
        let json = Arc::default();
        let mut served = Self {
            claims: Claims::new(opened.bucket.vbuckets()),
            bucket: opened.bucket,
            workers: opened.workers,
            uuid: opened.uuid,
            settings: RwLock::new(opened.settings),
            gone: AtomicBool::new(false),
            dcp: DcpRegistry::default(),
            operations: Rate::default(),
            fetches: Rate::default(),
            rates: Rates::default(),
            persistence_wait: RwLock::new(None),
            loans: Loans::default(),
            recaching: Recaching::default(),
            admission_queue: Arc::default(),
            map: RwLock::new(MapVersion { revision, json }),
            group: RwLock::new(opened.group),
            shown_uuid: RwLock::new(None),
            follower: OnceLock::new(),
        };
        let map = served.current_map(&served.group(), at, revision);
        *served.map.get_mut() = map;
        served
    }

    /// The cluster map of this revision, as the bucket is now, for a group of nodes.
    pub fn current_map(&self, group: &Group, at: Reached<'_>, revision: MapRevision) -> MapVersion {
        let nodes = group_nodes(at, group);
        let rows = Rows::Same(self.bucket.vbuckets(), group_row(nodes.len()));
        self.map_of(&nodes, rows, (nodes.len() - 1) as u8, revision)
    }

    /// The cluster map of this revision, as the bucket is now, of these nodes.
    pub(crate) fn map_of(
        &self,
        nodes: &[NodeAddress<'_>],
        rows: Rows<'_>,
        replicas: u8,
        revision: MapRevision,
    ) -> MapVersion {
        let (uuid, settings) = (self.shown_uuid(), self.settings());
        let map = BucketMap {
            name: self.name(),
            uuid: &uuid,
            revision,
            replicas,
            manifest_uid: self.bucket.manifest().uid().0,
            capabilities: match settings.bucket.kind {
                BucketKind::Couchbase if settings.history.magma => HISTORY_BUCKET_CAPABILITIES,
                BucketKind::Couchbase => DISK_BUCKET_CAPABILITIES,
                BucketKind::Ephemeral => BUCKET_CAPABILITIES,
            },
            nodes,
            rows,
        };
        let json = bucket_config(&map).into();
        MapVersion { revision, json }
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

    /// Replaces the cluster map by a newer one; returns whether it is.
    pub(crate) fn advance_map(&self, map: MapVersion) -> bool {
        let mut now = self.map.write();
        let newer = map.revision > now.revision;
        if newer {
            *now = map;
        }
        newer
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
