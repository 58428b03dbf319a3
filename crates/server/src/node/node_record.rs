//! The identities of a running node, and the directory in which they are kept.

use registry::{BucketSettings, Standing};

use super::data_dir::DataDir;
use super::identities::Identities;
use crate::config::StartError;

/// Identities of a running node. Each change is written down before it counts.
pub(super) struct NodeRecord {
    /// `None` for a node that keeps nothing.
    pub(super) dir: Option<DataDir>,
    pub(super) identities: Identities,
}

impl NodeRecord {
    /// Changes the identities, and writes them down if the file differs then.
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

    /// Notes what a bucket is from now on, and writes it down if that is news.
    ///
    /// # Errors
    /// It is not written; the next call tries again.
    pub(super) fn note(&mut self, name: &str, uuid: &str, epoch: i64) -> Result<(), StartError> {
        self.change_and_save(|identities| {
            identities.set_uuid(name, uuid);
            identities.set_epoch(name, epoch);
        })
    }

    /// Notes what is kept of the group of a bucket, and the epoch of its map, and writes it down if that is
    /// news.
    ///
    /// # Errors
    /// It is not written; the next call tries again.
    pub(super) fn note_standing(
        &mut self,
        name: &str,
        standing: Standing,
        epoch: i64,
    ) -> Result<(), StartError> {
        self.change_and_save(|identities| {
            identities.set_standing(name, standing);
            identities.set_epoch(name, epoch);
        })
    }

    /// Gives an identity to buckets that have none yet, and writes it down before they have stores.
    ///
    /// # Errors
    /// It is not written.
    pub(super) fn note_new(&mut self, wanted: &[BucketSettings]) -> Result<(), StartError> {
        self.update(|identities| {
            for settings in wanted {
                identities.add(&settings.bucket);
            }
        })
    }

    /// Removes the stores of buckets that are gone; what fails is tried at the next start.
    ///
    /// # Errors
    /// One could not be removed.
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

    /// Lets another node have the directory.
    pub(super) fn release(&mut self) {
        if let Some(dir) = &mut self.dir {
            dir.unlock();
        }
    }

    /// Writes the identities if the file differs.
    fn save(&mut self) -> Result<(), StartError> {
        if let Some(dir) = &self.dir {
            dir.save(&self.identities)?;
        }
        self.identities.changed = false;
        Ok(())
    }

    /// Changes the identities, and writes them down if the file differs then. The change stays if they
    /// are not written.
    fn change_and_save<T>(
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
