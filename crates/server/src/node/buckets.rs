//! Creation, change and removal of buckets while the node runs.
//!
//! The wanted state is written to `node.json` first. To drop a bucket, the node records it, removes it from the
//! registry, makes its vBuckets dead, ends its connections, stops its workers and removes its store (at the next start
//! if a crash comes in between). A flush replaces each vBucket that holds documents by an empty one; the store forgets
//! all of them with one sync ([record 35](../../../docs/adr/0035-buckets-come-and-go.md)).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bucket::SetManifestError;
use collections::{Manifest, ManifestError};
use management::{BucketsError, ClusterChange, EditSettings};
use model::{VbId, VbState};
use registry::cluster_map::{AlternateAddress, MapRevision};
use registry::collections::{CollectionsError, to_bytes};
use registry::{
    BucketSettings, ClusterSettings, FlushError, Group, OpenedBucket, ServedBucket, Versioning,
    global_map, publish, publish_cluster, publish_cluster_nodes,
};
use storage::ErrorKind;

use super::memory_limits;
use super::random::random_vb_uuid;
use super::state::NodeState;
use crate::config::StartError;

const MIB: u64 = 1 << 20;

impl NodeState {
    /// Creates a bucket, and serves it before this returns. Blocks for the disk.
    pub(super) fn make_bucket(&self, settings: BucketSettings) -> Result<(), BucketsError> {
        self.make_bucket_as(settings, None, None)
    }

    /// Creates a bucket, with a UUID and collections that the nodes of a cluster agreed on.
    pub(super) fn make_bucket_as(
        &self,
        settings: BucketSettings,
        uuid: Option<&str>,
        manifest: Option<Manifest>,
    ) -> Result<(), BucketsError> {
        let _turn = self.world.changing();
        let name = settings.bucket.name.clone();
        if self.bucket(&name).is_some() {
            return Err(BucketsError::Exists);
        }
        if self.bucket_names().len() >= self.buckets_max {
            return Err(BucketsError::TooMany(self.buckets_max));
        }
        self.check_quota(settings.bucket.quota_bytes, None)?;
        let served = {
            let mut kept = self.world.kept();
            kept.remove_dropped()?;
            if let Some(path) = kept.dir.as_ref().map(|dir| dir.bucket(&name))
                && path.exists()
            {
                // This is the store of a bucket that was once configured. The node must not delete it.
                return Err(BucketsError::Occupied(path));
            }
            let uuid = kept.update(|identities| identities.add_made(&settings, uuid))?;
            let opened = self.launcher.open_new(settings, &kept, uuid);
            match opened.and_then(|opened| with_collections(opened, manifest)) {
                Ok(opened) => self.serve(opened),
                Err(error) => {
                    // The next attempt removes its store, even if the disk is too full to record that.
                    let undone = kept.change_and_save(|kept| kept.add_dropped(&name));
                    tracing::debug!(?undone, "the bucket was not made");
                    return Err(error.into());
                }
            }
        };
        // In a cluster, clients shall never get a map of this node alone.
        publish_cluster(&self.registry, &served);
        self.buckets.write().insert(name, served);
        self.wake_all();
        self.env.maps_changed();
        memory_limits::tell(self.quota_bytes());
        Ok(())
    }

    /// Returns the sum of the quotas of all buckets but one, bytes.
    fn quotas_bytes(&self, without: Option<&str>) -> u64 {
        let all = self.all_buckets();
        let others = all.iter().filter(|one| Some(one.name()) != without);
        others.map(|one| one.bucket.memory().quota()).sum()
    }

    /// Checks that a bucket with this quota, `name` or a new one, fits into the quota of the node.
    pub(super) fn check_quota(&self, bytes: u64, name: Option<&str>) -> Result<(), BucketsError> {
        let Some(limit_mib) = self.cluster.read().memory_quota_mib else {
            return Ok(());
        };
        let others = self.quotas_bytes(name);
        if others.saturating_add(bytes) > limit_mib.saturating_mul(MIB) {
            return Err(BucketsError::QuotaTooLarge(limit_mib));
        }
        Ok(())
    }

    /// Changes settings of the whole node, such as its name, the sum of quotas and the use of client certificates, and
    /// keeps them over a restart. Blocks for the disk.
    pub(super) fn change_cluster_settings(
        &self,
        change: ClusterChange,
    ) -> Result<(), BucketsError> {
        let _turn = self.world.changing();
        let mut cluster = self.cluster.read().clone();
        if let Some(name) = change.name {
            cluster.name = name;
        }
        if let Some(quota_mib) = change.memory_quota_mib {
            let least_mib = self.quotas_bytes(None).div_ceil(MIB);
            if quota_mib < least_mib {
                return Err(BucketsError::QuotaTooSmall(least_mib));
            }
            cluster.memory_quota_mib = Some(quota_mib);
        }
        if let Some(settings) = &change.client_certificates {
            let refused = self.check_client_certificates(settings);
            refused.map_err(BucketsError::NoClientAuthority)?;
            cluster.client_certificates = Some(settings.clone());
        }
        if let Some(asked) = change.stands_in_for {
            cluster.stands_in_for = asked;
        }
        cluster.provisioned |= change.provisioned;
        if change.auto_compaction.is_some() {
            cluster.auto_compaction = change.auto_compaction;
        }
        self.keep_cluster(cluster)?;
        self.set_purge_ages();
        if let Some(settings) = change.client_certificates {
            self.set_client_certificates(settings);
        }
        Ok(())
    }

