//! The files of one directory: the store's access to a file system, behind a trait. Tests replace
//! it by one that fails, or that loses unsynced data.
//!
//! Content of a file is durable once the file is synced; a change of a name is durable once the names are synced.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cipher::{EncryptionKeys, Keyring};

use crate::names;

/// A directory.
pub(crate) trait Files: Debug + Send + Sync {
    /// Creates an empty file or truncates one, for reading and writing.
    fn create(&self, name: &str) -> io::Result<Arc<dyn RawFile>>;

    /// Opens a file for reading and writing; `NotFound` if it does not exist.
    fn open(&self, name: &str) -> io::Result<Arc<dyn RawFile>>;

    /// Renames a file. It replaces an existing file of the new name.
    ///
    /// # Errors
    /// The file has one of the two names.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file's name; a missing file is no error. An open file can still be read.
    ///
    /// # Errors
    /// The file may still exist.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Returns the names of the files, in any order.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes all names durable, including removals.
    ///
    /// # Errors
    /// Then it is unknown which changes since the last sync are durable.
    fn sync_names(&self) -> io::Result<()>;

    /// Returns the free bytes.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Returns the path of a file, for messages.
    fn path_of(&self, name: &str) -> PathBuf;

    /// Returns the keys with which files are encrypted; `None` without encryption.
    fn keyring(&self) -> Option<&Keyring> {
        None
    }
}

/// An open file. Several threads may read and write it at the same time.
pub(crate) trait RawFile: Debug + Send + Sync {
    /// Fills `bytes` from offset `at` on; `UnexpectedEof` if the file ends before.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;

    /// Writes all of `bytes` at offset `at`.
    ///
    /// # Errors
    /// A part may be written.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Returns the length.
    fn length(&self) -> io::Result<u64>;

    /// Returns the bytes on disk, without holes.
    fn disk_bytes(&self) -> io::Result<u64>;

    /// Truncates the file, or extends it by a hole.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Makes written data and the length durable.
    ///
    /// # Errors
    /// Then it is unknown which writes since the last sync are durable. `NotFound` if the file's
    /// name was removed: no opening would find it.
    fn sync(&self) -> io::Result<()>;
}

impl dyn RawFile {
    /// Reads all of the file.
    pub(crate) fn read_all(&self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(self.length()?).unwrap_or(usize::MAX)];
        self.read_at(&mut bytes, 0)?;
        Ok(bytes)
    }
}

/// A directory of the file system.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    keyring: Option<Keyring>,
}

impl Directory {
    /// Creates a handle of an existing directory. With `keys`, new files are encrypted.
    pub(crate) fn at(path: &Path, keys: Option<&Arc<EncryptionKeys>>) -> Self {
        Self {
            path: path.to_owned(),
            keyring: keys.map(Keyring::new),
        }
    }
}

impl Files for Directory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn RawFile>> {
        let file = names::create_unsynced(&self.path.join(name))?;
        Ok(Arc::new(SystemFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn RawFile>> {
        let mut options = fs::File::options();
        let file = options.read(true).write(true).open(self.path.join(name))?;
        Ok(Arc::new(SystemFile(file)))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        names::rename_unsynced(&self.path.join(from), &self.path.join(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        names::remove_unsynced(&self.path.join(name)).map(drop)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&self.path)? {
            let name = entry?.file_name();
            found.push(name.to_string_lossy().into_owned());
        }
        Ok(found)
    }

    fn sync_names(&self) -> io::Result<()> {
        names::sync(&self.path)
    }

    fn free_bytes(&self) -> io::Result<u64> {
        fs4::available_space(&self.path)
    }

    fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    fn keyring(&self) -> Option<&Keyring> {
        self.keyring.as_ref()
    }
}

#[derive(Debug)]
struct SystemFile(fs::File);

impl RawFile for SystemFile {
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()> {
        self.0.read_exact_at(bytes, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()> {
        self.0.write_all_at(bytes, at)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn disk_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.blocks() * 512)
    }

    fn set_length(&self, length: u64) -> io::Result<()> {
        self.0.set_len(length)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync_data()?;
        if self.0.metadata()?.nlink() == 0 {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                "the file was removed",
            ));
        }
        Ok(())
    }
}
