//! Names in directories: the only module that creates, renames and removes files and directories.
//!
//! After a power failure a file has its synced content, but it exists only if its directory was
//! synced, too. So every function ends with that sync, unless its comment states otherwise.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// Mode of new directories and files: access for the owner only.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Makes the names in a directory durable, including removals.
///
/// # Errors
/// Then it is unknown which changes since the last sync are durable.
pub fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Creates a directory and its missing parents. The name of an existing one is synced as well: the
/// process that created it may have ended before the sync.
///
/// # Errors
/// One of them cannot be created, or its name not be synced.
pub fn make_directories(path: &Path) -> io::Result<()> {
    let parent = parent_of(path);
    let directory = || DirBuilder::new().mode(DIRECTORY_MODE).create(path);
    match directory() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            make_directories(parent)?;
            directory()?;
        }
        Err(error) if path.is_dir() => drop(error),
        made => made?,
    }
    match sync(parent) {
        // A directory without read permission cannot be synced.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Creates an empty file or truncates one, for reading and writing.
///
/// # Errors
/// The file is not created, or not durably.
pub fn create(path: &Path) -> io::Result<File> {
    let file = create_unsynced(path)?;
    sync(parent_of(path))?;
    Ok(file)
}

/// As [`create`], without the sync of the directory.
pub(crate) fn create_unsynced(path: &Path) -> io::Result<File> {
    options().truncate(true).open(path)
}

/// Replaces the content of a file, or creates it: after a power failure it has the old content or the new one.
///
/// # Errors
/// The file has one of the two.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_with(path, |file| file.write_all(content))
}

/// As [`replace`], with the content that `write` writes.
///
/// # Errors
/// The file has one of the two.
pub fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let draft = path.with_file_name(name);
    // The temporary name need not be durable before the rename.
    let mut file = BufWriter::new(options().truncate(true).open(&draft)?);
    write(&mut file)?;
    file.into_inner()?.sync_all()?;
    rename(&draft, path)
}

/// Renames a file in its directory.
///
/// # Errors
/// The file has one of the two names.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    rename_unsynced(from, to)?;
    sync(parent_of(to))
}

/// As [`rename`], for callers that do not depend on whether a power failure undoes it.
pub(crate) fn rename_unsynced(from: &Path, to: &Path) -> io::Result<()> {
    debug_assert_eq!(from.parent(), to.parent(), "one directory is synced");
    fs::rename(from, to)
}

/// Removes a file. Returns whether it existed.
///
/// # Errors
/// The file may still exist, or exist again after a power failure.
pub fn remove(path: &Path) -> io::Result<bool> {
    let removed = remove_unsynced(path)?;
    if removed {
        sync(parent_of(path))?;
    }
    Ok(removed)
}

/// As [`remove`], for files that do no harm if a power failure restores them.
pub(crate) fn remove_unsynced(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a directory with its content, if it exists.
///
/// # Errors
/// A part may be left.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound || path.exists() => Err(error),
        _ => sync(parent_of(path)),
    }
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(FILE_MODE);
    options
}

/// Returns the parent directory of a path.
fn parent_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent.as_os_str().is_empty() => Path::new("."),
        Some(parent) => parent,
        None => path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn directories_are_created_with_parents_and_files_are_replaced() {
        let place = tempfile::tempdir().unwrap();
        let deep = place.path().join("a/b/c");
        make_directories(&deep).unwrap();
        make_directories(&deep).unwrap();
        let file = deep.join("file");
        replace(&file, b"one").unwrap();
        replace(&file, b"two").unwrap();
        assert_eq!(fs::read(&file).unwrap(), b"two");
        assert_eq!(fs::read_dir(&deep).unwrap().count(), 1);
        assert!(make_directories(&file).is_err());
        rename(&file, &deep.join("other")).unwrap();
        assert!(remove(&deep.join("other")).unwrap());
        assert!(!remove(&deep.join("other")).unwrap());
        remove_tree(&place.path().join("a")).unwrap();
        remove_tree(&place.path().join("a")).unwrap();
        assert!(!deep.exists());
    }
}
