//! Read-only access to the files of a store in any state.
//!
//! Bytes that the system cannot read count as zeros, so that their checksum fails, and the rest is still read.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cipher::{EncryptionKeys, Keyring};
use parking_lot::Mutex;

use super::damage::Damage;
use super::directory::{LOCK, OpenError, check_content, locked, open_error};
use super::file_lock::FileLock;
use super::files::{Files, RawFile};

/// Bytes that are read at once after a larger read failed.
const PIECE_BYTES: usize = 4096;

/// Failed reads: file, offset, error.
type Failures = Arc<Mutex<Vec<(String, u64, io::Error)>>>;

/// A directory that is only read.
#[derive(Debug)]
pub(crate) struct ReadOnly {
    path: PathBuf,
    keyring: Option<Keyring>,
    failures: Failures,
    _lock: Option<FileLock>,
}

impl ReadOnly {
    /// Opens the store in a directory, locked against other processes unless it has no lock file.
    ///
    /// # Errors
    /// `InUse`, `OlderFormat`, `Foreign`, `Unreadable`.
    pub(crate) fn lock(path: &Path, keys: Option<&Arc<EncryptionKeys>>) -> Result<Self, OpenError> {
        let lock = match File::open(path.join(LOCK)) {
            Ok(file) => Some(locked(path, file)?),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(open_error(path, &error)),
        };
        check_content(path)?;
        Ok(Self {
            keyring: keys.map(Keyring::new),
            _lock: lock,
            ..Self::unlocked(path)
        })
    }

    /// Opens a store that another process may change.
    pub(crate) fn unlocked(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            keyring: None,
            failures: Failures::default(),
            _lock: None,
        }
    }

    /// Returns the failed reads so far, and forgets them.
    pub(crate) fn failures(&self) -> Vec<Damage> {
        let failures = std::mem::take(&mut *self.failures.lock());
        let damage = |(name, at, error): (String, u64, io::Error)| {
            Damage::of(self.path.join(name), format!("byte {at}: {error}"))
        };
        failures.into_iter().map(damage).collect()
    }
}

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "it is only read")
}

impl Files for ReadOnly {
    fn create(&self, _name: &str) -> io::Result<Arc<dyn RawFile>> {
        Err(refused())
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn RawFile>> {
        Ok(Arc::new(OpenFile {
            file: File::open(self.path.join(name))?,
            name: name.to_owned(),
            failures: Arc::clone(&self.failures),
        }))
    }

    fn rename(&self, _from: &str, _to: &str) -> io::Result<()> {
        Err(refused())
    }

    fn remove(&self, _name: &str) -> io::Result<()> {
        Err(refused())
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let names = fs::read_dir(&self.path)?;
        names
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn sync_names(&self) -> io::Result<()> {
        Err(refused())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        Ok(0)
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn keyring(&self) -> Option<&Keyring> {
        self.keyring.as_ref()
    }
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    name: String,
    failures: Failures,
}

impl RawFile for OpenFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        match self.file.read_exact_at(bytes, at) {
            Err(error) if error.raw_os_error().is_some() => {}
            read => return read,
        }
        let mut at = at;
        for piece in bytes.chunks_mut(PIECE_BYTES) {
            if let Err(error) = self.file.read_exact_at(piece, at) {
                piece.fill(0);
                self.failures.lock().push((self.name.clone(), at, error));
            }
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn write_at(&self, _bytes: &[u8], _at: u64) -> io::Result<()> {
        Err(refused())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.blocks() * 512)
    }

    fn set_length(&self, _length: u64) -> io::Result<()> {
        Err(refused())
    }

    fn sync(&self) -> io::Result<()> {
        Err(refused())
    }
}
