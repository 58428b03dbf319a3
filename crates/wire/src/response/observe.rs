//! Answers of the two OBSERVE operations.

use model::{Cas, Seqno, VbId, VbUuid};

use crate::Malformed;
use crate::bytes::{Field, Reader, layout};

/// Persistence state of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum KeyState {
    /// In memory only.
    FoundNotPersisted = 0x00,
    /// On disk as well.
    Persisted = 0x01,
    /// Missing.
    NotFound = 0x80,
    /// Deleted, but the deletion is not on disk.
    LogicallyDeleted = 0x81,
}

/// One key in the answer to OBSERVE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveEntry<'a> {
    /// vBucket from the request.
    pub vbucket: VbId,
    /// Key from the request, at most 65,535 bytes.
    pub key: &'a [u8],
    /// State of the document.
    pub state: KeyState,
    /// CAS of the document; 0 if it is missing.
    pub cas: Cas,
}

impl ObserveEntry<'_> {
    /// Appends the entry. Panics if the key has more than 65,535 bytes.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let key_len = u16::try_from(self.key.len()).expect("a key has at most 65535 bytes");
        self.vbucket.write(out);
        key_len.write(out);
        self.key.write(out);
        out.push(self.state as u8);
        self.cas.write(out);
    }
}

/// The history that a client named, if it is not the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failover {
    /// UUID of the client's history.
    pub old_uuid: VbUuid,
    /// Last seqno of that history.
    pub last_seqno: Seqno,
}

layout! { Failover { old_uuid, last_seqno } }

/// The answer to `OBSERVE_SEQNO`.
///
/// Shape: 27 bytes; 43 with a failover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObserveSeqnoReply {
    /// vBucket from the request.
    pub vbucket: VbId,
    /// UUID of its current history.
    pub uuid: VbUuid,
    /// Last persisted seqno.
    pub persisted: Seqno,
    /// Last seqno.
    pub current: Seqno,
    /// Set if the client's history has ended.
    pub failover: Option<Failover>,
}

impl Field<'_> for ObserveSeqnoReply {
    fn read(reader: &mut Reader<'_>) -> Result<Self, Malformed> {
        let format: u8 = reader.field()?;
        Ok(Self {
            vbucket: reader.field()?,
            uuid: reader.field()?,
            persisted: reader.field()?,
            current: reader.field()?,
            failover: match format {
                0 => None,
                1 => Some(reader.field()?),
                _ => return Err(Self::INVALID),
            },
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        self.failover.is_some().write(out);
        self.vbucket.write(out);
        self.uuid.write(out);
        self.persisted.write(out);
        self.current.write(out);
        self.failover.write(out);
    }
}

impl ObserveSeqnoReply {
    const INVALID: Malformed = Malformed::new("answer to observe is not valid");

    /// Appends the value of the answer.
    pub fn encode(&self, out: &mut Vec<u8>) {
        self.write(out);
    }

    /// Parses the value of the answer.
    ///
    /// # Errors
    /// The length does not match the format, or the format is unknown.
    pub fn parse(value: &[u8]) -> Result<Self, Malformed> {
        Self::whole(value, Self::INVALID)
    }
}
