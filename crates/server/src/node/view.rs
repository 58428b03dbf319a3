//! What HTTP management sees of the node.

use std::net::IpAddr;
use std::sync::Arc;

use bucket::{FlusherState, WarmupStage};
use engine::collections::{Manifest, ManifestError};
use identity::{AuthenticatedUser, LoginTurn};
use management::{
    BucketChange, BucketSummary, BucketsError, ClusterChange, Eviction, Feed, NoFeed, NodeSummary,
    NodeView, Wanted,
};
use model::VbId;
use registry::collections::CollectionsError;
use registry::{BucketSettings, COMPATIBLE_VERSION, EvictionPolicy, ServedBucket, collections};
use storage::KvStore;
use tls::Tls;
use tokio::sync::watch;

use super::NodeState;

impl NodeView for NodeState {
    fn authenticate(&self, name: &str, password: &[u8]) -> Option<AuthenticatedUser> {
        self.identity.authenticate(name, password)
    }

    fn login_turn(&self, peer: IpAddr) -> LoginTurn {
        self.registry.login_turn(peer)
    }

    fn note_login(&self, peer: IpAddr, right: bool) {
        self.registry.note_login(peer, right);
    }

    fn hold_body(&self, bytes: usize) -> bool {
        self.buffers.hold_body(bytes)
    }

    fn release_body(&self, bytes: usize) {
        self.buffers.release_body(bytes);
    }

    fn ready(&self) -> Result<(), String> {
        for served in self.all_buckets() {
            let name = served.name();
            let warmup = served.bucket.warmup();
            match warmup.stage() {
                WarmupStage::Done => {}
                WarmupStage::Loading => {
                    let done = bucket::Counters::read(&warmup.vbuckets_done);
                    let all = served.bucket.vbuckets();
                    return Err(format!(
                        "bucket {name} is loading: {done} of {all} vBuckets"
                    ));
                }
                WarmupStage::Failed => return Err(format!("bucket {name} could not be loaded")),
            }
            if served.bucket.flusher_state() == FlusherState::Failed {
                return Err(format!(
                    "bucket {name} cannot persist any more; see the log"
                ));
            }
        }
        Ok(())
    }

    fn unix_ms(&self) -> u64 {
        self.clock.now().unix_ns / 1_000_000
    }

    fn node(&self) -> NodeSummary {
        let buckets = self.all_buckets();
        let sum = |of: fn(&ServedBucket) -> u64| buckets.iter().map(|bucket| of(bucket)).sum();
        NodeSummary {
            cluster_uuid: self.uuid.clone(),
            node_uuid: self.uuid.clone(),
            compatible_version: format!("{COMPATIBLE_VERSION}-community"),
            settee_version: env!("CARGO_PKG_VERSION").into(),
            uptime_s: self.uptime_s(),
            ports: self.ports,
            cluster: self.cluster.read().clone(),
            memory_quota_bytes: sum(|served| served.bucket.memory().quota()),
            memory_used_bytes: sum(|served| served.bucket.memory().used()),
            disk_used_bytes: sum(|served| disk_bytes(served).1),
        }
    }

    fn bucket_names(&self) -> Vec<String> {
        self.registry.bucket_names()
    }

    fn bucket(&self, name: &str) -> Option<BucketSummary> {
        let served = self.registry.bucket(name)?;
        let bucket = &served.bucket;
        let (mut items, mut operations) = (0, 0);
        for id in (0..bucket.vbuckets()).map(VbId) {
            if let Some(stats) = bucket.with_vbucket(id, |vbucket| vbucket.stats()) {
                items += stats.items;
                operations +=
                    stats.ops_get + stats.ops_create + stats.ops_update + stats.ops_delete;
            }
        }
        let (data, file) = disk_bytes(&served);
        let settings = served.settings();
        Some(BucketSummary {
            uuid: served.uuid.clone(),
            kind: served.kind(),
            quota_bytes: bucket.memory().quota(),
            items,
            memory_used_bytes: bucket.memory().used(),
            disk_used_bytes: file,
            disk_data_bytes: data,
            ops_per_second: served.operations.look(operations, self.clock.mono_ns()),
            eviction: match bucket.options().eviction {
                EvictionPolicy::Values => Eviction::ValueOnly,
                EvictionPolicy::Documents => Eviction::Full,
                EvictionPolicy::Delete => Eviction::Delete,
                EvictionPolicy::None => Eviction::None,
            },
            durability_min: bucket.options().vb.durability_min,
            replicas: (served.group().peers.len() as u8).max(settings.replicas),
            max_ttl_s: settings.max_ttl_s,
            flush_enabled: settings.flush_enabled,
            history: settings.history,
            vbuckets: bucket.vbuckets(),
            manifest_uid: bucket.manifest().uid().0,
            ready: bucket.warmup().stage() == WarmupStage::Done,
        })
    }

    fn bucket_settings(&self, name: &str) -> Option<BucketSettings> {
        let served = self.registry.bucket(name)?;
        let mut settings = served.settings();
        settings.bucket.quota_bytes = served.bucket.memory().quota();
        Some(settings)
    }

    fn change_buckets(&self, change: BucketChange) -> Result<(), BucketsError> {
        match change {
            BucketChange::Make(settings) => self.make_bucket(settings),
            BucketChange::Adjust(settings) => self.adjust_bucket(settings),
            BucketChange::Drop(name) => self.drop_bucket(&name),
            BucketChange::Flush(name) => self.flush_bucket(&name),
        }
    }

    fn change_cluster(&self, change: ClusterChange) -> Result<(), BucketsError> {
        self.change_cluster_settings(change)
    }

    fn bucket_config(&self, name: &str) -> Option<Arc<str>> {
        Some(self.registry.bucket(name)?.map().json)
    }

    fn global_config(&self) -> Arc<str> {
        self.global_map().json
    }

    fn config_changes(&self, bucket: Option<&str>) -> Option<watch::Receiver<u64>> {
        if let Some(name) = bucket {
            self.registry.bucket(name)?;
        }
        Some(self.world.maps())
    }

    fn changes(&self, bucket: &str, wanted: &Wanted) -> Result<Feed, NoFeed> {
        let served = self.registry.bucket(bucket).ok_or(NoFeed::NoBucket)?;
        let around = (Arc::clone(&self.clock), Arc::clone(&self.env));
        Feed::open(&served, around, wanted)
    }

    fn manifest(&self, bucket: &str) -> Option<Arc<Manifest>> {
        Some(self.registry.bucket(bucket)?.bucket.manifest())
    }

    fn change_manifest(
        &self,
        bucket: &str,
        edit: &dyn Fn(&Manifest) -> Result<Manifest, ManifestError>,
    ) -> Option<Result<Arc<Manifest>, CollectionsError>> {
        let served = self.registry.bucket(bucket)?;
        Some(collections::change(&self.registry, &served, edit))
    }

    fn authority(&self) -> Option<Arc<str>> {
        self.tls.as_ref().map(Tls::authority)
    }

    fn reload_certificate(&self) -> Result<(), String> {
        self.tls.as_ref().map_or(Ok(()), Tls::reload)
    }

    fn metrics(&self) -> String {
        stats::metrics(&self.registry)
    }
}

/// Bytes of live data and of all files; 0 while the store cannot tell.
fn disk_bytes(served: &ServedBucket) -> (u64, u64) {
    let usage = served.bucket.store().disk_usage().unwrap_or_default();
    (usage.data_bytes, usage.file_bytes)
}
