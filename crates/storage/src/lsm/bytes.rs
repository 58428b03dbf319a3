//! Common parts of all files: a header with magic, version and number; all numbers are big endian.

use std::io;

use cipher::{CHECK_BYTES, Encrypted, KEY_ID_BYTES, KeyId, STORE_BYTES, is_key_error, key_error};
pub(crate) use model::Reader;

/// Bytes of each file's header.
pub(crate) const HEADER_BYTES: usize = 64;

/// Version of the format, for plain and for encrypted files: releases without encryption refuse the latter.
const VERSION: u32 = 1;
const VERSION_ENCRYPTED: u32 = 2;
/// Number of the only cipher: AES-256-GCM.
const CIPHER: u8 = 1;

/// Offsets in a header of the key's ID and of the store's identifier, and the bytes from which the
/// file's key is derived.
const KEY_AT: usize = 25;
const STORE_AT: usize = KEY_AT + KEY_ID_BYTES;
pub(crate) const IDENTITY_BYTES: usize = STORE_AT + STORE_BYTES;

/// Bytes of a checksum.
pub(crate) const CRC_BYTES: usize = 4;

/// Kind of a file. Its magic is `SETTEE` and two letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Log,
    Run,
    Values,
    Manifest,
    Events,
}

impl FileKind {
    fn magic(self) -> [u8; 8] {
        *match self {
            Self::Log => b"SETTEELG",
            Self::Run => b"SETTEERN",
            Self::Values => b"SETTEEVL",
            Self::Manifest => b"SETTEEMF",
            Self::Events => b"SETTEEEV",
        }
    }

    /// Returns the name of a file of this kind.
    pub(crate) fn name(self, number: u64) -> String {
        match self {
            Self::Log => format!("log-{number:08}"),
            Self::Run => format!("run-{number:08}"),
            Self::Values => format!("values-{number:08}"),
            Self::Manifest => "MANIFEST".to_owned(),
            Self::Events => "EVENTS".to_owned(),
        }
    }

    /// Parses the name of a file; `None` for other files.
    pub(crate) fn of_name(name: &str) -> Option<(Self, u64)> {
        let (words, number) = name.split_once('-')?;
        let kind = match words {
            "log" => Self::Log,
            "run" => Self::Run,
            "values" => Self::Values,
            _ => return None,
        };
        Some((kind, number.parse().ok()?))
    }
}

/// Returns the header of a file.
pub(crate) fn header(kind: FileKind, number: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&kind.magic());
    header[8..12].copy_from_slice(&VERSION.to_be_bytes());
    header[16..24].copy_from_slice(&number.to_be_bytes());
    let crc = crc32fast::hash(&header[..HEADER_BYTES - CRC_BYTES]);
    header[HEADER_BYTES - CRC_BYTES..].copy_from_slice(&crc.to_be_bytes());
    header
}

/// Returns the identity of an encrypted file: the header's fields of file, key and store.
pub(crate) fn identity(
    (kind, number): (FileKind, u64),
    key: KeyId,
    store: [u8; STORE_BYTES],
) -> [u8; IDENTITY_BYTES] {
    let plain = header(kind, number);
    let mut identity = [0; IDENTITY_BYTES];
    identity.copy_from_slice(&plain[..IDENTITY_BYTES]);
    identity[8..12].copy_from_slice(&VERSION_ENCRYPTED.to_be_bytes());
    identity[24] = CIPHER;
    identity[KEY_AT..STORE_AT].copy_from_slice(&key.0);
    identity[STORE_AT..].copy_from_slice(&store);
    identity
}

/// Returns the header of an encrypted file.
pub(crate) fn encrypted_header(
    identity: &[u8; IDENTITY_BYTES],
    check: [u8; CHECK_BYTES],
) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..IDENTITY_BYTES].copy_from_slice(identity);
    header[IDENTITY_BYTES..HEADER_BYTES - CRC_BYTES].copy_from_slice(&check);
    let crc = crc32fast::hash(&header[..HEADER_BYTES - CRC_BYTES]);
    header[HEADER_BYTES - CRC_BYTES..].copy_from_slice(&crc.to_be_bytes());
    header
}

/// Whether a header, which may be damaged, belongs to a plain file.
pub(crate) fn is_plain(header: &[u8; HEADER_BYTES]) -> bool {
    header[8..12] == VERSION.to_be_bytes()
}

/// Checks that `found` is the header of this file. Returns the encryption fields, if it is encrypted.
///
/// # Errors
/// `InvalidData` for any other header; `Unsupported` for a later version.
pub(crate) fn check_header(
    kind: FileKind,
    number: u64,
    found: &[u8; HEADER_BYTES],
) -> io::Result<Option<Encrypted>> {
    if *found == header(kind, number) {
        return Ok(None);
    }
    let whole = crc32fast::hash(&found[..HEADER_BYTES - CRC_BYTES]).to_be_bytes();
    if found[..8] != kind.magic() || found[HEADER_BYTES - CRC_BYTES..] != whole {
        return Err(damaged("its header is damaged"));
    }
    let mut reader = Reader::new(&found[8..]);
    let version = reader.u32().unwrap_or(0);
    if version > VERSION_ENCRYPTED || version == VERSION_ENCRYPTED && found[24] != CIPHER {
        let reason = format!("its version is {version}.{}", found[24]);
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    if version != VERSION_ENCRYPTED || found[16..24] != number.to_be_bytes() {
        return Err(damaged("its header is that of another file"));
    }
    Ok(Some(Encrypted {
        key: KeyId(std::array::from_fn(|at| found[KEY_AT + at])),
        store: std::array::from_fn(|at| found[STORE_AT + at]),
        check: std::array::from_fn(|at| found[IDENTITY_BYTES + at]),
    }))
}

/// Returns the error of bytes that are not those written.
pub(crate) fn damaged(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

/// Adds the name of a file to an error.
pub(crate) fn named(name: &str, error: io::Error) -> io::Error {
    if error.raw_os_error().is_some() {
        return error;
    }
    let reason = format!("{name}: {error}");
    if is_key_error(&error) {
        return key_error(reason);
    }
    io::Error::new(error.kind(), reason)
}
