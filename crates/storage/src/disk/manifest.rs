//! The file of the bucket's manifest.

use std::io;
use std::path::Path;

use super::framed;
use crate::{ErrorKind, StoreError};

/// The file; drawn in `docs/format/directory.md`.
pub(super) const NAME: &str = "manifest";
/// The first words of it.
const WORDS: &str = "settee manifest 1";

pub(super) const READING: &str = "reading the manifest";
pub(super) const WRITING: &str = "keeping the manifest";

/// The text as it was written; `None` when there is no file.
pub(super) fn read(directory: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    framed::read(directory, NAME, WORDS).map_err(|error| {
        let kind = match error.kind() {
            io::ErrorKind::InvalidData => ErrorKind::Corrupt,
            _ => ErrorKind::Io,
        };
        StoreError::new(kind, READING).because(error)
    })
}

/// Replaces the text; after a crash the old or the new one is there.
pub(super) fn write(directory: &Path, text: &[u8]) -> Result<(), StoreError> {
    framed::write(directory, NAME, WORDS, text).map_err(not_written)
}

/// What it means that the file, or the note that there is one, could not be written.
pub(super) fn not_written(error: io::Error) -> StoreError {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        _ => ErrorKind::Io,
    };
    StoreError::new(kind, WRITING).because(error)
}
