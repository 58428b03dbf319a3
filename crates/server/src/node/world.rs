//! Services that the parts of the node need from outside: files, random numbers, threads.

use std::sync::Arc;

use bucket::WarmupStage;
use identity::Roster;
use model::{VbId, VbState};
use parking_lot::{Mutex, MutexGuard};
use registry::{BucketSettings, Env, FlushError, GroupRecord, ServedBucket, Store};
use tokio::sync::watch;

use super::audit_log::AuditLog;
use super::configured::Configured;
use super::node_record::NodeRecord;
use super::random::random_vb_uuid;
use super::users::Users;
use crate::config::StartError;
use crate::net::OwnThreads;

/// Services that the parts of the node need from outside.
pub(super) struct World {
    configured: Arc<Configured>,
    kept: Mutex<NodeRecord>,
    /// Held while buckets are created, changed or dropped: one at a time.
    changing: Mutex<()>,
    /// Held while users are changed.
    users: Mutex<Users>,
    maps: watch::Sender<u64>,
    own_threads: Arc<OwnThreads>,
    pub(super) audit: AuditLog,
}

impl World {
    pub(super) fn new(
        configured: &Arc<Configured>,
        kept: NodeRecord,
        users: Users,
        own_threads: &Arc<OwnThreads>,
        audit: AuditLog,
    ) -> Self {
        Self {
            configured: Arc::clone(configured),
            kept: Mutex::new(kept),
            changing: Mutex::new(()),
            users: Mutex::new(users),
            maps: watch::channel(0).0,
            own_threads: Arc::clone(own_threads),
            audit,
        }
    }

    /// Returns the recorded identities of the node.
    pub(super) fn kept(&self) -> MutexGuard<'_, NodeRecord> {
        self.kept.lock()
    }

    /// Takes the lock against other creations, changes and drops of buckets.
    pub(super) fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock()
    }

    /// Takes the lock on the users from management: no other change of them runs meanwhile.
    pub(super) fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock()
    }

    /// Returns a receiver that is notified when a map changes, or a bucket is gone.
    pub(super) fn maps(&self) -> watch::Receiver<u64> {
        self.maps.subscribe()
    }

    /// Changes the settings of a bucket, except for its quota, and keeps them over a restart. The caller holds
    /// [`World::changing`]. Blocks for the disk.
    pub(super) fn obey(
        &self,
        served: &ServedBucket,
        settings: BucketSettings,
    ) -> Result<(), StartError> {
        let bucket = &served.bucket;
        let keeps = bucket.set_history_retention(settings.history.retention());
        keeps.map_err(|error| StartError::System(error.to_string()))?;
        let mut kept = self.kept();
        let configured = self.configured.bucket(served.name());
        kept.update(|identities| identities.note_settings(&settings, configured))?;
        let purge_age_s = self
            .configured
            .purge_age_s(&settings, &kept.identities.cluster);
        drop(kept);
        bucket.change_vb_config(|config| {
            config.max_ttl_s = settings.max_ttl_s;
            config.durability_min = settings.bucket.durability_min;
            config.durability_falls_back = settings.durability_falls_back;
            config.conflicts = settings.conflicts;
        });
        let durable = matches!(bucket.store(), Store::Disk(_));
        bucket.set_eviction(settings.bucket.eviction(durable));
        bucket.set_compression(settings.compression);
        bucket.set_purge_age_s(purge_age_s);
        served.set_settings(settings);
        Ok(())
    }
}

impl Env for World {
    fn fill_random(&self, bytes: &mut [u8]) {
        super::random::fill_random(bytes);
    }

    fn has_thread(&self) -> bool {
        self.own_threads.has_room()
    }

    fn maps_changed(&self) {
        self.maps.send_modify(|changes| *changes += 1);
    }

    fn reload_audit(&self, unix_ns: u64) -> Result<(), String> {
        self.audit.reload(unix_ns)
    }

    fn flush(&self, served: &ServedBucket) -> Result<(), FlushError> {
        let _turn = self.changing();
        if !served.settings().flush_enabled {
            return Err(FlushError::Disabled);
        }
        if served.group().active().is_some() {
            return Err(FlushError::Follows);
        }
        if served.bucket.leases().is_some() {
            let reason = "a bucket of a cluster is not flushed: drop it, and make it anew";
            return Err(FlushError::Failed(reason.into()));
        }
        let bucket = &served.bucket;
        if bucket.warmup().stage() != WarmupStage::Done {
            return Err(FlushError::Failed("the bucket is loading".into()));
        }
        let mut full: Vec<VbId> = (0..bucket.vbuckets()).map(VbId).collect();
        full.retain(|id| {
            let blank = bucket.with_vbucket(*id, |vb| vb.holds_only_collections());
            blank == Some(false)
        });
        for id in &full {
            served.claims.revoke(*id);
        }
        let failed = |error: String| FlushError::Failed(error);
        for (id, _) in bucket.all_quarantined() {
            // Delete first: this removes damaged data as well.
            let deleted = bucket.delete_vbucket(id);
            deleted.map_err(|error| failed(error.to_string()))?;
            let anew = bucket.set_vbucket(id, VbState::Active, None, random_vb_uuid());
            anew.map_err(|error| failed(format!("{}: {error:?}", id.0)))?;
        }
        let emptied = bucket.empty_vbuckets(&full, &mut random_vb_uuid);
        emptied.map_err(|error| failed(error.to_string()))
    }

    fn remember(&self, bucket: &str, uuid: &str, epoch: i64) {
        if let Err(error) = self.kept().note(bucket, uuid, epoch) {
            tracing::error!(bucket, %error, "the bucket's identity is not written down");
        }
    }

    fn group_record(&self, bucket: &str) -> GroupRecord {
        self.kept().identities.group_record(bucket)
    }

    fn note_standing(&self, bucket: &str, standing: GroupRecord, epoch: i64) {
        if let Err(error) = self.kept().note_standing(bucket, standing, epoch) {
            tracing::error!(bucket, %error, "what the bucket is in its group is not written down");
        }
    }

    fn keep_users(&self, roster: &Roster) -> Result<(), String> {
        self.users().keep(roster)
    }

    fn follow_settings(
        &self,
        served: &ServedBucket,
        settings_there: BucketSettings,
    ) -> Result<bool, String> {
        let _turn = self.changing();
        let own = served.settings();
        let settings = settings_there.followed_by(&own);
        if settings == own {
            return Ok(false);
        }
        let obeyed = self.obey(served, settings);
        obeyed.map_err(|error| error.to_string())?;
        Ok(true)
    }
}
