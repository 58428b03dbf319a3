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
    MapRevision, MapRows, NodeAddress, bucket_config,
};
use crate::dcp::DcpRegistry;
use crate::group::Group;
use crate::loans::Loans;
use crate::maps::{MapVersion, NodeReach, group_nodes, group_row};
use crate::progress::Progress;
use crate::rate::{Rate, Rates};
use crate::recaching::Recaching;
use crate::settings::{BucketKind, BucketSettings};
use crate::store::Store;

/// The link that makes a bucket follow that of another node.
pub trait Follows: Send + Sync {
    /// Returns the progress of the link.
    fn progress(&self) -> &Progress;

    /// Checks whether the bucket follows, or will: true until it is promoted or stopped.
    fn follows(&self) -> bool;

    /// Starts to make the vBuckets active. With `force`, does so even if changes cannot be fetched first. Does not wait
    /// for the end.
    fn promote(&self, force: bool);

    /// Ends the link, and waits for the end.
    fn stop(&self);
}

/// A bucket that runs and is not served yet.
pub struct OpenedBucket {
    /// The running bucket.
    pub bucket: Arc<Bucket<Store>>,
    /// Worker threads of the bucket.
    pub workers: Workers<Store>,
    /// UUID of the bucket, 32 hex digits.
    pub uuid: String,
    /// Settings of the bucket.
    pub settings: BucketSettings,
    /// Epoch of the bucket's map.
    pub epoch: i64,
    /// The nodes that have the bucket, as far as they are known.
    pub group: Group,
}

/// A bucket with the state that is needed to serve it.
pub struct ServedBucket {
    /// The running bucket.
    pub bucket: Arc<Bucket<Store>>,
    /// Worker threads of the bucket.
    pub workers: Workers<Store>,
    /// UUID of the bucket, 32 hex digits.
    pub uuid: String,
    settings: RwLock<BucketSettings>,
    /// True if the bucket cannot be selected any more.
    gone: AtomicBool,
    /// Connections that stream changes of the bucket.
    pub dcp: DcpRegistry,
    /// The connection that brings the changes of each vBucket.
    pub claims: Claims,
    /// Rate of operations on documents.
    pub operations: Rate,
    /// Rate of documents that are read back from the store.
    pub fetches: Rate,
    /// Rates of the counters that monitoring reads.
    pub rates: Rates,
    /// Longest wait of a client for a seqno to become durable; `None` for the setting of the node.
    pub persistence_wait: RwLock<Option<Duration>>,
    /// Large values that HTTP readers of changes hold.
    pub loans: Loans,
    /// Documents that clients of the meta protocol are rebuilding.
    pub recaching: Recaching,
    /// Connections with a large request that waits for quota.
    pub admission_queue: Arc<AdmissionQueue>,
    map: RwLock<MapVersion>,
    group: RwLock<Group>,
    /// UUID of the bucket in the map, if it is another node's UUID.
    shown_uuid: RwLock<Option<Arc<str>>>,
    follower: OnceLock<Arc<dyn Follows>>,
}

impl ServedBucket {
    /// Creates a served bucket with its first map.
    pub fn new(opened: OpenedBucket, at: NodeReach<'_>, revision: MapRevision) -> Self {
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

    /// Builds the cluster map of this revision for a group of nodes.
    pub fn current_map(
        &self,
        group: &Group,
        at: NodeReach<'_>,
        revision: MapRevision,
    ) -> MapVersion {
        let nodes = group_nodes(at, group);
        let rows = MapRows::Same(self.bucket.vbuckets(), group_row(nodes.len()));
        self.map_of(&nodes, rows, (nodes.len() - 1) as u8, revision)
    }

    /// Builds the cluster map of this revision with these nodes and rows.
    pub(crate) fn map_of(
        &self,
        nodes: &[NodeAddress<'_>],
        rows: MapRows<'_>,
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

    /// Returns where the documents live.
    pub fn kind(&self) -> BucketKind {
        self.settings.read().bucket.kind
    }

    /// Returns the settings. The quota in force is that of the bucket's memory.
    pub fn settings(&self) -> BucketSettings {
        self.settings.read().clone()
    }

    /// Replaces the settings; the caller applies them.
    pub fn set_settings(&self, settings: BucketSettings) {
        *self.settings.write() = settings;
    }

    /// Checks whether the bucket is being removed: connections that select it must end.
    pub fn is_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Marks the bucket as removed.
    pub fn set_gone(&self) {
        self.gone.store(true, Ordering::SeqCst);
    }

    /// Returns the current cluster map.
    pub fn map(&self) -> MapVersion {
        self.map.read().clone()
    }

    /// Replaces the cluster map; the caller notifies connections and streams.
    pub fn set_map(&self, map: MapVersion) {
        *self.map.write() = map;
    }

    /// Replaces the cluster map if `map` is newer. Returns whether it is.
    pub(crate) fn advance_map(&self, map: MapVersion) -> bool {
        let mut now = self.map.write();
        let newer = map.revision > now.revision;
        if newer {
            *now = map;
        }
        newer
    }

    /// Returns the other nodes that have this bucket.
    pub fn group(&self) -> Group {
        self.group.read().clone()
    }

    /// Sets the other nodes; the caller changes the map.
    pub fn set_group(&self, group: Group) {
        *self.group.write() = group;
    }

    /// Returns the UUID that clients see: that of the followed bucket, if there is one.
    pub fn shown_uuid(&self) -> Arc<str> {
        let shown = self.shown_uuid.read().clone();
        shown.unwrap_or_else(|| self.uuid.as_str().into())
    }

    /// Sets the UUID that clients see.
    pub fn show_uuid(&self, uuid: &str) {
        *self.shown_uuid.write() = Some(uuid.into());
    }

    /// Returns the link that makes this bucket follow another node's, if it does or did.
    pub fn follower(&self) -> Option<&Arc<dyn Follows>> {
        self.follower.get()
    }

    /// Sets the link that makes this bucket follow; once only.
    pub fn set_follower(&self, follower: Arc<dyn Follows>) {
        let first = self.follower.set(follower).is_ok();
        assert!(first, "a bucket follows one other");
    }

    /// Returns the bucket's name.
    pub fn name(&self) -> &str {
        self.bucket.name()
    }
}
