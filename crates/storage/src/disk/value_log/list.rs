//! The file that names the journals of the value log: a line with generation and bytes for each.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use crate::disk::framed;

/// The file; drawn in `docs/format/journal.md`.
pub(crate) const NAME: &str = "kept";
/// The first words of it.
const WORDS: &str = "settee kept 1";

/// Bytes by generation.
pub(crate) type SegmentBytes = BTreeMap<u64, u64>;

/// What is listed; nothing when there is no file.
pub(crate) fn read(directory: &Path) -> io::Result<SegmentBytes> {
    let corrupt = |reason: &dyn std::fmt::Display| {
        let path = directory.join(NAME);
        let reason = format!("{}: {reason}", path.display());
        io::Error::new(io::ErrorKind::InvalidData, reason)
    };
    let text = framed::read(directory, NAME, WORDS).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData => corrupt(&error),
        _ => error,
    })?;
    let text = String::from_utf8(text.unwrap_or_default()).map_err(|error| corrupt(&error))?;
    let lines = text.lines().map(|line| {
        let (generation, bytes) = line.split_once(' ')?;
        Some((generation.parse().ok()?, bytes.parse().ok()?))
    });
    let listed: Option<SegmentBytes> = lines.collect();
    listed.ok_or_else(|| corrupt(&"a line that names no journal"))
}

/// Replaces the list, durably.
pub(super) fn write(directory: &Path, listed: &SegmentBytes) -> io::Result<()> {
    let lines = listed
        .iter()
        .map(|(generation, bytes)| format!("{generation} {bytes}\n"));
    let text: Vec<String> = lines.collect();
    framed::write(directory, NAME, WORDS, text.concat().as_bytes())
}
