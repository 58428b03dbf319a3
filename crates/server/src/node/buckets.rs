//! Buckets come and go while the node runs.
//!
//! What is to be is written to `node.json` first. To drop a bucket: it is noted, leaves the registry, its vBuckets turn
//! dead, its connections are told to end, its workers stop, its store is removed (at the next start, if a crash comes
//! in between). A flush puts an empty vBucket in the place of each that holds documents; the store forgets all of them
//! with one sync ([record 35](../../../docs/adr/0035-buckets-come-and-go.md)).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use bucket::WarmupStage;
use engine::collections::Manifest;
use management::{BucketsError, ClusterChange};
use model::{VbId, VbState};
use registry::cluster_map::MapRevision;
use registry::{BucketSettings, Group, MapOf, ServedBucket, bucket_map, collections};

use super::{NodeState, address_space, open, random_vb_uuid};
use crate::config::StartError;

const MIB: u64 = 1 << 20;

impl NodeState {
    /// Makes a bucket, and serves it before this returns. Blocks for the disk.
    pub(super) fn make_bucket(&self, settings: BucketSettings) -> Result<(), BucketsError> {
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
            kept.remove_dropped().map_err(|error| failed(&error))?;
            if let Some(path) = kept.dir.as_ref().map(|dir| dir.bucket(&name))
                && path.exists()
            {
                // Of a bucket that was once configured. It is not ours to throw away.
                return Err(BucketsError::Occupied(path));
            }
            let uuid = kept.note_made(&settings).map_err(|error| failed(&error))?;
            let opened = self.launcher.open_new(settings, kept.dir.as_ref(), uuid);
            match opened.and_then(with_history) {
                Ok(opened) => self.serve(opened),
                Err(error) => {
                    let undone = kept.note_dropped(&name);
                    tracing::debug!(?undone, "the bucket was not made");
                    return Err(failed(&error));
                }
            }
        };
        self.buckets.write().insert(name, served);
        address_space::tell(self.quota_bytes());
        Ok(())
    }

    /// Bytes of the quotas of all buckets, but for one.
    fn quotas_bytes(&self, without: Option<&str>) -> u64 {
        let all = self.all_buckets();
        let others = all.iter().filter(|one| Some(one.name()) != without);
        others.map(|one| one.bucket.memory().quota()).sum()
    }

    /// A bucket with this quota, `name` or a new one, must fit into that of the node.
    fn check_quota(&self, bytes: u64, name: Option<&str>) -> Result<(), BucketsError> {
        let Some(limit_mib) = self.cluster.read().memory_quota_mib else {
            return Ok(());
        };
        let others = self.quotas_bytes(name);
        if others.saturating_add(bytes) > limit_mib.saturating_mul(MIB) {
            return Err(BucketsError::QuotaTooLarge(limit_mib));
        }
        Ok(())
    }

    /// Names the node, or limits what its buckets may take together; both outlive a restart. Blocks
    /// for the disk.
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
        let noted = self.world.kept().note_cluster(cluster.clone());
        noted.map_err(|error| failed(&error))?;
        *self.cluster.write() = cluster;
        Ok(())
    }

    fn serve(&self, opened: open::OpenedBucket) -> Arc<ServedBucket> {
        let all = self.all_buckets();
        let revs = all.iter().map(|served| served.map().revision.rev);
        let floor = self.revs.load(Ordering::SeqCst);
        let now = i64::from(self.clock.now().unix_s());
        let revision = MapRevision {
            epoch: opened.epoch,
            rev: revs.chain([now]).max().unwrap_or(now).max(floor + 1),
        };
        let (bucket, uuid) = (opened.bucket, opened.uuid);
        let manifest = bucket.manifest().uid();
        let of = MapOf {
            name: bucket.name(),
            uuid: &uuid,
            vbuckets: bucket.vbuckets(),
            manifest,
            settings: &opened.settings,
        };
        let map = bucket_map(of, self.ports, &Group::default(), revision);
        let identity = (uuid, opened.settings);
        Arc::new(ServedBucket::new(bucket, opened.workers, identity, map))
    }

    /// Gives a bucket another quota, and sets whether it may be flushed. A bucket that was made
    /// while a node ran keeps that over a restart.
    pub(super) fn adjust_bucket(&self, settings: BucketSettings) -> Result<(), BucketsError> {
        let _turn = self.world.changing();
        let name = &settings.bucket.name;
        let served = self.bucket(name).ok_or(BucketsError::Unknown)?;
        let quota_bytes = settings.bucket.quota_bytes;
        if quota_bytes > served.bucket.memory().quota() {
            self.check_quota(quota_bytes, Some(name))?;
        }
        let changed = served.bucket.change_limits(|limits| {
            limits.quota_bytes = quota_bytes;
            Ok(())
        });
        changed.map_err(|reason| BucketsError::Failed(reason.to_owned()))?;
        let kept = served
            .bucket
            .set_history_retention(settings.history.retention());
        kept.map_err(|error| BucketsError::Failed(error.to_string()))?;
        let mut kept = self.world.kept();
        if kept.is_made(name) {
            kept.note_made(&settings).map_err(|error| failed(&error))?;
        } else if kept.identities.history(name).is_some() {
            let noted = kept.note_history(name, settings.history);
            noted.map_err(|error| failed(&error))?;
        }
        drop(kept);
        served.set_settings(settings);
        Ok(())
    }

    /// Removes a bucket and all that is in it; connections to it are closed. Blocks for the
    /// disk.
    pub(super) fn drop_bucket(&self, name: &str) -> Result<(), BucketsError> {
        let _turn = self.world.changing();
        let served = self.bucket(name).ok_or(BucketsError::Unknown)?;
        if served.group().active().is_some() {
            return Err(BucketsError::Follows);
        }
        let noted = self.world.kept().note_dropped(name);
        noted.map_err(|error| failed(&error))?;
        self.buckets.write().remove(name);
        self.revs
            .fetch_max(served.map().revision.rev, Ordering::SeqCst);
        served.set_gone();
        self.env.maps_changed();
        for id in (0..served.bucket.vbuckets()).map(VbId) {
            served.claims.revoke(id);
            // Streams end, so a write that is thrown away is not sent.
            let dead = served
                .bucket
                .set_vbucket(id, VbState::Dead, None, random_vb_uuid());
            tracing::trace!(?dead, vb = id.0, "a vBucket ends with its bucket");
        }
        self.connections.leave_bucket(name);
        if let Err(error) = served.workers.stop() {
            tracing::warn!(bucket = name, %error, "a bucket that is removed did not stop well");
        }
        let removed = self.world.kept().remove_dropped();
        removed.map_err(|error| failed(&error))
    }

    /// Removes every document of a bucket: each vBucket begins anew, with the same collections.
    /// Blocks for the disk.
    pub(super) fn flush_bucket(&self, name: &str) -> Result<(), BucketsError> {
        let _turn = self.world.changing();
        let served = self.bucket(name).ok_or(BucketsError::Unknown)?;
        if !served.settings().flush_enabled {
            return Err(BucketsError::FlushDisabled);
        }
        if served.group().active().is_some() {
            return Err(BucketsError::Follows);
        }
        let bucket = &served.bucket;
        if bucket.warmup().stage() != WarmupStage::Done {
            return Err(BucketsError::Failed("the bucket is loading".into()));
        }
        let mut full: Vec<VbId> = (0..bucket.vbuckets()).map(VbId).collect();
        full.retain(|id| {
            let blank = bucket.with_vbucket(*id, |vb| vb.holds_only_collections());
            blank == Some(false)
        });
        for id in &full {
            served.claims.revoke(*id);
        }
        for (id, _) in bucket.all_quarantined() {
            // What is damaged goes as well.
            let deleted = bucket.delete_vbucket(id);
            deleted.map_err(|error| BucketsError::Failed(error.to_string()))?;
            let anew = bucket.set_vbucket(id, VbState::Active, None, random_vb_uuid());
            anew.map_err(|error| BucketsError::Failed(format!("{}: {error:?}", id.0)))?;
        }
        let emptied = bucket.empty_vbuckets(&full, &mut random_vb_uuid);
        self.wake_all();
        emptied.map_err(|error| BucketsError::Failed(error.to_string()))
    }
}

/// Where collections have history unless something else is said, the default one has it as well.
fn with_history(opened: open::OpenedBucket) -> Result<open::OpenedBucket, StartError> {
    if opened.settings.history.of_new_collections() {
        let edit = |now: &Manifest| {
            now.with_settings("_default", "_default", |settings| settings.history = true)
        };
        let changed = opened.bucket.change_manifest(edit, collections::to_bytes);
        changed.map_err(|error| StartError::DataAccess(error.to_string()))?;
    }
    Ok(opened)
}

fn failed(error: &crate::config::StartError) -> BucketsError {
    tracing::error!(%error, "a bucket could not be changed");
    BucketsError::Failed(error.to_string())
}
