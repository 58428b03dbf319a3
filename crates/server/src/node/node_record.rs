//! The identities of a running node, and the directory that keeps them.

use registry::{BucketSettings, GroupRecord};

use super::data_dir::DataDir;
use super::identities::Identities;
use crate::config::StartError;

/// Identities of a running node. Each change is written before it takes effect.
pub(super) struct NodeRecord {
    /// `None` for a node that keeps nothing on disk.
    pub(super) dir: Option<DataDir>,
    pub(super) identities: Identities,
}

impl NodeRecord {
    /// Changes the identities, and writes them if the content of the file changes.
    ///
    /// # Errors
    /// They are not written; then nothing is changed.
    pub(super) fn update<T>(
        &mut self,
        change: impl FnOnce(&mut Identities) -> T,
    ) -> Result<T, StartError> {
        let before = self.identities.clone();
        let updated = self.change_and_save(change);
        if updated.is_err() {
            self.identities = before;
        }
        updated
    }

    /// Records the UUID of a bucket and the epoch of its map, and writes them if they changed.
    ///
    /// # Errors
    /// They are not written; the next call tries again.
    pub(super) fn note(&mut self, name: &str, uuid: &str, epoch: i64) -> Result<(), StartError> {
        self.change_and_save(|identities| {
            identities.set_uuid(name, uuid);
            identities.set_epoch(name, epoch);
        })
    }

    /// Records the standing of a bucket and the epoch of its map, and writes them if they changed.
    ///
    /// # Errors
    /// They are not written; the next call tries again.
    pub(super) fn note_standing(
        &mut self,
        name: &str,
        standing: GroupRecord,
        epoch: i64,
    ) -> Result<(), StartError> {
        self.change_and_save(|identities| {
            identities.set_standing(name, standing);
            identities.set_epoch(name, epoch);
        })
    }

    /// Adds UUIDs for new buckets, and writes them before the stores are created.
    ///
    /// # Errors
    /// They are not written.
    pub(super) fn note_new(&mut self, wanted: &[BucketSettings]) -> Result<(), StartError> {
        self.update(|identities| {
            for settings in wanted {
                identities.add(&settings.bucket);
            }
        })
    }

    /// Removes the stores of dropped buckets. The next start retries after a failure.
    ///
    /// # Errors
    /// A store could not be removed.
    pub(super) fn remove_dropped(&mut self) -> Result<(), StartError> {
        if self.identities.dropped.is_empty() {
            return Ok(());
        }
        for name in self.identities.dropped.clone() {
            if let Some(dir) = &self.dir {
                dir.remove_bucket(&name)?;
            }
            self.identities.dropped.remove(&name);
            self.identities.changed = true;
        }
        self.save()
    }

    /// Releases the directory for another node.
    pub(super) fn release(&mut self) {
        if let Some(dir) = &mut self.dir {
            dir.unlock();
        }
    }

    /// Writes the identities if the file has other content.
    fn save(&mut self) -> Result<(), StartError> {
        if let Some(dir) = &self.dir {
            dir.save(&self.identities)?;
        }
        self.identities.changed = false;
        Ok(())
    }

    /// Changes the identities, and writes them if the content of the file changes. The change stays even if they are
    /// not written.
    pub(super) fn change_and_save<T>(
        &mut self,
        change: impl FnOnce(&mut Identities) -> T,
    ) -> Result<T, StartError> {
        let before = self.identities.clone();
        let output = change(&mut self.identities);
        self.identities.changed |= self.identities != before;
        self.save()?;
        Ok(output)
    }
}
