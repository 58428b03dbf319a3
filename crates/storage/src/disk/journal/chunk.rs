//! Chunks, in which a journal is written: a header, then entries.

use model::{Seqno, VbId};

use crate::disk::value_position::ValuePosition;

/// Bytes of a chunk's header: crc, length of the body, generation, group, chunk of it, flags.
pub(super) const HEADER_BYTES: usize = 29;

pub(super) const PUT: u8 = 1;
pub(super) const REMOVE: u8 = 2;

/// Flag of the last chunk of a group.
pub(super) const LAST: u8 = 1;

/// One change as the journal holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Entry {
    /// A row or, at seqno 2^64-1, the record of the vBucket.
    Put(VbId, Seqno, ValuePosition),
    /// It is gone.
    Remove(VbId, Seqno),
}

/// What stands before the body of a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) length: u32,
    pub(super) generation: u64,
    pub(super) group: u64,
    pub(super) chunk: u32,
    pub(super) flags: u8,
}

impl Header {
    /// Fills it in, with the checksum over all that follows the checksum, `rest` the last of it.
    pub(super) fn write(self, chunk: &mut [u8], rest: &[u8]) {
        chunk[4..8].copy_from_slice(&self.length.to_be_bytes());
        chunk[8..16].copy_from_slice(&self.generation.to_be_bytes());
        chunk[16..24].copy_from_slice(&self.group.to_be_bytes());
        chunk[24..28].copy_from_slice(&self.chunk.to_be_bytes());
        chunk[28] = self.flags;
        let mut crc = crc32fast::Hasher::new();
        crc.update(&chunk[4..]);
        crc.update(rest);
        let crc = crc.finalize();
        chunk[..4].copy_from_slice(&crc.to_be_bytes());
    }

    pub(super) fn read(bytes: &[u8; HEADER_BYTES]) -> Self {
        let u32_at = |at: usize| u32::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        let u64_at = |at: usize| u64::from_be_bytes(std::array::from_fn(|i| bytes[at + i]));
        Self {
            length: u32_at(4),
            generation: u64_at(8),
            group: u64_at(16),
            chunk: u32_at(24),
            flags: bytes[28],
        }
    }
}
