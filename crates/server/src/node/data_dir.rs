//! The node's data directory: its lock, its node file, the paths of the stores.
//!
//! ```text
//! DATA_DIR/
//!   node.json           identities, written when a bucket is new (docs/format/node.md)
//!   buckets/NAME/       the store of one bucket (docs/format/README.md)
//! ```

use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use storage::{FileLock, names};

use super::identities::{Identities, MemberOf};
use super::sealed_file;
use crate::config::{StartError, access};

/// A directory with one of these files is a store. The second one is of releases before the first version of the
/// format.
const STORE_MARKS: [&str; 2] = ["MANIFEST", "FORMAT"];
/// Number of attempts to remove a store.
const REMOVALS_MAX: u32 = 100;
pub(super) const BUCKETS: &str = "buckets";
/// The file that marks a copy of salvage that lacks data.
pub(super) const INCOMPLETE: &str = "INCOMPLETE";
/// Content of [`INCOMPLETE`] until a salvage ends.
pub(super) const UNFINISHED_TEXT: &[u8] = b"settee salvage did not end.\n";
/// A file system's own directory in an otherwise empty mount; it holds no data of ours.
pub(super) const LOST_AND_FOUND: &str = "lost+found";

/// The data directory of a node.
pub(super) struct DataDir {
    path: PathBuf,
    /// The locked directory; `None` if the file system has no locks.
    lock: Option<FileLock>,
}

impl DataDir {
    /// Locks a directory, which is created if it is missing, and reads it without changing anything in it.
    ///
    /// # Errors
    /// It cannot be created or read, another process has it, or it holds something else than a node's data.
    pub(super) fn open(path: &Path) -> Result<(Self, Identities), StartError> {
        names::make_directories(path).map_err(|error| access(path, &error))?;
        let dir = Self {
            path: path.to_owned(),
            lock: lock(path)?,
        };
        let file = path.join(sealed_file::NODE.name);
        let identities = match fs::read(&file) {
            Ok(bytes) => Identities::parse(&bytes).map_err(|why| dir.unusable(&why))?,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                dir.check_is_ours()?;
                Identities::new()
            }
            Err(error) => return Err(access(&file, &error)),
        };
        dir.check_knows_stores(&identities)?;
        super::private::close_to_others(path).map_err(|error| access(path, &error))?;
        Ok((dir, identities))
    }

    /// Returns the error for a node file that cannot be used: without it, the node would start with another identity.
    fn unusable(&self, why: &str) -> StartError {
        let file = self.path.join(sealed_file::NODE.name);
        let hint = sealed_file::hint(&self.path);
        StartError::DataFormat(format!("{}: {why}; {hint}", file.display()))
    }

    /// Checks that a directory without a node file is empty, or holds only the remains of an interrupted start.
    fn check_is_ours(&self) -> Result<(), StartError> {
        let stores = stores(&self.path)?;
        if !stores.is_empty() {
            let buckets = stores.join(", ");
            return Err(self.unusable(&format!("is missing, and there are buckets: {buckets}")));
        }
        for entry in fs::read_dir(&self.path).map_err(|error| self.access(&error))? {
            let name = entry.map_err(|error| self.access(&error))?.file_name();
            let ours =
                name == BUCKETS || name.to_string_lossy().starts_with(sealed_file::NODE.name);
            if !ours && name != LOST_AND_FOUND {
                return Err(StartError::DataFormat(format!(
                    "{}: not a data directory of Settee: it holds {}",
                    self.path.display(),
                    name.to_string_lossy()
                )));
            }
        }
        Ok(())
    }

    /// Checks that every store belongs to a bucket with an identity: the identity is written before the store is
    /// created.
    fn check_knows_stores(&self, identities: &Identities) -> Result<(), StartError> {
        let stores = stores(&self.path)?;
        match stores.into_iter().find(|name| !identities.knows(name)) {
            None => Ok(()),
            Some(name) => {
                let store = self.bucket(&name);
                let why = format!("knows no bucket {name}, which is in {}", store.display());
                Err(self.unusable(&why))
            }
        }
    }

    /// Returns the path of the directory.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the path of a bucket's store.
    pub(super) fn bucket(&self, name: &str) -> PathBuf {
        self.path.join(BUCKETS).join(name)
    }

    /// Removes the store of a bucket. Its last threads may still be ending meanwhile.
    pub(super) fn remove_bucket(&self, name: &str) -> Result<(), StartError> {
        let path = self.bucket(name);
        let mut tries = 0;
        loop {
            match names::remove_tree(&path) {
                Ok(()) => return Ok(()),
                Err(error) if tries == REMOVALS_MAX => return Err(access(&path, &error)),
                Err(_) => tries += 1,
            }
        }
    }

    /// Writes the identities if they changed, atomically.
    pub(super) fn save(&self, identities: &Identities) -> Result<(), StartError> {
        if !identities.changed {
            return Ok(());
        }
        let file = self.path.join(sealed_file::NODE.name);
        let written = identities.write_into(&self.path);
        written.map_err(|error| access(&file, &error))
    }

    /// Releases the directory for another node.
    pub(super) fn unlock(&mut self) {
        self.lock = None;
    }

    fn access(&self, error: &std::io::Error) -> StartError {
        access(&self.path, error)
    }
}

