//! How documents and vBucket records lie in the store. Drawn in `docs/format/record.md`.
//!
//! Numbers are big endian. Every value opens with a CRC-32 (IEEE) over its row key and the rest
//! of the value, so a row that lies in a wrong place is found out as well as a damaged one.

mod reference;
mod row;
mod vb;

pub(crate) use reference::{REFERENCE_BYTES, decode_reference, encode_reference};
pub(crate) use row::{
    decode_row, encode_history, encode_row, encode_row_head, history_time, open_row, row_meta,
};
pub(crate) use vb::{StoredVb, VbValue, decode_vb, encode_vb};

use model::{Seqno, VbId};

/// Bytes of a row key.
pub(crate) const ROW_KEY_BYTES: usize = 10;

/// Bytes of the checksum in front of every value.
const CRC_BYTES: usize = 4;

/// The key of a row: vBucket, seqno.
pub(crate) type RowKey = [u8; ROW_KEY_BYTES];

/// Where a document lies.
pub(crate) fn row_key(vb: VbId, seqno: Seqno) -> RowKey {
    let mut key = [0; ROW_KEY_BYTES];
    key[..2].copy_from_slice(&vb.0.to_be_bytes());
    key[2..].copy_from_slice(&seqno.0.to_be_bytes());
    key
}

/// Where the record of a vBucket lies: behind all its documents.
pub(crate) fn vb_key(vb: VbId) -> RowKey {
    row_key(vb, Seqno(u64::MAX))
}

/// The place that a row key names; `None` when it has the wrong length.
pub(crate) fn split_row_key(key: &[u8]) -> Option<(VbId, Seqno)> {
    let (vb, seqno) = key.split_first_chunk::<2>()?;
    let seqno: &[u8; 8] = seqno.try_into().ok()?;
    Some((
        VbId(u16::from_be_bytes(*vb)),
        Seqno(u64::from_be_bytes(*seqno)),
    ))
}

/// Why bytes are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum DecodeError {
    /// The checksum does not match.
    #[error("checksum mismatch")]
    Checksum,
    /// A later release wrote it.
    #[error("record version {0} is not known")]
    Version(u8),
    /// The checksum matches, but the content cannot be.
    #[error("impossible content: {0}")]
    Content(&'static str),
}

/// The checksum over a body in two parts, of which either may be empty.
fn checksum(key: &RowKey, body: &[u8], rest: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(key);
    hasher.update(body);
    hasher.update(rest);
    hasher.finalize()
}

/// Fills in the checksum of a value that was encoded with room for it, and of which `rest` lies
/// elsewhere.
fn seal(key: &RowKey, value: &mut [u8], rest: &[u8]) {
    let crc = checksum(key, &value[CRC_BYTES..], rest);
    value[..CRC_BYTES].copy_from_slice(&crc.to_be_bytes());
}

/// The body of a value whose checksum is right.
fn unseal<'a>(key: &RowKey, value: &'a [u8]) -> Result<&'a [u8], DecodeError> {
    let (crc, body) = value
        .split_first_chunk::<CRC_BYTES>()
        .ok_or(DecodeError::Checksum)?;
    if u32::from_be_bytes(*crc) == checksum(key, body, &[]) {
        Ok(body)
    } else {
        Err(DecodeError::Checksum)
    }
}

/// Reads numbers off the front of a body.
struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Content("it is too short"))?;
        self.rest = rest;
        Ok(*head)
    }

    fn u8(&mut self) -> Result<u8, DecodeError> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_be_bytes)
    }

    fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_be_bytes)
    }
}

#[cfg(test)]
mod tests;
