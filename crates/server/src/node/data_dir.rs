//! The node's own file in the data directory: who the node and its buckets are.
//!
//! ```text
//! DATA_DIR/
//!   node.json           identities, written when a bucket is new
//!   buckets/NAME/       the store of one bucket (docs/format/directory.md)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::made::MadeBucket;
use super::random_uuid;
use crate::config::{BucketSettings, HistorySettings, StartError};

/// The version of `node.json` that this release reads and writes.
const VERSION: u32 = 1;
const NODE_FILE: &str = "node.json";
/// How often the removal of a store is tried at once.
const REMOVALS_MAX: u32 = 100;
pub(super) const BUCKETS: &str = "buckets";

/// What `node.json` holds.
#[derive(Clone, Debug, Deserialize, Serialize, PartialEq, Eq)]
pub(super) struct Identities {
    version: u32,
    /// 32 hex digits.
    pub(super) node_uuid: String,
    /// Identity of each bucket by name.
    buckets: BTreeMap<String, String>,
    /// Epoch of the map of each bucket that has another one than the first.
    #[serde(default)]
    epochs: BTreeMap<String, i64>,
    /// Buckets that were made while the node ran, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    made: BTreeMap<String, MadeBucket>,
    /// What buckets that follow another node's were told of their history, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    histories: BTreeMap<String, HistorySettings>,
    /// Buckets whose stores are to be removed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    dropped: BTreeSet<String>,
    #[serde(skip)]
    changed: bool,
}

impl Identities {
    /// Identities of a node that keeps nothing.
    pub(super) fn new() -> Self {
        Self {
            version: VERSION,
            node_uuid: random_uuid(),
            buckets: BTreeMap::new(),
            epochs: BTreeMap::new(),
            made: BTreeMap::new(),
            histories: BTreeMap::new(),
            dropped: BTreeSet::new(),
            changed: true,
        }
    }

    /// Settings of the buckets that were made while the node ran.
    pub(super) fn made(&self) -> Vec<BucketSettings> {
        let settings = |(name, made): (&String, &MadeBucket)| made.settings(name);
        self.made.iter().map(settings).collect()
    }

    /// What a bucket was told of its history by the one that it followed.
    pub(super) fn history(&self, name: &str) -> Option<HistorySettings> {
        self.histories.get(name).copied()
    }

    /// The identity of a bucket, a new one if it has none.
    pub(super) fn bucket(&mut self, name: &str) -> String {
        if !self.buckets.contains_key(name) {
            self.buckets.insert(name.to_owned(), random_uuid());
            self.changed = true;
        }
        self.buckets[name].clone()
    }

    /// The epoch of a bucket's map.
    pub(super) fn epoch(&self, name: &str) -> i64 {
        self.epochs.get(name).copied().unwrap_or(1)
    }

    /// Notes what a bucket is from now on.
    fn note(&mut self, name: &str, uuid: &str, epoch: i64) {
        if self.epoch(name) != epoch {
            self.epochs.insert(name.to_owned(), epoch);
            self.changed = true;
        }
        if self.buckets.get(name).is_none_or(|known| known != uuid) {
            self.buckets.insert(name.to_owned(), uuid.to_owned());
            self.changed = true;
        }
    }
}

/// The identities of a running node, and where they are kept.
pub(super) struct Kept {
    pub(super) dir: Option<DataDir>,
    pub(super) identities: Identities,
}

impl Kept {
    /// Notes what a bucket is from now on, and writes it down if that is news.
    ///
    /// # Errors
    /// It is not written; the next call tries again.
    pub(super) fn note(&mut self, name: &str, uuid: &str, epoch: i64) -> Result<(), StartError> {
        self.identities.note(name, uuid, epoch);
        if let Some(dir) = &self.dir {
            dir.save(&self.identities)?;
        }
        self.identities.changed = false;
        Ok(())
    }

    /// Writes down that a bucket was made, or made differently; tells its identity.
    ///
    /// # Errors
    /// It is not written.
    pub(super) fn note_made(&mut self, settings: &BucketSettings) -> Result<String, StartError> {
        let name = &settings.bucket.name;
        let before = self.identities.clone();
        let uuid = self.identities.bucket(name);
        let made = MadeBucket::of(settings);
        self.identities.made.insert(name.clone(), made);
        self.save_or_restore(before)?;
        Ok(uuid)
    }

