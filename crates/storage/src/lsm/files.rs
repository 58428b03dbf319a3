//! The files of one directory: all that the store asks of a file system, behind a trait, so that tests can put one in its
//! place that fails, or that loses what was not synced.
//!
//! What is written of a file is durable once the file is synced; a name that was given, changed or taken away once the
//! names are.

use std::fmt::Debug;
use std::fs;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cipher::{Cipher, Keyring};

use super::pieces::Pieces;
use crate::names;

/// A directory.
pub(crate) trait Files: Debug + Send + Sync {
    /// Makes an empty file, or empties one, to read and to write.
    ///
    /// # Errors
    /// Those of the system.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StoreFile>>;

    /// Opens a file to read and to write; `NotFound` where there is none.
    ///
    /// # Errors
    /// Those of the system.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StoreFile>>;

    /// Gives a file another name, that of another file too, which is gone then.
    ///
    /// # Errors
    /// It has one of the two names.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Takes a file's name away; one that is not there is no error. Where the file is open it can still be read.
    ///
    /// # Errors
    /// It may still be there.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// The names of the files, in no order.
    ///
    /// # Errors
    /// Those of the system.
    fn list(&self) -> io::Result<Vec<String>>;

    /// Makes all names durable, those that are gone as well.
    ///
    /// # Errors
    /// Nothing is known then of what was changed since the last time.
    fn sync_names(&self) -> io::Result<()>;

    /// Bytes that may still be written.
    ///
    /// # Errors
    /// Those of the system.
    fn free_bytes(&self) -> io::Result<u64>;

    /// Where a file lies, for messages.
    fn path_of(&self, name: &str) -> PathBuf;

    /// The keys with which files are encrypted; `None` when they are not.
    fn keyring(&self) -> Option<&Keyring> {
        None
    }
}

/// An open file. It may be read and written by several threads at the same time.
pub(crate) trait StoreFile: Debug + Send + Sync {
    /// Fills `bytes` from offset `at` on; `UnexpectedEof` where the file ends before.
    ///
    /// # Errors
    /// Those of the system.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> io::Result<()>;

    /// Writes all of `bytes` at offset `at`.
    ///
    /// # Errors
    /// Some of it may be written.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<()>;

    /// Its length.
    ///
    /// # Errors
    /// Those of the system.
    fn length(&self) -> io::Result<u64>;

    /// Bytes that it takes on the disk; holes do not count.
    ///
    /// # Errors
    /// Those of the system.
    fn disk_bytes(&self) -> io::Result<u64>;

    /// Cuts it, or makes it longer by a hole.
    ///
    /// # Errors
    /// Those of the system.
    fn set_length(&self, length: u64) -> io::Result<()>;

    /// Makes what was written durable, the length as well.
    ///
    /// # Errors
    /// Nothing is known then of what was written since the last time. `NotFound` when its name is gone: no opening would
    /// find it.
    fn sync(&self) -> io::Result<()>;

    /// What its units are sealed with; `None` for a plain file.
    fn cipher(&self) -> Option<&Cipher> {
        None
    }

    /// Where the pieces of an encrypted log lie; `None` for a plain file.
    fn pieces(&self) -> Option<&Pieces> {
        None
    }

    /// The same file, of which only values are read from now on; `None` where that makes no difference.
    fn for_values(&self) -> Option<Arc<dyn StoreFile>> {
        None
    }
}

/// A directory of the file system.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
}

impl Directory {
    /// One that is there.
    pub(crate) fn at(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
        }
    }
}

impl Files for Directory {
    fn create(&self, name: &str) -> io::Result<Arc<dyn StoreFile>> {
        let file = names::create_unsynced(&self.path.join(name))?;
        Ok(Arc::new(OpenFile(file)))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StoreFile>> {
        let mut options = fs::File::options();
        let file = options.read(true).write(true).open(self.path.join(name))?;
        Ok(Arc::new(OpenFile(file)))
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
}

#[derive(Debug)]
struct OpenFile(fs::File);

impl StoreFile for OpenFile {
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
