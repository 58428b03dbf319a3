//! Answers about vBuckets: their state, seqnos and failover log.

use model::{FailoverEntry, Seqno, VbId, VbState};

use crate::Malformed;
use crate::bytes::{Field, Reader};

/// Appends the failover log of a vBucket, newest entry first: 16 bytes each, UUID and seqno.
pub fn encode_failover_entries<'a>(
    entries: impl IntoIterator<Item = &'a FailoverEntry>,
    out: &mut Vec<u8>,
) {
    for entry in entries {
        entry.write(out);
    }
}

/// The failover log in an answer, newest entry first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailoverEntries<'a> {
    bytes: &'a [u8],
}

impl<'a> FailoverEntries<'a> {
    /// Parses the entries in a value.
    ///
    /// # Errors
    /// The length is not a multiple of 16.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        if value.len().is_multiple_of(16) {
            Ok(Self { bytes: value })
        } else {
            Err(Malformed::new("failover log has a wrong length"))
        }
    }

    /// The entries.
    pub fn iter(self) -> impl Iterator<Item = FailoverEntry> + 'a {
        FailoverEntry::each(self.bytes)
    }
}

/// Appends the seqnos of vBuckets: 10 bytes each, id and seqno.
pub fn encode_vb_seqnos(entries: impl IntoIterator<Item = (VbId, Seqno)>, out: &mut Vec<u8>) {
    for (vbucket, seqno) in entries {
        vbucket.write(out);
        seqno.write(out);
    }
}

/// The seqnos of vBuckets in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VbSeqnos<'a> {
    bytes: &'a [u8],
}

impl<'a> VbSeqnos<'a> {
    /// Parses the seqnos in a value.
    ///
    /// # Errors
    /// The length is not a multiple of 10.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        if value.len().is_multiple_of(10) {
            Ok(Self { bytes: value })
        } else {
            Err(Malformed::new("list of seqnos has a wrong length"))
        }
    }

    /// The entries.
    pub fn iter(self) -> impl Iterator<Item = (VbId, Seqno)> + 'a {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || Some((reader.field().ok()?, reader.field().ok()?)))
    }
}

/// Encodes the value of an answer to `GET_VBUCKET`: 4 bytes.
pub fn encode_vb_state(state: VbState) -> [u8; 4] {
    u32::from(state as u8).to_be_bytes()
}
