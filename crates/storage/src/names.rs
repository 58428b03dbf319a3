//! Names in directories: the one place where files and directories are created, renamed and removed.
//!
//! After a power cut a file has what was synced of it, but it is there only if its directory was synced, too. So
//! everything here ends with that sync, but for what says otherwise.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

/// What is made is for its user alone.
const DIRECTORY_MODE: u32 = 0o700;
const FILE_MODE: u32 = 0o600;

/// Makes the names in a directory durable, those that are gone as well.
///
/// # Errors
/// Nothing is known then of what was changed since the last time.
pub fn sync(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Makes a directory and those that are missing above it. The name of one that is there is synced as
/// well: the process that made it may have died before it did that.
///
/// # Errors
/// One of them cannot be made, or its name not be synced.
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
        // What may not be read cannot be synced.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        synced => synced,
    }
}

/// Makes an empty file, or empties one, to read and to write.
///
/// # Errors
/// It is not made, or not for good.
pub fn create(path: &Path) -> io::Result<File> {
    let file = create_unsynced(path)?;
    sync(parent_of(path))?;
    Ok(file)
}

/// The same, of which the directory is still to be synced.
pub(crate) fn create_unsynced(path: &Path) -> io::Result<File> {
    options().truncate(true).open(path)
}

/// Puts `content` in the place of a file, or makes it: after a power cut there is the old content or the new one.
///
/// # Errors
/// One of the two is there.
pub fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    replace_with(path, |file| file.write_all(content))
}

/// The same, with what `write` writes.
///
/// # Errors
/// One of the two is there.
pub fn replace_with(
    path: &Path,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".tmp");
    let draft = path.with_file_name(name);
    // Its name need not be there before it has another one.
    let mut file = BufWriter::new(options().truncate(true).open(&draft)?);
    write(&mut file)?;
    file.into_inner()?.sync_all()?;
    rename(&draft, path)
}

/// Gives a file another name in its directory.
///
/// # Errors
/// It has one of the two names.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    rename_unsynced(from, to)?;
    sync(parent_of(to))
}

/// The same, of which nothing depends on whether a power cut undoes it.
pub(crate) fn rename_unsynced(from: &Path, to: &Path) -> io::Result<()> {
    debug_assert_eq!(from.parent(), to.parent(), "one directory is synced");
    fs::rename(from, to)
}

/// Removes a file; tells whether there was one.
///
/// # Errors
/// It may be there again after a power cut, or still.
pub fn remove(path: &Path) -> io::Result<bool> {
    let removed = remove_unsynced(path)?;
    if removed {
        sync(parent_of(path))?;
    }
    Ok(removed)
}

/// The same, where it does no harm if a power cut brings the file back.
pub(crate) fn remove_unsynced(path: &Path) -> io::Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Removes a directory with all that is in it, if it is there.
///
/// # Errors
/// Some of it may be left.
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

/// The directory that a path lies in.
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
    fn directories_are_made_with_those_above_and_files_are_replaced() {
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