/// Checks that the data directory of a node of a cluster is started only as a node of that cluster: it alone says which
/// of the copies of vBuckets are active.
pub(super) fn check_cluster(
    directory: &Path,
    wanted: Option<&str>,
    kept: Option<&MemberOf>,
) -> Result<(), StartError> {
    match kept {
        Some(MemberOf { name, .. }) if wanted != Some(name) => {
            let other = wanted.map_or_else(
                || "serve without a cluster".to_owned(),
                |wanted| format!("join cluster {wanted}"),
            );
            Err(StartError::Cluster(format!(
                "{}: belongs to a node of cluster {name}, which alone says what is active in it: start it with \
                 --cluster etcd://.../{name}, or take another directory to {other}",
                directory.display()
            )))
        }
        _ => Ok(()),
    }
}

/// Checks that a directory is no copy of a salvage that was interrupted: it lacks data that the next salvage would copy.
pub(super) fn check_finished(directory: &Path) -> Result<(), StartError> {
    let incomplete = directory.join(INCOMPLETE);
    match fs::read(&incomplete) {
        Ok(text) if text == UNFINISHED_TEXT => {
            let (directory, file) = (directory.display(), incomplete.display());
            Err(StartError::Incomplete(format!(
                "{directory}: settee salvage did not end, and this copy lacks data: empty the directory and run it again; \
                 to start with what is there, remove {file}"
            )))
        }
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(access(&incomplete, &error)),
    }
}

/// Checks that a node whose copies of vBuckets replicate those of `others` does not start on a copy of salvage that lacks
/// data: they would take it for a whole one.
pub(super) fn check_complete(directory: &Path, others: &str) -> Result<(), StartError> {
    let incomplete = directory.join(INCOMPLETE);
    if !incomplete.exists() {
        return Ok(());
    }
    let (directory, file) = (directory.display(), incomplete.display());
    Err(StartError::Incomplete(format!(
        "{directory}: settee salvage could not copy everything, and {others} would take this copy for a whole one: start \
         with an empty directory (first fail a node of a cluster over, rebalance, and remove it); if no other node has the \
         documents, remove {file}"
    )))
}

/// Returns the names of the stores in a data directory, sorted.
pub(super) fn stores(path: &Path) -> Result<Vec<String>, StartError> {
    let buckets = path.join(BUCKETS);
    let entries = match fs::read_dir(&buckets) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(access(&buckets, &error)),
    };
    let mut names = Vec::new();
    for entry in entries {
        let entry = entry.map_err(|error| access(&buckets, &error))?;
        for mark in STORE_MARKS {
            let file = entry.path().join(mark);
            if file.try_exists().map_err(|error| access(&file, &error))? {
                names.push(entry.file_name().to_string_lossy().into_owned());
                break;
            }
        }
    }
    names.sort();
    Ok(names)
}

/// Locks the directory itself: two nodes would each write their identities.
fn lock(path: &Path) -> Result<Option<FileLock>, StartError> {
    let directory = File::open(path).map_err(|error| access(path, &error))?;
    match FileLock::take(directory) {
        Ok(lock) => Ok(Some(lock)),
        Err(TryLockError::WouldBlock) => {
            let line = format!("{}: in use by another process", path.display());
            Err(StartError::DataInUse(line))
        }
        // The file system has no locks: the locks of the stores must be enough.
        Err(TryLockError::Error(error)) => {
            tracing::debug!(%error, "the data directory cannot be locked");
            Ok(None)
        }
    }
}

#[cfg(test)]
mod tests {
    use model::DurabilityLevel;
    use registry::{BucketConfig, BucketKind, BucketSettings, EvictionPolicy, HistorySettings};

