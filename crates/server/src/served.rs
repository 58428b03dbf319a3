//! A bucket as the server sees it: the running bucket, its identity and its cluster map.

use std::sync::Arc;

use bucket::{Bucket, Workers};
use parking_lot::RwLock;
use tokio::sync::watch;

use crate::cluster_map::MapRevision;
use crate::config::BucketKind;
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
    pub(crate) kind: BucketKind,
    map: RwLock<MapVersion>,
    changed: watch::Sender<u64>,
}

impl ServedBucket {
    pub(crate) fn new(
        bucket: Arc<Bucket<Store>>,
        workers: Workers<Store>,
        (uuid, kind): (String, BucketKind),
        map: MapVersion,
    ) -> Self {
        let (changed, _) = watch::channel(0);
        Self {
            bucket,
            workers,
            uuid,
            kind,
            map: RwLock::new(map),
            changed,
        }
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

    /// The bucket's name.
    pub(crate) fn name(&self) -> &str {
        self.bucket.name()
    }
}
