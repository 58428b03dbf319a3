//! Chunks, the units of writing a log: a header, then entries.

use std::io;

use cipher::{Cipher, SEAL_BYTES};
use model::VbId;

use crate::lsm::bytes::{CRC_BYTES, Reader, damaged};
use crate::lsm::log::place::LogPlace;
use crate::lsm::row::Row;
use crate::lsm::sealed::StoreFile;

/// Bytes of a chunk's header: crc, length of the rest, log, group, number of the chunk in it, flags.
pub(super) const CHUNK_HEADER_BYTES: usize = 29;

/// Bytes before the body of an entry: kind, vBucket, length of the body, crc.
pub(super) const ENTRY_BYTES: usize = 11;

/// Flag of the last chunk of a group.
pub(super) const LAST: u8 = 1;

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EntryKind {
    /// A row; a value that is stored apart follows the body.
    Row = 1,
    /// The state of a vBucket.
    Record = 2,
    /// The removal of a vBucket.
    Forget = 3,
    /// The text of the bucket.
    Text = 4,
}

impl EntryKind {
    fn of(number: u8) -> Option<Self> {
        [Self::Row, Self::Record, Self::Forget, Self::Text]
            .into_iter()
            .find(|what| *what as u8 == number)
    }
}

/// The header of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChunkHeader {
    pub(super) length: u32,
    pub(super) log: u64,
    pub(super) group: u64,
    pub(super) chunk: u32,
    pub(super) flags: u8,
}

impl ChunkHeader {
    /// Writes the header into `chunk`, with the seal if the file is encrypted, and the checksum
    /// over all bytes after the checksum, with `rest` at the end. The chunk will be at offset `at`.
    pub(super) fn write(
        self,
        chunk: &mut [u8],
        rest: &[u8],
        (file, at): (&StoreFile, u64),
    ) -> io::Result<()> {
        chunk[4..8].copy_from_slice(&self.length.to_be_bytes());
        chunk[8..16].copy_from_slice(&self.log.to_be_bytes());
        chunk[16..24].copy_from_slice(&self.group.to_be_bytes());
        chunk[24..28].copy_from_slice(&self.chunk.to_be_bytes());
        chunk[28] = self.flags;
        if let Some(cipher) = file.cipher() {
            let (header, rest) = chunk.split_at_mut(CHUNK_HEADER_BYTES);
            let seal = cipher.seal(&mut [], at, &header[CRC_BYTES..])?;
            rest[..SEAL_BYTES].copy_from_slice(&seal);
        }
        let mut crc = crc32fast::Hasher::new();
        crc.update(&chunk[CRC_BYTES..]);
        crc.update(rest);
        chunk[..CRC_BYTES].copy_from_slice(&crc.finalize().to_be_bytes());
        Ok(())
    }

    /// Whether a chunk that was read at `at` has a valid checksum and seal.
    pub(super) fn is_whole(chunk: &[u8], (file, at): (&StoreFile, u64)) -> bool {
        let crc = crc32fast::hash(&chunk[CRC_BYTES..]).to_be_bytes();
        let is_sealed = |cipher: &Cipher| {
            let (header, rest) = chunk.split_at(CHUNK_HEADER_BYTES);
            let seal = rest.first_chunk::<SEAL_BYTES>();
            seal.is_some_and(|seal| {
                cipher
                    .open(&mut seal.clone(), at, &header[CRC_BYTES..])
                    .is_ok()
            })
        };
        chunk[..CRC_BYTES] == crc && file.cipher().is_none_or(is_sealed)
    }

    pub(super) fn read(bytes: &[u8; CHUNK_HEADER_BYTES]) -> Self {
        let u32_at = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self {
            length: u32_at(4),
            log: u64_at(8),
            group: u64_at(16),
            chunk: u32_at(24),
            flags: bytes[28],
        }
    }
}

/// One entry in memory.
#[derive(Clone, Copy)]
pub(crate) struct Entry<'a> {
    pub(crate) what: EntryKind,
    pub(crate) vb: VbId,
    /// Position of the body in the file.
    pub(crate) place: LogPlace,
    pub(crate) body: &'a [u8],
}

impl<'a> Entry<'a> {
    /// Fills in the bytes before the body, for which `entry` has space. The checksum of an entry that is not `checked`,
    /// as one in a sealed piece, is 0.
    pub(super) fn begin(what: EntryKind, vb: VbId, entry: &mut [u8], checked: bool) {
        let length = (entry.len() - ENTRY_BYTES) as u32;
        entry[0] = what as u8;
        entry[1..3].copy_from_slice(&vb.0.to_be_bytes());
        entry[3..7].copy_from_slice(&length.to_be_bytes());
        if checked {
            let crc = checksum(what, vb, &entry[ENTRY_BYTES..]);
            entry[7..ENTRY_BYTES].copy_from_slice(&crc.to_be_bytes());
        }
    }

    /// Reads the next entry from `reader`, which is at offset `at` of the file; `None` if it is invalid.
    pub(super) fn next(reader: &mut Reader<'a>, at: u64) -> Option<Self> {
        let before = reader.rest.len();
        let what = EntryKind::of(reader.u8()?)?;
        let vb = VbId(reader.u16()?);
        let length = reader.u32()? as usize;
        let _crc = reader.u32()?;
        let place = LogPlace::at(at + (before - reader.rest.len()) as u64, length).ok()?;
        let body = reader.bytes(length)?;
        Some(Self {
            what,
            vb,
            place,
            body,
        })
    }

    /// Returns the bytes of the value after the entry; `None` if the entry is invalid.
    pub(super) fn value_bytes(&self) -> Option<usize> {
        if self.what != EntryKind::Row {
            return Some(0);
        }
        let place = Row::of(self.body).ok()?.place();
        Some(place.map_or(0, |place| place.length as usize))
    }
}

fn checksum(what: EntryKind, vb: VbId, body: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&[what as u8]);
    crc.update(&vb.0.to_be_bytes());
    crc.update(body);
    crc.finalize()
}

/// Checks a body that was read together with the [`CRC_BYTES`] before it.
///
/// # Errors
/// `InvalidData` if it is not the body of this entry.
pub(super) fn check_body(what: EntryKind, vb: VbId, bytes: &[u8]) -> io::Result<&[u8]> {
    let split = bytes.split_first_chunk::<CRC_BYTES>();
    let (crc, body) = split.ok_or_else(|| damaged("an entry of a log is cut"))?;
    if u32::from_be_bytes(*crc) == checksum(what, vb, body) {
        Ok(body)
    } else {
        Err(damaged("checksum mismatch"))
    }
}
