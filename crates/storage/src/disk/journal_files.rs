//! Files of journals by their generation: their names, and one that becomes that of a later generation.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::names;

/// Where the file of a journal's next generation belongs.
#[derive(Debug)]
pub(crate) struct NextPlace {
    pub(super) directory: PathBuf,
    pub(super) generation: u64,
    pub(super) extent: u64,
}

/// Renames a file without readers to that of the next generation.
///
/// Cost: a sync.
pub(crate) fn recycle(file: File, old: &Path, next: &NextPlace) -> io::Result<(File, u64)> {
    if file.metadata()?.len() > 2 * next.extent {
        file.set_len(next.extent)?;
    }
    names::rename(old, &path_of(&next.directory, next.generation))?;
    Ok((file, next.generation))
}

/// Where the journal of a generation lies.
pub(crate) fn path_of(directory: &Path, generation: u64) -> PathBuf {
    directory.join(format!("journal-{generation}"))
}

/// The journals in a directory, with their generations.
pub(crate) fn journals(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    numbered(directory, "journal-")
}

/// The files in a directory whose names are a prefix and a number, with their numbers.
pub(crate) fn numbered(directory: &Path, prefix: &str) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(prefix));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            found.push((number, entry.path()));
        }
    }
    Ok(found)
}
