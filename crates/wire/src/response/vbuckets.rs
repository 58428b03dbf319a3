//! Answers about vBuckets: their state, their seqnos and their histories.

use model::{FailoverEntry, Seqno, VbId, VbState, VbUuid};

use crate::Malformed;
use crate::bytes::Reader;

/// Appends the histories of a vBucket, newest first: 16 bytes each, uuid and seqno.
pub fn encode_failover_entries<'a>(
    entries: impl IntoIterator<Item = &'a FailoverEntry>,
    out: &mut Vec<u8>,
) {
    for entry in entries {
        out.extend_from_slice(&entry.uuid.0.to_be_bytes());
        out.extend_from_slice(&entry.seqno.0.to_be_bytes());
    }
}

/// The histories in an answer, newest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FailoverEntries<'a> {
    bytes: &'a [u8],
}

impl<'a> FailoverEntries<'a> {
    /// The histories in a value.
    ///
    /// # Errors
    /// The length is no multiple of 16.
    pub fn parse(value: &'a [u8]) -> Result<Self, Malformed> {
        if value.len().is_multiple_of(16) {
            Ok(Self { bytes: value })
        } else {
            Err(Malformed::new("failover log has a wrong length"))
        }
    }

    /// The entries.
    pub fn iter(self) -> impl Iterator<Item = FailoverEntry> + 'a {
        let mut reader = Reader::new(self.bytes);
        std::iter::from_fn(move || {
            Some(FailoverEntry {
                uuid: VbUuid(reader.u64()?),
                seqno: Seqno(reader.u64()?),
            })
        })
    }
}

/// Appends the seqnos of vBuckets: 10 bytes each, number and seqno.
pub fn encode_vb_seqnos(entries: impl IntoIterator<Item = (VbId, Seqno)>, out: &mut Vec<u8>) {
    for (vbucket, seqno) in entries {
        out.extend_from_slice(&vbucket.0.to_be_bytes());
        out.extend_from_slice(&seqno.0.to_be_bytes());
    }
}

/// The seqnos of vBuckets in an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VbSeqnos<'a> {
    bytes: &'a [u8],
}

impl<'a> VbSeqnos<'a> {
    /// The seqnos in a value.
    ///
    /// # Errors
    /// The length is no multiple of 10.
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
        std::iter::from_fn(move || Some((VbId(reader.u16()?), Seqno(reader.u64()?))))
    }
}

/// The value of an answer to GET_VBUCKET: 4 bytes.
#[must_use]
pub fn encode_vb_state(state: VbState) -> [u8; 4] {
    u32::from(state as u8).to_be_bytes()
}

/// The state in an answer to GET_VBUCKET.
///
/// # Errors
/// The value has another length than 4, or the state is unknown.
pub fn parse_vb_state(value: &[u8]) -> Result<VbState, Malformed> {
    let mut reader = Reader::new(value);
    let state = reader.u32().filter(|_| reader.is_empty());
    state
        .and_then(|number| u8::try_from(number).ok())
        .and_then(VbState::from_wire)
        .ok_or(Malformed::new("vBucket state is not valid"))
}
