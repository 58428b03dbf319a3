//! The summary: a text of the bucket that may be lost. Drawn in `docs/format/events.md`.

use std::io;

use super::bytes::{CRC_BYTES, FileKind, HEADER_BYTES, damaged};
use super::files::Files;
use super::sealed::{self, StoreFile};

pub(crate) const NAME: &str = "EVENTS";
pub(crate) const DRAFT: &str = "EVENTS.new";

/// Bytes of the number of the group behind the header.
const GROUP_BYTES: usize = 8;
const TEXT_AT: usize = HEADER_BYTES + GROUP_BYTES;

/// Replaces the summary; it is about the rows up to `group`.
pub(crate) fn write(files: &dyn Files, group: u64, text: &[u8]) -> io::Result<()> {
    let encode = |file: &StoreFile, mut bytes: Vec<u8>| {
        bytes.extend_from_slice(&group.to_be_bytes());
        bytes.extend_from_slice(text);
        file.seal(&mut bytes, TEXT_AT, (TEXT_AT as u64, &group.to_be_bytes()))?;
        bytes.extend_from_slice(&crc32fast::hash(&bytes).to_be_bytes());
        Ok(bytes)
    };
    sealed::replace(files, (FileKind::Events, DRAFT), encode, || {}).map(drop)
}

/// Reads the summary of a store whose last group is `group`. `None` if it is not encrypted as a new file is.
///
/// # Errors
/// `NotFound`; those of the system; `InvalidData` if it is damaged, or of a later state of the store.
pub(crate) fn read(files: &dyn Files, group: u64) -> io::Result<Option<Vec<u8>>> {
    let file = sealed::open(files, FileKind::Events, 0)?;
    if !file.is_current(files) {
        return Ok(None);
    }
    let mut bytes = file.read_all()?;
    let crc = bytes.split_off(bytes.len().saturating_sub(CRC_BYTES));
    if bytes.len() < TEXT_AT || crc != crc32fast::hash(&bytes).to_be_bytes() {
        return Err(damaged("checksum mismatch"));
    }
    let of: [u8; GROUP_BYTES] = std::array::from_fn(|at| bytes[HEADER_BYTES + at]);
    if u64::from_be_bytes(of) > group {
        return Err(damaged("it is of a later state of the store"));
    }
    file.unseal(&mut bytes, TEXT_AT, (TEXT_AT as u64, &of))?;
    Ok(Some(bytes.split_off(TEXT_AT)))
}