    /// Writes down what a bucket keeps of its history, as the one that it follows does.
    ///
    /// # Errors
    /// It is not written.
    pub(super) fn note_history(
        &mut self,
        name: &str,
        history: HistorySettings,
    ) -> Result<(), StartError> {
        let before = self.identities.clone();
        self.identities.histories.insert(name.to_owned(), history);
        self.save_or_restore(before)
    }

    /// Whether a bucket was made while a node ran.
    pub(super) fn is_made(&self, name: &str) -> bool {
        self.identities.made.contains_key(name)
    }

    /// Writes down that a bucket is gone: its store is removed now or at the next start.
    ///
    /// # Errors
    /// It is not written.
    pub(super) fn note_dropped(&mut self, name: &str) -> Result<(), StartError> {
        let before = self.identities.clone();
        self.identities.buckets.remove(name);
        self.identities.epochs.remove(name);
        self.identities.made.remove(name);
        self.identities.histories.remove(name);
        self.identities.dropped.insert(name.to_owned());
        self.save_or_restore(before)
    }

    /// Removes the stores of buckets that are gone; what fails is tried at the next start.
    ///
    /// # Errors
    /// One could not be removed.
    pub(super) fn remove_dropped(&mut self) -> Result<(), StartError> {
        let Some(dir) = &self.dir else {
            self.identities.dropped.clear();
            return Ok(());
        };
        for name in self.identities.dropped.clone() {
            dir.remove_bucket(&name)?;
            self.identities.dropped.remove(&name);
            self.identities.changed = true;
        }
        dir.save(&self.identities)?;
        self.identities.changed = false;
        Ok(())
    }

    fn save_or_restore(&mut self, before: Identities) -> Result<(), StartError> {
        self.identities.changed = true;
        if let Some(dir) = &self.dir
            && let Err(error) = dir.save(&self.identities)
        {
            self.identities = before;
            return Err(error);
        }
        self.identities.changed = false;
        Ok(())
    }
}

/// The directory of a node's data.
pub(super) struct DataDir {
    path: PathBuf,
}

impl DataDir {
    /// Looks at a directory without changing anything in it.
    ///
    /// # Errors
    /// It cannot be read, or holds something else than a node's data.
    pub(super) fn examine(path: &Path) -> Result<(Self, Identities), StartError> {
        let dir = Self {
            path: path.to_owned(),
        };
        let identities = match fs::read(path.join(NODE_FILE)) {
            Ok(bytes) => dir.parse(&bytes)?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                dir.check_is_ours()?;
                Identities::new()
            }
            Err(error) => return Err(dir.access(&error)),
        };
        Ok((dir, identities))
    }

    fn parse(&self, bytes: &[u8]) -> Result<Identities, StartError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let file = self.path.join(NODE_FILE);
        let damaged = |error: serde_json::Error| {
            StartError::DataFormat(format!("{}: damaged: {error}", file.display()))
        };
        let Versioned { version } = serde_json::from_slice(bytes).map_err(damaged)?;
        if version > VERSION {
            return Err(StartError::DataFormat(format!(
                "{}: written by a later release: version {version}, this one reads up to {VERSION}",
                file.display()
            )));
        }
        serde_json::from_slice(bytes).map_err(damaged)
    }

    /// A directory without a node file must be empty, or hold nothing but buckets.
    fn check_is_ours(&self) -> Result<(), StartError> {
        let entries = match fs::read_dir(&self.path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(self.access(&error)),
        };
        for entry in entries {
            let name = entry.map_err(|error| self.access(&error))?.file_name();
            let ours = name == BUCKETS || name.to_string_lossy().starts_with(NODE_FILE);
            // A file system's own directory in an otherwise empty mount is nobody's data.
            if !ours && name != "lost+found" {
                return Err(StartError::DataFormat(format!(
                    "{}: not a data directory of Settee: it holds {}",
                    self.path.display(),
                    name.to_string_lossy()
                )));
            }
        }
        Ok(())
    }

    /// Where the store of a bucket lies.
    pub(super) fn bucket(&self, name: &str) -> PathBuf {
        self.path.join(BUCKETS).join(name)
    }

    /// Removes the store of a bucket. Its last threads may still end while this runs.
    fn remove_bucket(&self, name: &str) -> Result<(), StartError> {
        let path = self.bucket(name);
        let mut tries = 0;
        loop {
            match fs::remove_dir_all(&path) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::NotFound && !path.exists() => {
                    return Ok(());
                }
                Err(error) if tries == REMOVALS_MAX => return Err(self.access(&error)),
                Err(_) => tries += 1,
            }
        }
    }

    /// Writes the identities if they changed: whole or not at all.
    pub(super) fn save(&self, identities: &Identities) -> Result<(), StartError> {
        if !identities.changed {
            return Ok(());
        }
        let write = || -> std::io::Result<()> {
            fs::create_dir_all(&self.path)?;
            let temporary = self.path.join("node.json.new");
            let mut file = File::create(&temporary)?;
            file.write_all(&serde_json::to_vec_pretty(identities)?)?;
            file.sync_data()?;
            fs::rename(temporary, self.path.join(NODE_FILE))?;
            File::open(&self.path)?.sync_all()
        };
        write().map_err(|error| self.access(&error))
    }

    fn access(&self, error: &std::io::Error) -> StartError {
        StartError::DataAccess(format!("{}: {error}", self.path.display()))
    }
}

