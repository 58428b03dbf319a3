//! Values under a checksum, and reading their fields.

use super::key::RowKey;

/// Bytes of the checksum in front of every value.
pub(super) const CRC_BYTES: usize = 4;

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
pub(super) fn seal(key: &RowKey, value: &mut [u8], rest: &[u8]) {
    let crc = checksum(key, &value[CRC_BYTES..], rest);
    value[..CRC_BYTES].copy_from_slice(&crc.to_be_bytes());
}

/// The body of a value whose checksum is right.
pub(super) fn unseal<'a>(key: &RowKey, value: &'a [u8]) -> Result<&'a [u8], DecodeError> {
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
pub(super) struct Reader<'a> {
    pub(super) rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    pub(super) fn take<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        let (head, rest) = self
            .rest
            .split_first_chunk::<N>()
            .ok_or(DecodeError::Content("it is too short"))?;
        self.rest = rest;
        Ok(*head)
    }

    pub(super) fn u8(&mut self) -> Result<u8, DecodeError> {
        self.take::<1>().map(|[byte]| byte)
    }

    pub(super) fn u32(&mut self) -> Result<u32, DecodeError> {
        self.take().map(u32::from_be_bytes)
    }

    pub(super) fn u64(&mut self) -> Result<u64, DecodeError> {
        self.take().map(u64::from_be_bytes)
    }
}
