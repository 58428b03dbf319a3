//! The node as HTTP management sees it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use audit::{Recorder, Settings};
use bucket::{Counters, FlusherState, Purpose, Reservation, WarmupStage};
use collections::{Manifest, ManifestError};
use engine::VbStats;
use identity::{AuthenticatedUser, Directory, Identity, LoginTurn};
use management::{
    ActiveNode, BucketChange, BucketSummary, BucketsError, ChangeSelection, ClusterChange,
    EditSettings, Feed, FeedReader, NoFeed, NodeSummary, NodeView, UsersError,
};
use model::{VbId, VbState};
use registry::cluster::ClusterMember;
use registry::cluster_map::AlternateAddress;
use registry::collections::CollectionsError;
use registry::{BucketSettings, COMPATIBLE_VERSION, ServedBucket};
use stats::Samples;
use storage::{DiskUsage, KvStore};
use tls::{Tls, Trust};
use tokio::sync::watch;

use super::agreed::agree_on_manifest;
use super::buckets::settings_in_force;
use super::state::NodeState;

impl NodeView for NodeState {
    fn identity(&self) -> &Identity {
        &self.registry.identity
    }

    fn is_open(&self) -> bool {
        NodeState::is_open(self)
    }

    fn change_users(&self, edit: &mut dyn FnMut(&mut Directory) -> bool) -> Result<(), UsersError> {
        let now_ns = self.clock.now().unix_ns;
        if let Some(member) = self.registry.cluster.get() {
            return self.agree_on_users(&**member, edit);
        }
        let edited = self.world.users().edit(now_ns, edit);
        edited.map_err(UsersError::Failed)?;
        self.users_changed();
        Ok(())
    }

    fn audit(&self) -> &Recorder {
        &self.registry.audit
    }

    fn change_audit(&self, settings: Settings) -> Result<(), String> {
        self.world.audit.change(settings, self.clock.now().unix_ns)
    }

    fn users_wait(&self) -> Option<Duration> {
        self.registry.users_wait()
    }

    fn login_turn(&self, peer: IpAddr) -> LoginTurn {
        self.registry.login_turn(peer)
    }

    fn note_login(&self, peer: IpAddr, right: bool) {
        self.registry.note_login(peer, right);
    }

    fn hold_body(&self, bytes: usize) -> Reservation {
        let reservation = self.buffers.reserve(Purpose::Body, bytes, Duration::ZERO);
        if reservation.is_granted() {
            self.buffers.hold_body(bytes);
        }
        reservation
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
                    let done = Counters::read(&warmup.vbuckets_done);
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
        let rates = self
            .load
            .look(&self.registry, self.launcher.data_dir.as_deref());
        NodeSummary {
            cluster_uuid: self.uuid.clone(),
            node_uuid: self.uuid.clone(),
            compatible_version: format!("{COMPATIBLE_VERSION}-community"),
            settee_version: env!("CARGO_PKG_VERSION").into(),
            uptime_s: self.uptime_s(),
            ports: self.shown_ports(),
            cluster: self.cluster.read().clone(),
            memory_quota_bytes: sum(|served| served.bucket.memory().quota()),
            memory_used_bytes: sum(|served| served.bucket.memory().used()),
            disk_used_bytes: sum(|served| disk_usage(served).file_bytes),
            data_path: (self.launcher.data_dir.as_ref())
                .map_or_else(String::new, |path| path.display().to_string()),
            purge_age_s: self.launcher.configured.purge_age_s,
            gets_per_second: rates.gets,
            hits_per_second: rates.hits,
            machine: rates.machine,
        }
    }

    fn bucket_names(&self) -> Vec<String> {
        self.registry.bucket_names()
    }

    fn bucket(&self, name: &str) -> Option<BucketSummary> {
        let served = self.registry.bucket(name)?;
        let bucket = &served.bucket;
        let (mut active, mut replica) = (VbStats::default(), VbStats::default());
        for id in (0..bucket.vbuckets()).map(VbId) {
            match bucket.with_vbucket(id, |vbucket| (vbucket.state(), vbucket.stats())) {
                Some((VbState::Active, stats)) => active += stats,
                Some((VbState::Replica, stats)) => replica += stats,
                _ => {}
            }
        }
        let operations = active.ops_get + active.ops_create + active.ops_update + active.ops_delete;
        let (fetched, now_ns) = (
            Counters::read(&bucket.counters().fetched),
            self.clock.mono_ns(),
        );
        let disk = disk_usage(&served);
        let mut settings = served.settings();
        settings.bucket.quota_bytes = bucket.memory().quota();
        settings.bucket.eviction = bucket.eviction();
        settings.replicas = (served.group().peers.len() as u8).max(settings.replicas);
        Some(BucketSummary {
            uuid: served.uuid.clone(),
            settings,
            items: active.items,
            non_resident: active.non_resident,
            replica_items: replica.items,
            memory_used_bytes: bucket.memory().used(),
            disk_used_bytes: disk.file_bytes,
            disk_data_bytes: disk.data_bytes,
            ops_per_second: served.operations.look(operations, now_ns),
            fetches_per_second: served.fetches.look(fetched, now_ns),
            vbuckets: bucket.vbuckets(),
            manifest_uid: bucket.manifest().uid().0,
            ready: bucket.warmup().stage() == WarmupStage::Done,
        })
    }

