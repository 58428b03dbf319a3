//! Files of a node beside its stores: a line with a checksum, then JSON.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use storage::names;

use crate::config::{StartError, access};

/// Largest number of bytes after the words of a first line: CRC-32 in hex, and a length.
const CHECKSUM_BYTES_MAX: u64 = 31;

/// One kind of file.
#[derive(Debug)]
pub(super) struct SealedFile {
    /// Name of the file in a data directory.
    pub(super) name: &'static str,
    /// First words of the first line, which ends with ` CRC LENGTH`.
    words: &'static str,
}

/// The identities of the node and its buckets.
pub(super) const NODE: SealedFile = SealedFile {
    name: "node.json",
    words: "settee node 1",
};

/// The users and groups from management.
pub(super) const USERS: SealedFile = SealedFile {
    name: "users.json",
    words: "settee users 1",
};

/// The newest state of its cluster that the node has seen.
pub(super) const SEEN: SealedFile = SealedFile {
    name: "cluster.json",
    words: "settee cluster 1",
};

/// Reason why a file cannot be used. `Display` is for a line that begins with the path.
#[derive(Debug, thiserror::Error)]
pub(super) enum SealedFileError {
    /// The system does not let the node read it.
    #[error("{0}")]
    Access(#[from] io::Error),
    /// It differs from the written one, or is of a later release.
    #[error("{0}")]
    Content(String),
}

impl SealedFileError {
    /// Returns the reason why a node does not start with the file at `path`; `without` describes a node whose file was
    /// removed.
    pub(super) fn refusal(&self, path: &Path, without: &str) -> StartError {
        match self {
            Self::Access(error) => access(path, error),
            Self::Content(why) => StartError::DataFormat(format!(
                "{}: {why}; put the right file back, or remove it: then {without}",
                path.display()
            )),
        }
    }
}

/// The content of a file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Text<'a> {
    pub(super) json: &'a [u8],
    /// Whether the content has a checksum: earlier releases wrote none.
    pub(super) sealed: bool,
}

impl SealedFile {
    /// Returns the bytes of a file with this JSON.
    pub(super) fn seal(&self, json: &[u8]) -> Vec<u8> {
        [self.first_line(&Checksum::of(json)).as_bytes(), b"\n", json].concat()
    }

    /// Creates or replaces the file with a value, atomically. Cost: serializes the value twice, the first time for the
    /// checksum only, and holds no JSON in memory.
    pub(super) fn replace(&self, path: &Path, value: &impl Serialize) -> io::Result<()> {
        let mut checksum = Checksum::default();
        serde_json::to_writer(&mut checksum, value)?;
        names::replace_with(path, |file| {
            writeln!(file, "{}", self.first_line(&checksum))?;
            Ok(serde_json::to_writer(file, value)?)
        })
    }

    /// Reads a file of a known version with the right checksum; `None` if there is no file. Cost: reads it three times,
    /// and holds no text in memory.
    ///
    /// # Errors
    /// The reason why it cannot be read.
    pub(super) fn read<T: DeserializeOwned>(
        &self,
        path: &Path,
        known: u32,
    ) -> Result<Option<T>, SealedFileError> {
        let mut file = match File::open(path) {
            Ok(file) => BufReader::new(file),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut line = Vec::new();
        let most = self.words.len() as u64 + CHECKSUM_BYTES_MAX;
        file.by_ref().take(most).read_until(b'\n', &mut line)?;
        let content = SealedFileError::Content;
        if line.starts_with(b"{") {
            return Err(content(damaged("it has no checksum")));
        }
        let mut checksum = Checksum::default();
        io::copy(&mut file, &mut checksum)?;
        if line != format!("{}\n", self.first_line(&checksum)).as_bytes() {
            return Err(content(damaged("checksum mismatch")));
        }
        let json = SeekFrom::Start(line.len() as u64);
        file.seek(json)?;
        check_version(&mut file, known).map_err(content)?;
        file.seek(json)?;
        let value = serde_json::from_reader(file).map_err(damaged);
        value.map(Some).map_err(content)
    }

    /// Returns the content of a file's bytes.
    ///
    /// # Errors
    /// The bytes differ from the written ones; with the reason.
    pub(super) fn unseal<'a>(&self, bytes: &'a [u8]) -> Result<Text<'a>, &'static str> {
        if bytes.starts_with(b"{") {
            return Ok(Text {
                json: bytes,
                sealed: false,
            });
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let end = end.ok_or("it has no first line")?;
        let (head, json) = (&bytes[..end], &bytes[end + 1..]);
        if head != self.first_line(&Checksum::of(json)).as_bytes() {
            return Err("checksum mismatch");
        }
        Ok(Text { json, sealed: true })
    }

    fn first_line(&self, json: &Checksum) -> String {
        let sum = json.sum.clone().finalize();
        format!("{} {sum:08x} {}", self.words, json.bytes)
    }
}

/// Computes the checksum and the length of bytes that are written to it.
#[derive(Default)]
struct Checksum {
    sum: crc32fast::Hasher,
    bytes: usize,
}

impl Checksum {
    fn of(bytes: &[u8]) -> Self {
        let mut checksum = Self::default();
        checksum.sum.update(bytes);
        checksum.bytes = bytes.len();
        checksum
    }
}

impl Write for Checksum {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.sum.update(bytes);
        self.bytes += bytes.len();
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Checks that this release can read a file's JSON.
///
/// # Errors
/// It is no JSON with a version, or of a later release; with the reason.
pub(super) fn check_version(json: impl Read, known: u32) -> Result<(), String> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } = serde_json::from_reader(json).map_err(damaged)?;
    if version > known {
        return Err(format!(
            "written by a later release: version {version}, this one reads up to {known}"
        ));
    }
    Ok(())
}

/// Returns the message for a file that differs from the written one.
pub(super) fn damaged(why: impl std::fmt::Display) -> String {
    format!("damaged: {why}")
}

/// Returns the advice for a start without a usable node file in the data directory `path`.
pub(super) fn hint(path: &Path) -> String {
    format!(
        "put the right {} back, or copy what the directory holds into a new one with \
         settee salvage --data-dir {} --to NEW",
        NODE.name,
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_changed_byte_and_every_cut_is_detected() {
        let json = br#"{"version":1,"node_uuid":"0f"}"#;
        let whole = NODE.seal(json);
        let text = NODE.unseal(&whole).unwrap();
        assert_eq!((text.json, text.sealed), (json.as_slice(), true));
        assert!(USERS.unseal(&whole).is_err(), "a file of another kind");
        for at in 0..whole.len() {
            for bit in 0..8 {
                let mut damaged = whole.clone();
                damaged[at] ^= 1 << bit;
                let seen = NODE.unseal(&damaged).map_or(true, |text| !text.sealed);
                assert!(seen, "byte {at}, bit {bit}");
            }
            assert!(NODE.unseal(&whole[..at]).is_err(), "cut to {at}");
        }
    }

    #[test]
    fn a_file_without_a_checksum_is_accepted_as_an_earlier_one() {
        let text = NODE.unseal(br#"{"version":1}"#).unwrap();
        assert!(!text.sealed);
    }
}