    /// Sets the age at which each bucket purges tombstones: its own setting, that of the node, or the start option.
    fn set_purge_ages(&self) {
        let cluster = self.cluster.read();
        for served in self.all_buckets() {
            let age_s = self
                .launcher
                .configured
                .purge_age_s(&served.settings(), &cluster);
            served.bucket.set_purge_age_s(age_s);
        }
    }

    /// Stores the settings of the whole node, and publishes those that clients need.
    fn keep_cluster(&self, cluster: ClusterSettings) -> Result<(), BucketsError> {
        self.world
            .kept()
            .update(|identities| identities.cluster.clone_from(&cluster))?;
        let before = std::mem::replace(&mut *self.cluster.write(), cluster.clone());
        if (&before.external, &before.stands_in_for) == (&cluster.external, &cluster.stands_in_for)
        {
            return Ok(());
        }
        *self.external.write() = cluster.external;
        *self.stands_in_for.write() = cluster.stands_in_for;
        self.tell_where_it_is();
        Ok(())
    }

    /// Publishes new maps with the current addresses of the node.
    fn tell_where_it_is(&self) {
        let buckets = self.all_buckets();
        if self.registry.cluster.get().is_some() {
            publish_cluster_nodes(&self.registry);
        } else if buckets.is_empty() {
            let revision = self.global_map().revision.next();
            let external = self.external.read().clone();
            let at = self.reached(external.as_ref());
            self.publish_global_map(global_map(at, &Group::default(), revision));
        }
        for served in buckets {
            let revision = served.map().revision;
            // A bucket that follows another node's has the map revisions of that node.
            let follows = served.group().active().is_some();
            let revision = if follows { revision } else { revision.next() };
            publish(&self.registry, &served, revision);
        }
    }

    /// Adds the system scope to each bucket that is active here, if an older version created it without. A cluster
    /// agrees on the collections of its buckets. Blocks for the disk.
    pub(super) fn complete_collections(&self) {
        if self.registry.cluster.get().is_some() {
            return;
        }
        for served in self.all_buckets() {
            let edit = |now: &Manifest| complete(now, false);
            match registry::collections::change(&self.registry, &served, &edit) {
                Ok(_) | Err(CollectionsError::Follows(_)) => {}
                Err(error) => {
                    let bucket = served.name();
                    tracing::warn!(bucket, %error, "the scope _system could not be made");
                }
            }
        }
    }

    /// Sets the address for clients outside of the node's network, `None` for no such address; keeps it over a restart.
    /// Blocks for the disk.
    pub(super) fn set_external_address(
        &self,
        external: Option<AlternateAddress>,
    ) -> Result<(), BucketsError> {
        let _turn = self.world.changing();
        let mut cluster = self.cluster.read().clone();
        cluster.external = external;
        self.keep_cluster(cluster)
    }

    fn serve(&self, opened: OpenedBucket) -> Arc<ServedBucket> {
        let all = self.all_buckets();
        let revs = all.iter().map(|served| served.map().revision.rev);
        let floor = self.revs.load(Ordering::SeqCst);
        let now = i64::from(self.clock.now().unix_s());
        let revision = MapRevision {
            epoch: opened.epoch,
            rev: revs
                .chain([now, self.global_map().revision.rev])
                .max()
                .unwrap_or(now)
                .max(floor + 1),
        };
        let external = self.external.read();
        let at = self.reached(external.as_ref());
        Arc::new(ServedBucket::new(opened, at, revision))
    }

    /// Changes the settings of a bucket, and keeps them over a restart. Blocks for the disk.
    pub(super) fn adjust_bucket(
        &self,
        name: &str,
        edit: &EditSettings<'_>,
    ) -> Result<(), BucketsError> {
        let _turn = self.world.changing();
        let served = self.bucket(name).ok_or(BucketsError::Unknown)?;
        let now = settings_in_force(&served);
        let noted = now.versioning.max_cas.clone();
        let mut settings = edit(now)?;
        note_max_cas(&mut settings.versioning, noted, &served);
        let (before, quota_bytes) = (served.bucket.memory().quota(), settings.bucket.quota_bytes);
        if quota_bytes > before {
            self.check_quota(quota_bytes, Some(name))?;
        }
        let set_quota = |quota_bytes| {
            let changed = served.bucket.change_limits(|limits| {
                limits.quota_bytes = quota_bytes;
                Ok(())
            });
            changed.map_err(|reason| BucketsError::Failed(reason.to_owned()))
        };
        set_quota(quota_bytes)?;
        if let Err(error) = self.world.obey(&served, settings) {
            set_quota(before)?;
            return Err(error.into());
        }
        // Nodes that follow this one read the settings again.
        self.connections.map_changed();
        Ok(())
    }

