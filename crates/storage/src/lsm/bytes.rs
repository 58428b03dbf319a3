//! What all files have in common: a header with magic, version and number, and numbers that are big endian.

use std::io;

/// Bytes of the header of each file.
pub(crate) const HEADER_BYTES: usize = 64;

/// The version of the format; the only one there is.
const VERSION: u32 = 1;

/// Bytes of a checksum.
pub(crate) const CRC_BYTES: usize = 4;

/// What a file is. Its magic is `SETTEE` and two letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Log,
    Run,
    Values,
    Manifest,
}

impl FileKind {
    fn magic(self) -> [u8; 8] {
        *match self {
            Self::Log => b"SETTEELG",
            Self::Run => b"SETTEERN",
            Self::Values => b"SETTEEVL",
            Self::Manifest => b"SETTEEMF",
        }
    }

    /// The name of a file of this kind.
    pub(crate) fn name(self, number: u64) -> String {
        match self {
            Self::Log => format!("log-{number:08}"),
            Self::Run => format!("run-{number:08}"),
            Self::Values => format!("values-{number:08}"),
            Self::Manifest => "MANIFEST".to_owned(),
        }
    }

    /// Kind and number of the file of a name; `None` for other files.
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

/// The header of a file.
pub(crate) fn header(kind: FileKind, number: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..8].copy_from_slice(&kind.magic());
    header[8..12].copy_from_slice(&VERSION.to_be_bytes());
    header[16..24].copy_from_slice(&number.to_be_bytes());
    let crc = crc32fast::hash(&header[..HEADER_BYTES - CRC_BYTES]);
    header[HEADER_BYTES - CRC_BYTES..].copy_from_slice(&crc.to_be_bytes());
    header
}

/// Checks that `bytes` begin with the header of such a file.
///
/// # Errors
/// `InvalidData` for any other; `Unsupported` for one of a later version.
pub(crate) fn check_header(kind: FileKind, number: u64, bytes: &[u8]) -> io::Result<()> {
    let found = bytes.first_chunk::<HEADER_BYTES>();
    let found = found.ok_or_else(|| damaged("its header is cut"))?;
    if *found == header(kind, number) {
        return Ok(());
    }
    let whole = crc32fast::hash(&found[..HEADER_BYTES - CRC_BYTES]).to_be_bytes();
    if found[..8] != kind.magic() || found[HEADER_BYTES - CRC_BYTES..] != whole {
        return Err(damaged("its header is damaged"));
    }
    let version = Reader::new(&found[8..]).u32().unwrap_or(0);
    if version > VERSION {
        let reason = format!("its version is {version}");
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    Err(damaged("its header is that of another file"))
}

/// The error of bytes that are not what was written.
pub(crate) fn damaged(reason: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason.into())
}

/// The same error with the name of a file before it.
pub(crate) fn named(name: &str, error: io::Error) -> io::Error {
    if error.raw_os_error().is_some() {
        return error;
    }
    io::Error::new(error.kind(), format!("{name}: {error}"))
}

/// Reads numbers off the front.
#[derive(Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*head)
    }

    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(head)
    }

    pub(crate) fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }
}