    fn samples(&self, name: &str) -> Option<Samples> {
        let served = self.registry.bucket(name)?;
        Some(stats::samples(&self.registry, &served))
    }

    fn bucket_settings(&self, name: &str) -> Option<BucketSettings> {
        Some(settings_in_force(&*self.registry.bucket(name)?))
    }

    fn change_settings(&self, bucket: &str, edit: &EditSettings<'_>) -> Result<(), BucketsError> {
        match self.registry.cluster.get() {
            Some(member) => self.agree_on_settings(&**member, bucket, edit),
            None => self.adjust_bucket(bucket, edit),
        }
    }

    fn change_buckets(&self, change: BucketChange) -> Result<(), BucketsError> {
        if let Some(member) = self.registry.cluster.get() {
            return self.agree_on_bucket(&**member, change);
        }
        match change {
            BucketChange::Make(settings) => self.make_bucket(settings),
            BucketChange::Drop(name) => self.drop_bucket(&name),
            BucketChange::Flush(name) => self.flush_bucket(&name),
            BucketChange::Compact(name) => self.compact_bucket(&name),
        }
    }

    fn active_node(
        &self,
        bucket: Option<&str>,
        as_itself: bool,
    ) -> Option<Result<ActiveNode, String>> {
        let active = |served: &ServedBucket| served.group().active().cloned();
        let found = match bucket.and_then(|name| self.registry.bucket(name)) {
            Some(served) => active(&served)?,
            None => self
                .all_buckets()
                .iter()
                .find_map(|served| active(served))?,
        };
        let link = self.replica_of.as_ref();
        // The active node judges the caller's own credentials; a certificate of this node would take precedence.
        let trust = link.and_then(|link| link.tls.clone());
        let trust = trust.map(|trust| Trust {
            own: trust.own.filter(|_| as_itself),
            ..trust
        });
        let named = link.filter(|link| as_itself && !link.username.is_empty());
        let login = named.map(|link| (link.username.clone(), link.password.clone()));
        let Some((host, port)) = found.management_endpoint(trust.is_some()) else {
            return Some(Err(format!("{} serves no HTTPS", found.host)));
        };
        let tls = trust.as_ref().map(Trust::config).transpose();
        let active = tls.map(|tls| ActiveNode {
            host,
            port,
            tls: tls.map(Arc::new),
            login,
        });
        Some(active.map_err(|error| error.to_string()))
    }

    fn change_cluster(&self, change: ClusterChange) -> Result<(), BucketsError> {
        self.change_cluster_settings(change)
    }

    fn set_external_address(&self, external: Option<AlternateAddress>) -> Result<(), BucketsError> {
        NodeState::set_external_address(self, external)
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

    fn changes(
        &self,
        bucket: &str,
        wanted: &ChangeSelection,
        user: AuthenticatedUser,
    ) -> Result<Feed, NoFeed> {
        let served = self.registry.bucket(bucket).ok_or(NoFeed::NoBucket)?;
        let (clock, env) = (Arc::clone(&self.clock), Arc::clone(&self.env));
        let reader = FeedReader::new(Arc::clone(&self.identity), user);
        Feed::open(&served, clock, env, wanted, reader)
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
        match self.registry.cluster.get() {
            Some(member) => agree_on_manifest(&**member, bucket, edit),
            None => Some(registry::collections::change(&self.registry, &served, edit)),
        }
    }

    fn authority(&self) -> Option<Arc<str>> {
        self.tls.as_ref().map(Tls::authority)
    }

    fn reload_certificate(&self) -> Result<(), String> {
        self.reload_certificates()
    }

    fn cluster(&self) -> Option<Arc<dyn ClusterMember>> {
        self.registry.cluster.get().cloned()
    }

    fn metrics(&self) -> String {
        stats::metrics(&self.registry)
    }
}

/// Returns the bytes of the store; zeros if it cannot report them.
fn disk_usage(served: &ServedBucket) -> DiskUsage {
    served.bucket.store().disk_usage().unwrap_or_default()
}