    use super::*;
    use crate::node::node_record::NodeRecord;

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
        let mut kept = NodeRecord {
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
    fn created_and_dropped_buckets_are_recorded() {
        let place = tempfile::tempdir().unwrap();
        let examine = || {
            let (dir, identities) = DataDir::open(place.path()).unwrap();
            let dir = Some(dir);
            NodeRecord { dir, identities }
        };
        let settings = BucketSettings {
            bucket: BucketConfig {
                name: "shop".into(),
                quota_bytes: 100 << 20,
                kind: BucketKind::Couchbase,
                eviction: EvictionPolicy::Documents,
                durability_min: Some(DurabilityLevel::MajorityAndPersistOnActive),
                vbuckets: Some(128),
            },
            max_ttl_s: 7,
            flush_enabled: true,
            replicas: 1,
            history: HistorySettings {
                magma: true,
                collection_default: false,
                seconds: 60,
                bytes: 2 << 30,
            },
            conflicts: model::ConflictResolution::LastWrite,
            compression: model::CompressionMode::Active,
            durability_falls_back: true,
            versioning: registry::Versioning::default(),
            auto_compaction: None,
        };
        let mut kept = examine();
        let uuid = kept.update(|ids| ids.add_made(&settings, None)).unwrap();
        let store = place.path().join(BUCKETS).join("shop");
        fs::create_dir_all(store.join("db")).unwrap();

        drop(kept);
        let mut kept = examine();
        assert_eq!(kept.identities.made(), [settings]);
        assert_eq!(kept.identities.bucket("shop"), uuid);
        kept.update(|ids| ids.add_dropped("shop")).unwrap();

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
        let file = place.path().join(sealed_file::NODE.name);
        let refused = || match DataDir::open(place.path()) {
            Err(error) => error.to_string(),
            Ok(_) => panic!("not refused"),
        };
        fs::write(place.path().join("photos"), "x").unwrap();
        assert!(refused().contains("it holds photos"), "{}", refused());
        let newer = br#"{"version":9,"odd":1}"#;
        for bytes in [newer.to_vec(), sealed_file::NODE.seal(newer)] {
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
    fn a_file_that_cannot_be_read_is_named() {
        let place = tempfile::tempdir().unwrap();
        let refused = || match DataDir::open(place.path()) {
            Err(StartError::DataAccess(line)) => line,
            other => panic!("{:?}", other.map(|_| ())),
        };
        for name in [sealed_file::NODE.name, BUCKETS] {
            // A link to itself cannot be followed, by any user.
            let path = place.path().join(name);
            std::os::unix::fs::symlink(&path, &path).unwrap();
            let line = refused();
            assert!(line.starts_with(&path.display().to_string()), "{line}");
            fs::remove_file(&path).unwrap();
        }
    }

    #[test]
    fn stores_without_an_identity_are_refused() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join(sealed_file::NODE.name);
        let (dir, mut identities) = DataDir::open(place.path()).unwrap();
        identities.bucket("default");
        dir.save(&identities).unwrap();
        drop(dir);
        let make = |name: &str| {
            let store = place.path().join(BUCKETS).join(name);
            fs::create_dir_all(&store).unwrap();
            fs::write(store.join(STORE_MARKS[0]), "").unwrap();
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
        // No new file was written in place of the lost one.
        assert!(!file.exists());
        fs::write(&file, older).unwrap();
        fs::remove_dir_all(place.path().join(BUCKETS).join("shop")).unwrap();
        assert!(DataDir::open(place.path()).is_ok());
    }

    #[test]
    fn a_file_of_an_earlier_release_is_read_and_gets_a_checksum() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join(sealed_file::NODE.name);
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
        assert!(sealed_file::NODE.unseal(&bytes).unwrap().sealed);
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
            (mode(&path), mode(&path.join(sealed_file::NODE.name))),
            (0o700, 0o600)
        );
        drop(dir);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        drop(DataDir::open(&path).unwrap());
        assert_eq!(mode(&path), 0o700);
    }

    #[test]
    fn a_refused_directory_keeps_its_permissions() {
        use std::os::unix::fs::PermissionsExt as _;
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("letter"), "of another program").unwrap();
        let shared = fs::Permissions::from_mode(0o777);
        fs::set_permissions(place.path(), shared).unwrap();
        assert!(matches!(
            DataDir::open(place.path()),
            Err(StartError::DataFormat(_))
        ));
        let mode = fs::metadata(place.path()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o777);
    }
}
