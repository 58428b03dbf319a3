//! A reference: what the tables have in place of a row that lies in a journal.

use super::key::RowKey;
use super::sealed::{CRC_BYTES, DecodeError, Reader, seal, unseal};

/// Bytes of a reference. No row and no record has so few.
pub(crate) const REFERENCE_BYTES: usize = CRC_BYTES + 16;

/// Where the row of `key` lies: the generation of the journal, and the place in it as a number.
pub(crate) fn encode_reference(key: &RowKey, generation: u64, place: u64) -> [u8; REFERENCE_BYTES] {
    let mut value = [0; REFERENCE_BYTES];
    value[CRC_BYTES..CRC_BYTES + 8].copy_from_slice(&generation.to_be_bytes());
    value[CRC_BYTES + 8..].copy_from_slice(&place.to_be_bytes());
    seal(key, &mut value, &[]);
    value
}

/// What a reference tells; `None` when `value` is none, but the row itself.
///
/// # Errors
/// It was one, and is damaged.
pub(crate) fn decode_reference(
    key: &RowKey,
    value: &[u8],
) -> Result<Option<(u64, u64)>, DecodeError> {
    if value.len() != REFERENCE_BYTES {
        return Ok(None);
    }
    let mut reader = Reader::new(unseal(key, value)?);
    Ok(Some((reader.u64()?, reader.u64()?)))
}
