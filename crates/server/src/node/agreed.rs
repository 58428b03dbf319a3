//! Changes of the agreed state of a cluster that management asks for. They are made in etcd, and answered once this
//! node follows them.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cluster::agreed::{BucketSpec, View};
use collections::{Manifest, ManifestError};
use identity::{Directory, Roster};
use management::{BucketChange, BucketsError, EditSettings, UsersError};
use registry::cluster::{AgreedChange, ChangeError, ClusterMember};
use registry::collections::{CollectionsError, of_json, to_bytes};
use registry::{agreed_settings, bucket_id};

use super::buckets::complete;
use super::state::NodeState;

/// Time limit for this node to read the state of the cluster, and for a change while changes of others come first.
const PATIENCE: Duration = Duration::from_secs(10);
/// Interval between two looks.
const LOOK: Duration = Duration::from_millis(2);
/// Time limit for a change that came first to reach this node.
const CONFLICT_PATIENCE: Duration = Duration::from_millis(300);

impl NodeState {
    /// Creates, flushes, compacts or drops a bucket of the cluster. Blocks for etcd.
    pub(super) fn agree_on_bucket(
        &self,
        member: &dyn ClusterMember,
        change: BucketChange,
    ) -> Result<(), BucketsError> {
        if let BucketChange::Compact(name) = change {
            return self.compact_bucket(&name);
        }
        agree(member, &mut |view| {
            let is_known = |name: &str| bucket_id(view, name).is_some();
            match &change {
                BucketChange::Make(settings) => {
                    if is_known(&settings.bucket.name) {
                        return Err(BucketsError::Exists);
                    }
                    if view.specs.len() >= self.buckets_max {
                        return Err(BucketsError::TooMany(self.buckets_max));
                    }
                    self.check_quota(settings.bucket.quota_bytes, None)?;
                    Ok(AgreedChange::MakeBucket(settings.clone()))
                }
                BucketChange::Drop(name) if is_known(name) => {
                    Ok(AgreedChange::DropBucket(name.clone()))
                }
                BucketChange::Flush(name) if is_known(name) => {
                    let served = self.bucket(name).ok_or(BucketsError::Unknown)?;
                    if !served.settings().flush_enabled {
                        return Err(BucketsError::FlushDisabled);
                    }
                    Ok(AgreedChange::FlushBucket(name.clone()))
                }
                BucketChange::Drop(_) | BucketChange::Flush(_) | BucketChange::Compact(_) => {
                    Err(BucketsError::Unknown)
                }
            }
            .map(Some)
        })
    }

    /// Changes the settings of a bucket of the cluster. Blocks for etcd.
    pub(super) fn agree_on_settings(
        &self,
        member: &dyn ClusterMember,
        name: &str,
        edit: &EditSettings<'_>,
    ) -> Result<(), BucketsError> {
        agree(member, &mut |view| {
            let spec = bucket_id(view, name).and_then(|id| view.specs.get(&id));
            let spec = spec.ok_or(BucketsError::Unknown)?;
            let settings = edit(agreed_settings(&spec.value).map_err(BucketsError::Failed)?)?;
            self.check_quota(settings.bucket.quota_bytes, Some(name))?;
            Ok(Some(AgreedChange::AdjustBucket {
                settings,
                based_on: spec.mod_revision,
            }))
        })
    }

    /// Changes users and groups of the cluster if `edit` returns true. Blocks for etcd.
    pub(super) fn agree_on_users(
        &self,
        member: &dyn ClusterMember,
        edit: &mut dyn FnMut(&mut Directory) -> bool,
    ) -> Result<(), UsersError> {
        let now_ns = self.clock.now().unix_ns;
        agree(member, &mut |view| {
            let before = self.agreed_users(view).map_err(ChangeError::Unavailable)?;
            let Some(roster) = before.edited(now_ns, edit) else {
                return Ok(None);
            };
            Ok(Some(AgreedChange::Users {
                text: serde_json::to_string(&roster).expect("users are JSON"),
                based_on: view.users.as_ref().map_or(0, |users| users.mod_revision),
            }))
        })
    }

    /// Returns the agreed users, or those of this node if there are none, once their salts are in force here: verifiers
    /// of passwords depend on them.
    fn agreed_users(&self, view: &View) -> Result<Roster, String> {
        let Some(users) = &view.users else {
            return Ok(self.identity.roster());
        };
        let read = serde_json::from_str(&users.value);
        let agreed: Roster = read.map_err(|error| error.to_string())?;
        let follows = || self.identity.roster().salts == agreed.salts;
        wait_until(PATIENCE, follows);
        let untaken = "this node has not taken the users of the cluster yet";
        follows()
            .then_some(agreed)
            .ok_or_else(|| untaken.to_owned())
    }
}

/// Changes the collections of a bucket of the cluster; `None` if it has no such bucket. Blocks for etcd.
pub(super) fn agree_on_manifest(
    member: &dyn ClusterMember,
    name: &str,
    edit: &dyn Fn(&Manifest) -> Result<Manifest, ManifestError>,
) -> Option<Result<Arc<Manifest>, CollectionsError>> {
    let mut manifest = None;
    let agreed = agree::<CollectionsError>(member, &mut |view| {
        manifest = None;
        let Some(id) = bucket_id(view, name) else {
            return Ok(None);
        };
        let agreed = view.manifests.get(&id);
        let now = match agreed {
            Some(agreed) => of_json(agreed.value.as_bytes())
                .map_err(|error| CollectionsError::NotNow(error.to_string()))?,
            None => first_manifest(&view.specs[&id].value)?,
        };
        let edited = edit(&now).map_err(CollectionsError::Refused)?;
        let change = (edited != now).then(|| AgreedChange::Manifest {
            bucket: name.to_owned(),
            text: String::from_utf8_lossy(&to_bytes(&edited)).into_owned(),
            based_on: agreed.map_or(0, |agreed| agreed.mod_revision),
        });
        manifest = Some(Arc::new(edited));
        Ok(change)
    });
    match agreed {
        Ok(()) => manifest.map(Ok),
        Err(error) => Some(Err(error)),
    }
}

/// Returns the collections with which each node makes a bucket of the cluster.
fn first_manifest(spec: &BucketSpec) -> Result<Manifest, CollectionsError> {
    let settings = agreed_settings(spec).map_err(CollectionsError::NotNow)?;
    let history = settings.history.of_new_collections();
    complete(&Manifest::default(), history).map_err(CollectionsError::Refused)
}

/// Makes the change that `draft` derives from the newest state that this node has read, if it derives one: again if another
/// change came first.
fn agree<E: From<ChangeError>>(
    member: &dyn ClusterMember,
    draft: &mut dyn FnMut(&View) -> Result<Option<AgreedChange>, E>,
) -> Result<(), E> {
    // A node that just started knows of no bucket.
    wait_until(PATIENCE, || member.view().revision > 0);
    let begun = Instant::now();
    let mut refused = "this node has not read the state of the cluster yet".to_owned();
    while member.view().revision > 0 && begun.elapsed() < PATIENCE {
        let view = member.view();
        let Some(change) = draft(&view)? else {
            return Ok(());
        };
        match member.change(change) {
            Err(ChangeError::Conflict(reason)) => refused = reason,
            made => return made.map_err(E::from),
        }
        wait_until(CONFLICT_PATIENCE, || member.view().revision > view.revision);
    }
    Err(ChangeError::Unavailable(refused).into())
}

/// Waits until `is_so` returns true, or until the time limit.
fn wait_until(limit: Duration, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < limit {
        thread::sleep(LOOK);
    }
}
