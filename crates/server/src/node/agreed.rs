//! Changes of the agreed state of a cluster that management asks for. They are made in etcd, and answered once this
//! node follows them.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use collections::{Manifest, ManifestError};
use identity::{Directory, Roster};
use management::{BucketChange, BucketsError};
use registry::cluster::{AgreedChange, ChangeError, ClusterMember, users_edition};
use registry::collections::{CollectionsError, to_bytes};
use registry::{ServedBucket, bucket_id};

use super::state::NodeState;

/// Time limit for this node to follow a change, and interval between two looks.
const PATIENCE: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(2);
/// Time limit for a change that came first to reach this node.
const CONFLICT_PATIENCE: Duration = Duration::from_millis(300);
/// Number of attempts, since changes of others may come first.
const ATTEMPTS: usize = 10;

impl NodeState {
    /// Creates, changes or drops a bucket of the cluster. Blocks for etcd.
    pub(super) fn agree_on_bucket(
        &self,
        member: &dyn ClusterMember,
        change: BucketChange,
    ) -> Result<(), BucketsError> {
        agreed(await_state(member))?;
        let is_known = |name: &str| bucket_id(&member.view(), name).is_some();
        let check_known = |name: &str| is_known(name).then_some(()).ok_or(BucketsError::Unknown);
        match change {
            BucketChange::Make(settings) => {
                if is_known(&settings.bucket.name) {
                    return Err(BucketsError::Exists);
                }
                if member.view().specs.len() >= self.buckets_max {
                    return Err(BucketsError::TooMany(self.buckets_max));
                }
                self.check_quota(settings.bucket.quota_bytes, None)?;
                agreed(member.change(AgreedChange::MakeBucket(settings)))
            }
            BucketChange::Adjust(settings) => {
                let name = settings.bucket.name.clone();
                check_known(&name)?;
                self.check_quota(settings.bucket.quota_bytes, Some(&name))?;
                agreed(member.change(AgreedChange::AdjustBucket(settings.clone())))?;
                let obeys = |served: Arc<ServedBucket>| served.settings() == settings;
                wait_until(|| self.bucket(&name).is_none_or(obeys));
                Ok(())
            }
            BucketChange::Drop(name) => {
                check_known(&name)?;
                agreed(member.change(AgreedChange::DropBucket(name.clone())))?;
                wait_until(|| self.bucket(&name).is_none());
                Ok(())
            }
            BucketChange::Flush(name) => {
                check_known(&name)?;
                let served = self.bucket(&name).ok_or(BucketsError::Unknown)?;
                if !served.settings().flush_enabled {
                    return Err(BucketsError::FlushDisabled);
                }
                agreed(member.change(AgreedChange::FlushBucket(name)))
            }
            BucketChange::Compact(name) => self.compact_bucket(&name),
        }
    }

    /// Changes users and groups of the cluster if `edit` returns true. Blocks for etcd.
    pub(super) fn agree_on_users(
        &self,
        member: &dyn ClusterMember,
        edit: &mut dyn FnMut(&mut Directory) -> bool,
    ) -> Result<(), String> {
        await_state(member).map_err(|error| error.to_string())?;
        let now_ns = self.clock.now().unix_ns;
        for _ in 0..ATTEMPTS {
            // Change the newest users that were agreed on.
            wait_until(|| {
                users_edition(&member.view()).is_none_or(|newest| newest <= self.identity.edition())
            });
            let before = self.identity.roster();
            let mut directory = Directory::clone(&before.directory);
            if !edit(&mut directory) || directory == *before.directory {
                return Ok(());
            }
            let previous_edition = before.edition;
            let edition = now_ns.max(previous_edition + 1);
            let roster = Roster {
                edition,
                directory: directory.into(),
                ..before
            };
            let text = serde_json::to_string(&roster).map_err(|error| error.to_string())?;
            let change = AgreedChange::Users {
                text,
                previous_edition,
            };
            match member.change(change) {
                Ok(()) => {
                    wait_until(|| self.identity.edition() >= edition);
                    return Ok(());
                }
                Err(ChangeError::Conflict(_)) => {}
                Err(error) => return Err(error.to_string()),
            }
        }
        Err("other nodes change the users all the time".into())
    }
}

/// Changes the collections of a bucket of the cluster. Blocks for etcd.
pub(super) fn agree_on_manifest(
    member: &dyn ClusterMember,
    served: &ServedBucket,
    edit: &dyn Fn(&Manifest) -> Result<Manifest, ManifestError>,
) -> Result<Arc<Manifest>, CollectionsError> {
    await_state(member).map_err(|error| CollectionsError::NotNow(error.to_string()))?;
    for _ in 0..ATTEMPTS {
        let now = served.bucket.manifest();
        let next = edit(&now).map_err(CollectionsError::Refused)?;
        if next == *now {
            return Ok(now);
        }
        let change = AgreedChange::Manifest {
            bucket: served.name().to_owned(),
            text: String::from_utf8_lossy(&to_bytes(&next)).into_owned(),
            previous_uid: now.uid().0,
        };
        match member.change(change) {
            Ok(()) => {
                wait_until(|| served.bucket.manifest().uid() >= next.uid());
                return Ok(served.bucket.manifest());
            }
            // The next attempt may see the other change.
            Err(ChangeError::Conflict(_)) => {
                wait_until_for(CONFLICT_PATIENCE, || {
                    served.bucket.manifest().uid() != now.uid()
                });
            }
            Err(error) => return Err(CollectionsError::NotNow(error.to_string())),
        }
    }
    let reason = "other nodes change the collections all the time";
    Err(CollectionsError::NotNow(reason.into()))
}

fn agreed(made: Result<(), ChangeError>) -> Result<(), BucketsError> {
    made.map_err(|error| match error {
        ChangeError::Refused(reason) => BucketsError::Refused(reason),
        ChangeError::Conflict(_) | ChangeError::Unavailable(_) => {
            BucketsError::Unavailable(error.to_string())
        }
    })
}

/// Waits until this node has read the state of the cluster: a node that just started knows of no bucket.
fn await_state(member: &dyn ClusterMember) -> Result<(), ChangeError> {
    let has_read = || member.view().revision > 0;
    wait_until(has_read);
    let unread = "this node has not read the state of the cluster yet";
    has_read()
        .then_some(())
        .ok_or_else(|| ChangeError::Unavailable(unread.to_owned()))
}

/// Waits until this node follows a change. After the time limit it still follows, later.
fn wait_until(follows: impl Fn() -> bool) {
    wait_until_for(PATIENCE, follows);
}

/// Waits until `is_so` returns true, or until the time limit.
fn wait_until_for(patience: Duration, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() && begun.elapsed() < patience {
        thread::sleep(LOOK);
    }
}