    /// Removes a bucket and all its data; connections to it are closed. Blocks for the disk.
    pub(super) fn drop_bucket(&self, name: &str) -> Result<(), BucketsError> {
        let _turn = self.world.changing();
        let served = self.bucket(name).ok_or(BucketsError::Unknown)?;
        if served.group().active().is_some() {
            return Err(BucketsError::Follows);
        }
        self.world
            .kept()
            .update(|identities| identities.add_dropped(name))?;
        self.buckets.write().remove(name);
        self.revs
            .fetch_max(served.map().revision.rev, Ordering::SeqCst);
        served.set_gone();
        self.env.maps_changed();
        for id in (0..served.bucket.vbuckets()).map(VbId) {
            served.claims.revoke(id);
            // This ends the streams, so that a write that is thrown away is not sent.
            let dead = served
                .bucket
                .set_vbucket(id, VbState::Dead, None, random_vb_uuid());
            tracing::trace!(?dead, vb = id.0, "a vBucket ends with its bucket");
        }
        self.connections.leave_bucket(name);
        if let Err(error) = served.workers.stop() {
            tracing::warn!(bucket = name, %error, "a bucket that is removed did not stop well");
        }
        Ok(self.world.kept().remove_dropped()?)
    }

    /// Removes every document of a bucket: each vBucket begins a new history, with the same collections. Blocks for the
    /// disk.
    pub(super) fn flush_bucket(&self, name: &str) -> Result<(), BucketsError> {
        let served = self.bucket(name).ok_or(BucketsError::Unknown)?;
        let flushed = self.env.flush(&served);
        self.wake_all();
        flushed.map_err(|error| match error {
            FlushError::Disabled => BucketsError::FlushDisabled,
            FlushError::Follows => BucketsError::Follows,
            FlushError::Failed(why) => BucketsError::Failed(why),
        })
    }

    /// Schedules a compaction of every vBucket; waits for none.
    pub(super) fn compact_bucket(&self, name: &str) -> Result<(), BucketsError> {
        let served = self.bucket(name).ok_or(BucketsError::Unknown)?;
        let asked = served.bucket.ask_compaction_of_all();
        asked.then_some(()).ok_or(BucketsError::Busy)
    }
}

/// Returns the settings of a bucket, with the quota that it has.
pub(super) fn settings_in_force(served: &ServedBucket) -> BucketSettings {
    let mut settings = served.settings();
    settings.bucket.quota_bytes = served.bucket.memory().quota();
    settings
}

/// Records the highest CAS of each vBucket at the time when versioning is enabled, if it is not `noted` yet.
fn note_max_cas(versioning: &mut Versioning, noted: Vec<u64>, served: &ServedBucket) {
    if versioning.max_cas.is_empty() {
        versioning.max_cas = noted;
    }
    if !versioning.enabled || !versioning.max_cas.is_empty() {
        return;
    }
    let max_cas = |id| {
        let found = served
            .bucket
            .with_vbucket(id, |vbucket| vbucket.max_cas().0);
        found.unwrap_or(0)
    };
    versioning.max_cas = (0..served.bucket.vbuckets())
        .map(VbId)
        .map(max_cas)
        .collect();
}

/// Adds the collections to a new bucket: those of `manifest`, or the initial ones. Stops the bucket if it cannot have them: its workers share it.
pub(super) fn with_collections(
    opened: OpenedBucket,
    manifest: Option<Manifest>,
) -> Result<OpenedBucket, StartError> {
    let history = opened.settings.history.of_new_collections();
    let edit = |now: &Manifest| manifest.map_or_else(|| complete(now, history), Ok);
    if let Err(error) = opened.bucket.change_manifest(edit, to_bytes) {
        let stopped = opened.workers.stop();
        tracing::debug!(?stopped, "a new bucket without collections ends");
        let text = error.to_string();
        return Err(match error {
            SetManifestError::Store(error) if error.kind == ErrorKind::NoSpace => {
                StartError::NoSpace(text)
            }
            _ => StartError::DataAccess(text),
        });
    }
    Ok(opened)
}

/// Adds the system scope if it is missing. If new collections have `history` by default, the default collection of a
/// new bucket gets it, too.
pub(super) fn complete(now: &Manifest, history: bool) -> Result<Manifest, ManifestError> {
    let next = now.with_system_scope()?.unwrap_or_else(|| now.clone());
    if history {
        return next.with_settings("_default", "_default", |settings| settings.history = true);
    }
    Ok(next)
}

impl From<StartError> for BucketsError {
    fn from(error: StartError) -> Self {
        match error {
            StartError::NoSpace(reason) => Self::NoSpace(reason),
            _ => Self::Failed(error.to_string()),
        }
    }
}
