//! The file of the bucket's manifest: a line with its checksum, then the text.

use std::fs;
use std::io;
use std::path::Path;

use super::layout;
use crate::{ErrorKind, StoreError};

/// The file; drawn in `docs/format/directory.md`.
pub(super) const NAME: &str = "manifest";
/// The first words of it.
const WORDS: &str = "settee manifest 1";

pub(super) const READING: &str = "reading the manifest";
pub(super) const WRITING: &str = "keeping the manifest";

/// The text as it was written; `None` when there is no file.
pub(super) fn read(directory: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    let corrupt =
        |reason: &'static str| StoreError::new(ErrorKind::Corrupt, READING).because(reason);
    let bytes = match fs::read(directory.join(NAME)) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(StoreError::new(ErrorKind::Io, READING).because(error)),
    };
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let end = end.ok_or_else(|| corrupt("it has no first line"))?;
    let (head, text) = (&bytes[..end], &bytes[end + 1..]);
    if head == first_line(text).as_bytes() {
        Ok(Some(text.to_vec()))
    } else {
        Err(corrupt("checksum mismatch"))
    }
}

/// Replaces the text; after a crash the old or the new one is there.
pub(super) fn write(directory: &Path, text: &[u8]) -> Result<(), StoreError> {
    let content = [first_line(text).as_bytes(), b"\n", text].concat();
    layout::write_durably(directory, NAME, &content).map_err(not_written)
}

/// What it means that the file, or the note that there is one, could not be written.
pub(super) fn not_written(error: io::Error) -> StoreError {
    let kind = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        _ => ErrorKind::Io,
    };
    StoreError::new(kind, WRITING).because(error)
}

fn first_line(text: &[u8]) -> String {
    format!("{WORDS} {:08x} {}", crc32fast::hash(text), text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read_and_damage_is_seen() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        assert_eq!(read(path).unwrap(), None);
        for text in [b"{}".as_slice(), b"", b"line\nline\n"] {
            write(path, text).unwrap();
            assert_eq!(read(path).unwrap().as_deref(), Some(text));
        }
        let file = path.join(NAME);
        let whole = fs::read(&file).unwrap();
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 1;
            fs::write(&file, damaged).unwrap();
            assert_eq!(read(path).unwrap_err().kind, ErrorKind::Corrupt, "{at}");
        }
        fs::write(&file, &whole[..whole.len() - 1]).unwrap();
        assert_eq!(read(path).unwrap_err().kind, ErrorKind::Corrupt);
    }
}
