//! A second view of the database's directory, to look at without a risk: opening a database removes what its
//! lists do not name, here only links to it.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use rustix::fs::{SeekFrom, seek};

use super::layout::Directory;
use super::table_lists::{BLOBS, KEYSPACES, NAMES, ROWS, TABLES};

/// The directory beside that of the database. Whatever is in it is a link or a copy.
const NAME: &str = "db.links";

/// Links to the files of the rows, and copies of the small ones; removed when it is dropped.
pub(super) struct Links {
    root: PathBuf,
}

impl Links {
    pub(super) fn make(directory: &Directory) -> io::Result<Self> {
        let root = directory.path().join(NAME);
        remove(&root)?;
        let links = Self { root };
        links.fill(&fs::canonicalize(directory.database())?)?;
        Ok(links)
    }

    /// Where the database can be opened.
    pub(super) fn database(&self) -> &Path {
        &self.root
    }

    fn fill(&self, database: &Path) -> io::Result<()> {
        fs::create_dir(&self.root)?;
        copy_files(database, &self.root)?;
        for number in [NAMES, ROWS] {
            let (from, to) = (
                database.join(KEYSPACES).join(number),
                self.root.join(KEYSPACES).join(number),
            );
            fs::create_dir_all(&to)?;
            copy_files(&from, &to)?;
            for folder in [TABLES, BLOBS] {
                if from.join(folder).try_exists()? {
                    link_files(&from.join(folder), &to.join(folder))?;
                }
            }
        }
        Ok(())
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        if let Err(error) = remove(&self.root) {
            let path = self.root.display();
            tracing::warn!(%error, %path, "cannot remove links; the next start does");
        }
    }
}

/// Removes what a stop in between left.
pub(super) fn clear(directory: &Directory) -> io::Result<()> {
    remove(&directory.path().join(NAME))
}

fn remove(root: &Path) -> io::Result<()> {
    match fs::remove_dir_all(root) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The files of a directory, and not what is in those below.
fn copy_files(from: &Path, to: &Path) -> io::Result<()> {
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            copy_file(&entry.path(), &to.join(entry.file_name()))?;
        }
    }
    Ok(())
}

/// Copies what a file has and leaves its holes: the database's own journal is one of 64 MiB.
fn copy_file(from: &Path, to: &Path) -> io::Result<()> {
    let (mut from, mut to) = (File::open(from)?, File::create(to)?);
    to.set_len(from.metadata()?.len())?;
    let mut at = 0;
    // A file system that knows of no holes answers as if all were data; behind the last there is none.
    while let Ok(start) = seek(&from, SeekFrom::Data(at)) {
        at = seek(&from, SeekFrom::Hole(start))?;
        from.seek(io::SeekFrom::Start(start))?;
        to.seek(io::SeekFrom::Start(start))?;
        io::copy(&mut Read::by_ref(&mut from).take(at - start), &mut to)?;
    }
    Ok(())
}

fn link_files(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        symlink(entry.path(), to.join(entry.file_name()))?;
    }
    Ok(())
}
