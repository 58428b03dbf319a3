//! Encryption state of a store's files.

use std::io;
use std::path::Path;

use super::bytes::{FileKind, HEADER_BYTES, check_header, named};
use super::directory::{OpenError, check_content, open_error};
use super::files::Files;
use super::manifest;
use super::reading::ReadOnly;
use super::summary;

/// A file that holds documents, names of collections or states.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileEncryption {
    /// Name of the file.
    pub name: String,
    /// Bytes on disk.
    pub bytes: u64,
    /// ID of its key; `None` for a plain file.
    pub key: Option<String>,
}

/// Reads the headers of the files of the store in directory `path`, which may be open.
///
/// # Errors
/// Those of reading the directory; `Foreign` if it is not a store; `Damaged` for a damaged header.
pub fn encryption(path: &Path) -> Result<Vec<FileEncryption>, OpenError> {
    check_content(path)?;
    files_of(&ReadOnly::unlocked(path)).map_err(|error| open_error(path, &error))
}

fn files_of(files: &dyn Files) -> io::Result<Vec<FileEncryption>> {
    let mut found = Vec::new();
    let mut names = files.list()?;
    names.sort();
    for name in names {
        let kind = match &*name {
            manifest::NAME => Some((FileKind::Manifest, 0)),
            summary::NAME => Some((FileKind::Events, 0)),
            name => FileKind::of_name(name),
        };
        let Some((kind, number)) = kind else { continue };
        let file = match files.open(&name) {
            // The file was removed meanwhile.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            opened => opened?,
        };
        let mut head = [0; HEADER_BYTES];
        // A file without a complete header has no data.
        if file.length()? < HEADER_BYTES as u64 {
            continue;
        }
        file.read_at(&mut head, 0)?;
        let header = check_header(kind, number, &head).map_err(|error| named(&name, error))?;
        found.push(FileEncryption {
            bytes: file.disk_bytes()?,
            key: header.map(|header| header.key.to_string()),
            name,
        });
    }
    Ok(found)
}
