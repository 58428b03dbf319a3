//! The directory of a store: its lock, and errors of opening it.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cipher::{EncryptionKeys, is_key_error};

use super::file_lock::FileLock;
use super::files::Directory;
use super::open::is_ours;
use super::options::DiskOptions;
use super::store::{DiskStore, OpenedStore};
use super::threads::OwnThreads;
use crate::error::one_line;
use crate::names;
use crate::work::Threads;

pub(crate) const LOCK: &str = "LOCK";
/// File of stores older than the first version of the format.
const FORMAT: &str = "FORMAT";

/// Error of opening a store; `Display` is one line that starts with the path.
#[derive(Debug)]
pub struct OpenError {
    /// The directory of the store.
    pub path: PathBuf,
    /// Kind of the error, for the operator.
    pub kind: OpenErrorKind,
    /// Details of the error.
    pub reason: String,
}

/// Kind of an error of opening a store. No file in the store was changed or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpenErrorKind {
    /// Another process has the store open.
    InUse,
    /// A later release wrote it.
    NewerFormat,
    /// A release without a stable file format wrote it.
    OlderFormat,
    /// The directory has other content than a store.
    Foreign,
    /// The directory may not be read or written.
    Unreadable,
    /// Its content is damaged.
    Damaged,
    /// The store is encrypted with a key that is missing, or differs from the given key of this ID.
    Key,
    /// The file system is full.
    NoSpace,
    /// Any other I/O error.
    Io,
}

impl OpenError {
    pub(crate) fn new(path: &Path, kind: OpenErrorKind, reason: &str) -> Self {
        Self {
            path: path.to_owned(),
            kind,
            reason: reason.to_owned(),
        }
    }
}

impl fmt::Display for OpenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = match self.kind {
            OpenErrorKind::InUse => "in use by another process",
            OpenErrorKind::NewerFormat => "written by a later release",
            OpenErrorKind::OlderFormat => {
                "written by a release before the first version of the format"
            }
            OpenErrorKind::Foreign => "not a data directory of Settee",
            OpenErrorKind::Unreadable => "cannot be read and written",
            OpenErrorKind::Damaged => "damaged",
            OpenErrorKind::Key => "cannot be decrypted",
            OpenErrorKind::NoSpace => "no space left on device",
            OpenErrorKind::Io => "input/output error",
        };
        write!(f, "{}: {words}", self.path.display())?;
        if !self.reason.is_empty() {
            write!(f, ": {}", one_line(&self.reason))?;
        }
        if self.kind == OpenErrorKind::Damaged {
            write!(
                f,
                "; nothing was changed, settee salvage copies what is left"
            )?;
        }
        Ok(())
    }
}

impl std::error::Error for OpenError {}

/// Converts an I/O error to an error of opening.
pub(crate) fn open_error(path: &Path, error: &io::Error) -> OpenError {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => OpenErrorKind::NoSpace,
        io::ErrorKind::PermissionDenied
        | io::ErrorKind::ReadOnlyFilesystem
        | io::ErrorKind::NotADirectory
        | io::ErrorKind::IsADirectory
        | io::ErrorKind::AlreadyExists
        | io::ErrorKind::NotFound => OpenErrorKind::Unreadable,
        io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof => OpenErrorKind::Damaged,
        io::ErrorKind::Unsupported if is_key_error(error) => OpenErrorKind::Key,
        io::ErrorKind::Unsupported => OpenErrorKind::NewerFormat,
        _ => OpenErrorKind::Io,
    };
    OpenError::new(path, kind, &error.to_string())
}

impl DiskStore {
    /// Opens the store in directory `path`, or creates one in an empty or missing directory. The
    /// directory is locked for this process until the store is closed or dropped.
    ///
    /// # Errors
    /// See [`OpenErrorKind`]; the content of the directory stays as it is.
    ///
    /// Cost: reads one record per vBucket, and the logs that are in no run yet; creating a store takes six syncs.
    pub fn open(path: &Path, options: DiskOptions) -> Result<(Self, OpenedStore), OpenError> {
        Self::open_with_keys(path, options, None)
    }

    /// As [`DiskStore::open`], with encryption of all written data.
    ///
    /// # Errors
    /// As [`DiskStore::open`].
    pub fn open_with_keys(
        path: &Path,
        options: DiskOptions,
        keys: Option<&Arc<EncryptionKeys>>,
    ) -> Result<(Self, OpenedStore), OpenError> {
        Self::open_with(&OwnThreads, path, options, keys)
    }

    /// As [`DiskStore::open_with_keys`], with background work on `threads` instead of threads of its own.
    ///
    /// # Errors
    /// As [`DiskStore::open`].
    pub fn open_with(
        threads: &dyn Threads,
        path: &Path,
        options: DiskOptions,
        keys: Option<&Arc<EncryptionKeys>>,
    ) -> Result<(Self, OpenedStore), OpenError> {
        let failed = |error: io::Error| open_error(path, &error);
        // Parents are included: the process that created them may have ended before their names were synced.
        let above = path.parent().filter(|above| !above.as_os_str().is_empty());
        above
            .map_or(Ok(()), names::make_directories)
            .map_err(failed)?;
        names::make_directories(path).map_err(failed)?;
        check_content(path)?;
        let lock = lock(path)?;
        // Checked again, because no other process can change it under the lock.
        check_content(path)?;
        let files = Arc::new(Directory::at(path, keys));
        let (store, opened) = Self::open_files(files, threads, options).map_err(failed)?;
        *store.lock.lock() = Some(lock);
        Ok((store, opened))
    }
}

/// Checks that a directory has a store, or is empty.
pub(crate) fn check_content(path: &Path) -> Result<(), OpenError> {
    let failed = |error: io::Error| open_error(path, &error);
    let (mut ours, mut stranger) = (false, None);
    for entry in fs::read_dir(path).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        match name.to_str() {
            Some(FORMAT) => {
                let reason = "start the release that wrote it, and copy it with settee replicate";
                return Err(OpenError::new(path, OpenErrorKind::OlderFormat, reason));
            }
            Some(LOCK) => {}
            Some(name) if is_ours(name) => ours = true,
            _ => stranger = Some(name),
        }
    }
    match stranger {
        Some(name) if !ours => {
            let reason = format!("it holds {} and no MANIFEST", name.display());
            Err(OpenError::new(path, OpenErrorKind::Foreign, &reason))
        }
        _ => Ok(()),
    }
}

fn lock(path: &Path) -> Result<FileLock, OpenError> {
    let file =
        names::create_unsynced(&path.join(LOCK)).map_err(|error| open_error(path, &error))?;
    locked(path, file)
}

/// Locks the lock file of a store.
///
/// # Errors
/// `InUse`; those of the system.
pub(crate) fn locked(path: &Path, file: File) -> Result<FileLock, OpenError> {
    FileLock::take(file).map_err(|error| match error {
        TryLockError::WouldBlock => OpenError::new(path, OpenErrorKind::InUse, ""),
        TryLockError::Error(error) => open_error(path, &error),
    })
}
