//! Documents: written, deleted, expired. CAS and datatype are in the envelope.

use model::Seqno;

use crate::bytes::Reader;
use crate::request::{EXTRAS, Message, OTHER_COMMAND};
use crate::{Frame, Malformed, Opcode};

const EXTENDED_META: Malformed = Malformed::new("extended metadata is not valid");

/// DCP_MUTATION: a document was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mutation<'a> {
    /// Position of the change.
    pub seqno: Seqno,
    /// How often the document was changed.
    pub rev: u64,
    /// Flags of the client.
    pub flags: u32,
    /// Absolute expiry in Unix seconds, 0 for never.
    pub expiry: u32,
    /// Until when the document is locked; mostly 0.
    pub lock_time: u32,
    /// How much it is used, 0 to 255.
    pub heat: u8,
    /// Its key, with a collection prefix where negotiated.
    pub key: &'a [u8],
    /// Its value, as the datatype of the envelope says.
    pub value: &'a [u8],
}

impl<'a> Message<'a> for Mutation<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_MUTATION
    }

    #[inline]
    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::DCP_MUTATION {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        let mutation = Self {
            seqno: Seqno(extras.u64().ok_or(EXTRAS)?),
            rev: extras.u64().ok_or(EXTRAS)?,
            flags: extras.u32().ok_or(EXTRAS)?,
            expiry: extras.u32().ok_or(EXTRAS)?,
            lock_time: extras.u32().ok_or(EXTRAS)?,
            heat: 0,
            key: frame.key,
            value: frame.value,
        };
        if extras.u16() != Some(0) {
            return Err(EXTENDED_META);
        }
        let heat = extras.u8().ok_or(EXTRAS)?;
        Ok(Self { heat, ..mutation })
    }

    #[inline]
    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seqno.0.to_be_bytes());
        out.extend_from_slice(&self.rev.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.expiry.to_be_bytes());
        out.extend_from_slice(&self.lock_time.to_be_bytes());
        out.extend_from_slice(&[0, 0, self.heat]);
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline]
    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.value);
    }
}

/// DCP_DELETION: a document was deleted; an expired one too, for a peer that does not know
/// [`Expiration`].
///
/// Shape: 18 bytes of extras, 21 with the time of the deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deletion<'a> {
    /// Position of the change.
    pub seqno: Seqno,
    /// How often the document was changed.
    pub rev: u64,
    /// When, in Unix seconds; told where the connection was opened with delete times.
    pub delete_time: Option<u32>,
    /// Its key, with a collection prefix where negotiated.
    pub key: &'a [u8],
    /// Extended attributes that outlive it; mostly empty.
    pub value: &'a [u8],
}

impl<'a> Message<'a> for Deletion<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_DELETION
    }

    #[inline]
    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::DCP_DELETION {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        let seqno = Seqno(extras.u64().ok_or(EXTRAS)?);
        let rev = extras.u64().ok_or(EXTRAS)?;
        let delete_time = extras.u32();
        if delete_time.is_none() && extras.u16() != Some(0) {
            return Err(EXTENDED_META);
        }
        Ok(Self {
            seqno,
            rev,
            delete_time,
            key: frame.key,
            value: frame.value,
        })
    }

    #[inline]
    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seqno.0.to_be_bytes());
        out.extend_from_slice(&self.rev.to_be_bytes());
        match self.delete_time {
            None => out.extend_from_slice(&[0; 2]),
            Some(time) => {
                out.extend_from_slice(&time.to_be_bytes());
                out.push(0);
            }
        }
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline]
    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.value);
    }
}

/// DCP_EXPIRATION: a document was deleted because its time had come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expiration<'a> {
    /// Position of the change.
    pub seqno: Seqno,
    /// How often the document was changed.
    pub rev: u64,
    /// When, in Unix seconds.
    pub delete_time: u32,
    /// Its key, with a collection prefix where negotiated.
    pub key: &'a [u8],
    /// Extended attributes that outlive it; mostly empty.
    pub value: &'a [u8],
}

impl<'a> Message<'a> for Expiration<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_EXPIRATION
    }

    #[inline]
    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::DCP_EXPIRATION {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        Ok(Self {
            seqno: Seqno(extras.u64().ok_or(EXTRAS)?),
            rev: extras.u64().ok_or(EXTRAS)?,
            delete_time: extras.u32().ok_or(EXTRAS)?,
            key: frame.key,
            value: frame.value,
        })
    }

    #[inline]
    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seqno.0.to_be_bytes());
        out.extend_from_slice(&self.rev.to_be_bytes());
        out.extend_from_slice(&self.delete_time.to_be_bytes());
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    #[inline]
    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.value);
    }
}