#[cfg(test)]
mod tests {
    use model::DurabilityLevel;

    use super::*;
    use crate::config::{BucketConfig, BucketKind, EvictionPolicy};

    #[test]
    fn identities_survive() {
        let place = tempfile::tempdir().unwrap();
        let (dir, mut identities) = DataDir::examine(place.path()).unwrap();
        let uuid = identities.bucket("default");
        dir.save(&identities).unwrap();
        let (_, mut again) = DataDir::examine(place.path()).unwrap();
        assert_eq!(again.node_uuid, identities.node_uuid);
        assert_eq!(again.bucket("default"), uuid);
        assert!(!again.changed);
        assert_eq!(again.epoch("default"), 1);
        let mut kept = Kept {
            dir: Some(dir),
            identities: again,
        };
        kept.note("default", "another", 3).unwrap();
        assert!(!kept.identities.changed);
        let (_, mut again) = DataDir::examine(place.path()).unwrap();
        assert_eq!(again.bucket("default"), "another");
        assert_eq!(again.epoch("default"), 3);
    }

    #[test]
    fn buckets_that_were_made_and_dropped_are_written_down() {
        let place = tempfile::tempdir().unwrap();
        let examine = || {
            let (dir, identities) = DataDir::examine(place.path()).unwrap();
            let dir = Some(dir);
            Kept { dir, identities }
        };
        let settings = BucketSettings {
            bucket: BucketConfig {
                name: "shop".into(),
                quota_bytes: 100 << 20,
                kind: BucketKind::Couchbase,
                eviction: EvictionPolicy::Documents,
                durability_min: Some(DurabilityLevel::MajorityAndPersistOnActive),
            },
            max_ttl_s: 7,
            flush_enabled: true,
            replicas: 1,
            history: crate::config::HistorySettings {
                magma: true,
                collection_default: false,
                seconds: 60,
                bytes: 2 << 30,
            },
        };
        let mut kept = examine();
        let uuid = kept.note_made(&settings).unwrap();
        let store = place.path().join(BUCKETS).join("shop");
        fs::create_dir_all(store.join("db")).unwrap();

        let mut kept = examine();
        assert_eq!(kept.identities.made(), [settings]);
        assert_eq!(kept.identities.bucket("shop"), uuid);
        kept.note_dropped("shop").unwrap();

        // The node was killed before the store was removed.
        let mut kept = examine();
        assert_eq!(kept.identities.made(), []);
        kept.remove_dropped().unwrap();
        assert!(!store.exists());
        let mut kept = examine();
        assert!(kept.identities.dropped.is_empty());
        assert_ne!(kept.identities.bucket("shop"), uuid);
    }

    #[test]
    fn foreign_newer_and_damaged_directories_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let refused = || match DataDir::examine(place.path()) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("not refused"),
        };
        fs::write(place.path().join("photos"), "x").unwrap();
        assert!(refused().contains("it holds photos"), "{}", refused());
        fs::write(place.path().join(NODE_FILE), r#"{"version":9,"odd":1}"#).unwrap();
        assert!(refused().contains("version 9"), "{}", refused());
        fs::write(place.path().join(NODE_FILE), "{").unwrap();
        assert!(refused().contains("damaged"), "{}", refused());
    }
}
