//! The node's own file in the data directory: the identities of the node and its buckets.
//!
//! ```text
//! DATA_DIR/
//!   node.json           identities, written when a bucket is new (docs/format/directory.md)
//!   buckets/NAME/       the store of one bucket (docs/format/directory.md)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use registry::{BucketSettings, ClusterSettings, HistorySettings, Standing};
use serde::{Deserialize, Serialize};
use storage::names;

use super::made::MadeBucket;
use super::{node_file, random_uuid};
use crate::config::StartError;

/// The version of `node.json` that this release reads and writes.
const VERSION: u32 = 1;
/// Whole since the last step of its making.
const STORE_MARK: &str = "FORMAT";
/// How often the lock is tried: the process that has it may be ending just now.
const LOCK_TRIES: u32 = 10;
const LOCK_PAUSE: Duration = Duration::from_millis(20);
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
    /// What is kept of the groups of buckets that have other nodes, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    standings: BTreeMap<String, Standing>,
    /// Buckets whose stores are to be removed.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    dropped: BTreeSet<String>,
    /// What management clients said of the node as a whole.
    #[serde(default)]
    pub(super) cluster: ClusterSettings,
    #[serde(skip)]
    changed: bool,
}

impl Identities {
    /// What the bytes of a node file say.
    ///
    /// # Errors
    /// They make no sense, or a later release wrote them; why.
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, String> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        let damaged = |error: serde_json::Error| format!("damaged: {error}");
        let text = node_file::unseal(bytes).map_err(|why| format!("damaged: {why}"))?;
        let Versioned { version } = serde_json::from_slice(text.json).map_err(damaged)?;
        if version > VERSION {
            return Err(format!(
                "written by a later release: version {version}, this one reads up to {VERSION}"
            ));
        }
        let mut identities: Self = serde_json::from_slice(text.json).map_err(damaged)?;
        identities.changed = !text.sealed;
        Ok(identities)
    }

    /// Writes them into a directory: whole or not at all.
    pub(super) fn write_into(&self, path: &Path) -> std::io::Result<()> {
        let sealed = node_file::seal(&serde_json::to_vec_pretty(self)?);
        names::replace(&path.join(node_file::NAME), &sealed)
    }

    /// Identities of a node that keeps nothing.
    pub(super) fn new() -> Self {
        Self {
            version: VERSION,
            node_uuid: random_uuid(),
            buckets: BTreeMap::new(),
            epochs: BTreeMap::new(),
            made: BTreeMap::new(),
            histories: BTreeMap::new(),
            standings: BTreeMap::new(),
            dropped: BTreeSet::new(),
            cluster: ClusterSettings::default(),
            changed: true,
        }
    }

    /// Settings of the buckets that were made while the node ran.
    pub(super) fn made(&self) -> Vec<BucketSettings> {
        let settings = |(name, made): (&String, &MadeBucket)| made.settings(name);
        self.made.iter().map(settings).collect()
    }

    /// Whether a bucket has an identity.
    pub(super) fn knows(&self, name: &str) -> bool {
        self.buckets.contains_key(name) || self.dropped.contains(name)
    }

    /// Whether the store of a bucket is to be removed.
    pub(super) fn is_dropped(&self, name: &str) -> bool {
        self.dropped.contains(name)
    }

    /// Notes a bucket as one that was made while a node ran.
    pub(super) fn add_made(&mut self, settings: &BucketSettings) -> String {
        let name = &settings.bucket.name;
        let made = MadeBucket::of(settings);
        self.made.insert(name.clone(), made);
        self.changed = true;
        self.bucket(name)
    }

    /// Forgets buckets whose stores are not there any more.
    pub(super) fn forget_dropped(&mut self) {
        self.dropped.clear();
        self.changed = true;
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

    /// What is kept of the group of a bucket.
    pub(super) fn standing(&self, name: &str) -> Standing {
        self.standings.get(name).cloned().unwrap_or_default()
    }

    fn note_standing(&mut self, name: &str, standing: Standing, epoch: i64) {
        if self.standing(name) != standing {
            if standing.is_plain() {
                self.standings.remove(name);
            } else {
                self.standings.insert(name.to_owned(), standing);
            }
            self.changed = true;
        }
        if self.epoch(name) != epoch {
            self.epochs.insert(name.to_owned(), epoch);
            self.changed = true;
        }
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
pub(super) struct KeptIdentities {
    pub(super) dir: Option<DataDir>,
    pub(super) identities: Identities,
}

impl KeptIdentities {
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

    /// Gives those an identity that have none yet, and writes it down: before there are stores of theirs.
    ///
    /// # Errors
    /// It is not written.
    pub(super) fn note_new(&mut self, wanted: &[BucketSettings]) -> Result<(), StartError> {
        let name = |settings: &BucketSettings| settings.bucket.name.clone();
        let new: Vec<String> = wanted.iter().map(name).collect();
        if new.iter().all(|name| self.identities.knows(name)) {
            return Ok(());
        }
        for name in new {
            self.identities.bucket(&name);
        }
        let before = self.identities.clone();
        self.save_or_restore(before)
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
        self.identities.note_standing(name, standing, epoch);
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
        let before = self.identities.clone();
        let uuid = self.identities.add_made(settings);
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

    /// Writes down what the node is as a whole.
    ///
    /// # Errors
    /// It is not written.
    pub(super) fn note_cluster(&mut self, cluster: ClusterSettings) -> Result<(), StartError> {
        let before = self.identities.clone();
        self.identities.cluster = cluster;
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
        self.identities.standings.remove(name);
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

    /// Lets another node have the directory.
    pub(super) fn release(&mut self) {
        if let Some(dir) = &mut self.dir {
            dir.lock = None;
        }
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
    /// Held for the lock on it; `None` where the file system has no locks.
    lock: Option<File>,
}

impl DataDir {
    /// Takes a directory, which is made if it is missing, and looks at it without changing anything in it.
    ///
    /// # Errors
    /// It cannot be made or read, another process has it, or it holds something else than a node's data.
    pub(super) fn open(path: &Path) -> Result<(Self, Identities), StartError> {
        let access = |error: &std::io::Error| access(path, error);
        super::private::make_directory(path).map_err(|error| access(&error))?;
        let dir = Self {
            path: path.to_owned(),
            lock: lock(path)?,
        };
        let identities = match fs::read(path.join(node_file::NAME)) {
            Ok(bytes) => Identities::parse(&bytes).map_err(|why| dir.unusable(&why))?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                dir.check_is_ours()?;
                Identities::new()
            }
            Err(error) => return Err(access(&error)),
        };
        dir.check_knows_stores(&identities)?;
        Ok((dir, identities))
    }

    /// What is there has no identity: the node would come up as another one.
    fn unusable(&self, why: &str) -> StartError {
        let file = self.path.join(node_file::NAME);
        let hint = node_file::hint(&self.path);
        StartError::DataFormat(format!("{}: {why}; {hint}", file.display()))
    }

    /// A directory without a node file must be empty, or hold nothing but what is left of a start that was
    /// cut short.
    fn check_is_ours(&self) -> Result<(), StartError> {
        let stores = stores(&self.path).map_err(|error| self.access(&error))?;
        if !stores.is_empty() {
            let buckets = stores.join(", ");
            return Err(self.unusable(&format!("is missing, and there are buckets: {buckets}")));
        }
        for entry in fs::read_dir(&self.path).map_err(|error| self.access(&error))? {
            let name = entry.map_err(|error| self.access(&error))?.file_name();
            let ours = name == BUCKETS || name.to_string_lossy().starts_with(node_file::NAME);
            // A file system's own directory in an otherwise empty mount holds no data.
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

    /// Every store must be of a bucket that has an identity: it is written before the store is made.
    fn check_knows_stores(&self, identities: &Identities) -> Result<(), StartError> {
        let stores = stores(&self.path).map_err(|error| self.access(&error))?;
        match stores.into_iter().find(|name| !identities.knows(name)) {
            None => Ok(()),
            Some(name) => {
                let store = self.bucket(&name);
                let why = format!("knows no bucket {name}, which is in {}", store.display());
                Err(self.unusable(&why))
            }
        }
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
            match names::remove_tree(&path) {
                Ok(()) => return Ok(()),
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
        identities
            .write_into(&self.path)
            .map_err(|error| self.access(&error))
    }

    fn access(&self, error: &std::io::Error) -> StartError {
        access(&self.path, error)
    }
}

/// Names of the stores in a data directory, sorted.
pub(super) fn stores(path: &Path) -> std::io::Result<Vec<String>> {
    let entries = match fs::read_dir(path.join(BUCKETS)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry?;
        if entry.path().join(STORE_MARK).try_exists()? {
            names.push(entry.file_name().to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The directory itself is locked: two nodes would each write their identities.
fn lock(path: &Path) -> Result<Option<File>, StartError> {
    let directory = File::open(path).map_err(|error| access(path, &error))?;
    for tried in 1.. {
        match directory.try_lock() {
            Ok(()) => break,
            Err(TryLockError::WouldBlock) if tried < LOCK_TRIES => std::thread::sleep(LOCK_PAUSE),
            Err(TryLockError::WouldBlock) => {
                let line = format!("{}: in use by another process", path.display());
                return Err(StartError::DataInUse(line));
            }
            // Then the locks of the stores must do.
            Err(TryLockError::Error(error)) => {
                tracing::debug!(%error, "the data directory cannot be locked");
                return Ok(None);
            }
        }
    }
    Ok(Some(directory))
}

fn access(path: &Path, error: &std::io::Error) -> StartError {
    StartError::DataAccess(format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use model::DurabilityLevel;

    use super::*;
    use registry::{BucketConfig, BucketKind, EvictionPolicy};

    #[test]
    fn identities_survive() {
        let place = tempfile::tempdir().unwrap();
        let (dir, mut identities) = DataDir::open(place.path()).unwrap();
        let uuid = identities.bucket("default");
        dir.save(&identities).unwrap();
        drop(dir);
        let (dir, mut again) = DataDir::open(place.path()).unwrap();
        assert_eq!(again.node_uuid, identities.node_uuid);
        assert_eq!(again.bucket("default"), uuid);
        assert!(!again.changed);
        assert_eq!(again.epoch("default"), 1);
        let mut kept = KeptIdentities {
            dir: Some(dir),
            identities: again,
        };
        kept.note("default", "another", 3).unwrap();
        assert!(!kept.identities.changed);
        drop(kept);
        let (_, mut again) = DataDir::open(place.path()).unwrap();
        assert_eq!(again.bucket("default"), "another");
        assert_eq!(again.epoch("default"), 3);
    }

    #[test]
    fn buckets_that_were_made_and_dropped_are_written_down() {
        let place = tempfile::tempdir().unwrap();
        let examine = || {
            let (dir, identities) = DataDir::open(place.path()).unwrap();
            let dir = Some(dir);
            KeptIdentities { dir, identities }
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
            history: registry::HistorySettings {
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

        drop(kept);
        let mut kept = examine();
        assert_eq!(kept.identities.made(), [settings]);
        assert_eq!(kept.identities.bucket("shop"), uuid);
        kept.note_dropped("shop").unwrap();

        // The node was killed before the store was removed.
        drop(kept);
        let mut kept = examine();
        assert_eq!(kept.identities.made(), []);
        kept.remove_dropped().unwrap();
        assert!(!store.exists());
        drop(kept);
        let mut kept = examine();
        assert!(kept.identities.dropped.is_empty());
        assert_ne!(kept.identities.bucket("shop"), uuid);
    }

    #[test]
    fn foreign_newer_and_damaged_directories_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join(node_file::NAME);
        let refused = || match DataDir::open(place.path()) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("not refused"),
        };
        fs::write(place.path().join("photos"), "x").unwrap();
        assert!(refused().contains("it holds photos"), "{}", refused());
        let newer = br#"{"version":9,"odd":1}"#;
        for bytes in [newer.to_vec(), node_file::seal(newer)] {
            fs::write(&file, bytes).unwrap();
            assert!(refused().contains("version 9"), "{}", refused());
        }
        for bytes in ["{", "", "settee node 1 00000000 2\n{}"] {
            fs::write(&file, bytes).unwrap();
            let line = refused();
            assert!(
                line.starts_with(&format!("{}: damaged", file.display())),
                "{line}"
            );
            assert!(line.contains("settee salvage"), "{line}");
        }
    }

    #[test]
    fn stores_without_an_identity_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join(node_file::NAME);
        let (dir, mut identities) = DataDir::open(place.path()).unwrap();
        identities.bucket("default");
        dir.save(&identities).unwrap();
        drop(dir);
        let make = |name: &str| {
            let store = place.path().join(BUCKETS).join(name);
            fs::create_dir_all(&store).unwrap();
            fs::write(store.join(STORE_MARK), "settee storage 11\n").unwrap();
        };
        make("default");
        assert!(DataDir::open(place.path()).is_ok());
        let older = fs::read(&file).unwrap();
        make("shop");
        let refused = || match DataDir::open(place.path()) {
            Err(StartError::DataFormat(line)) => line,
            other => panic!("{:?}", other.map(|_| ())),
        };
        let line = refused();
        assert!(line.contains("node.json: knows no bucket shop"), "{line}");
        fs::remove_file(&file).unwrap();
        let line = refused();
        assert!(
            line.contains("node.json: is missing, and there are buckets: default, shop"),
            "{line}"
        );
        // Nothing was written in place of what is lost.
        assert!(!file.exists());
        fs::write(&file, older).unwrap();
        fs::remove_dir_all(place.path().join(BUCKETS).join("shop")).unwrap();
        assert!(DataDir::open(place.path()).is_ok());
    }

    #[test]
    fn a_file_of_an_earlier_release_is_read_and_gets_a_checksum() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join(node_file::NAME);
        let text =
            r#"{"version":1,"node_uuid":"ab","buckets":{"default":"cd"},"epochs":{"default":3}}"#;
        fs::write(&file, text).unwrap();
        let (dir, mut identities) = DataDir::open(place.path()).unwrap();
        let of = (identities.bucket("default"), identities.epoch("default"));
        assert_eq!(
            (identities.node_uuid.as_str(), of),
            ("ab", ("cd".into(), 3))
        );
        dir.save(&identities).unwrap();
        drop(dir);
        let bytes = fs::read(&file).unwrap();
        assert!(node_file::unseal(&bytes).unwrap().sealed);
        let (_, mut again) = DataDir::open(place.path()).unwrap();
        assert_eq!(again.bucket("default"), "cd");
        assert!(!again.changed);
    }

    #[test]
    fn a_directory_has_one_node_and_is_for_its_user_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("data");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        let (dir, identities) = DataDir::open(&path).unwrap();
        assert!(matches!(
            DataDir::open(&path),
            Err(StartError::DataInUse(_))
        ));
        dir.save(&identities).unwrap();
        assert_eq!(
            (mode(&path), mode(&path.join(node_file::NAME))),
            (0o700, 0o600)
        );
        drop(dir);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        drop(DataDir::open(&path).unwrap());
        assert_eq!(mode(&path), 0o700);
    }
}
