//! Sync writes: prepared, then committed or aborted, and what a replica acknowledges.

use model::Seqno;

use crate::bytes::Reader;
use crate::request::{EXTRAS, Message, OTHER_COMMAND};
use crate::{DurabilityLevel, Frame, Malformed, Opcode};

/// DCP_PREPARE: a sync write that is not visible yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepare<'a> {
    /// Position of the prepare.
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
    /// Whether the write is a deletion.
    pub deleted: bool,
    /// What must have happened before it may be committed.
    pub level: DurabilityLevel,
    /// The document's key, with a collection prefix where negotiated.
    pub key: &'a [u8],
    /// The value to be, as the datatype of the envelope says.
    pub value: &'a [u8],
}

impl<'a> Message<'a> for Prepare<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_PREPARE
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        if frame.header.opcode != Opcode::DCP_PREPARE {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        Ok(Self {
            seqno: Seqno(extras.u64().ok_or(EXTRAS)?),
            rev: extras.u64().ok_or(EXTRAS)?,
            flags: extras.u32().ok_or(EXTRAS)?,
            expiry: extras.u32().ok_or(EXTRAS)?,
            lock_time: extras.u32().ok_or(EXTRAS)?,
            heat: extras.u8().ok_or(EXTRAS)?,
            deleted: extras.u8().ok_or(EXTRAS)? != 0,
            level: extras
                .u8()
                .and_then(DurabilityLevel::from_number)
                .ok_or(Malformed::new("durability level is not valid"))?,
            key: frame.key,
            value: frame.value,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seqno.0.to_be_bytes());
        out.extend_from_slice(&self.rev.to_be_bytes());
        out.extend_from_slice(&self.flags.to_be_bytes());
        out.extend_from_slice(&self.expiry.to_be_bytes());
        out.extend_from_slice(&self.lock_time.to_be_bytes());
        out.extend_from_slice(&[self.heat, u8::from(self.deleted), self.level as u8]);
    }

    fn key(&self) -> &[u8] {
        self.key
    }

    fn write_value(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(self.value);
    }
}

/// The key and the two seqnos with which a prepare ends.
#[derive(Clone, Copy)]
struct Resolution<'a> {
    prepared: Seqno,
    resolved: Seqno,
    key: &'a [u8],
}

impl<'a> Resolution<'a> {
    fn read(frame: &Frame<'a>, opcode: Opcode) -> Result<Self, Malformed> {
        if frame.header.opcode != opcode {
            return Err(OTHER_COMMAND);
        }
        let mut extras = Reader::new(frame.extras);
        Ok(Self {
            prepared: Seqno(extras.u64().ok_or(EXTRAS)?),
            resolved: Seqno(extras.u64().ok_or(EXTRAS)?),
            key: frame.key,
        })
    }

    fn write(prepared: Seqno, resolved: Seqno, out: &mut Vec<u8>) {
        out.extend_from_slice(&prepared.0.to_be_bytes());
        out.extend_from_slice(&resolved.0.to_be_bytes());
    }
}

/// DCP_COMMIT: a prepared write is the document now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Commit<'a> {
    /// Position of the prepare.
    pub prepared: Seqno,
    /// Position of the commit.
    pub seqno: Seqno,
    /// The document's key, with a collection prefix where negotiated.
    pub key: &'a [u8],
}

impl<'a> Message<'a> for Commit<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_COMMIT
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let Resolution {
            prepared,
            resolved: seqno,
            key,
        } = Resolution::read(frame, Opcode::DCP_COMMIT)?;
        Ok(Self {
            prepared,
            seqno,
            key,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        Resolution::write(self.prepared, self.seqno, out);
    }

    fn key(&self) -> &[u8] {
        self.key
    }
}

/// DCP_ABORT: a prepared write will never be the document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Abort<'a> {
    /// Position of the prepare.
    pub prepared: Seqno,
    /// Position of the abort.
    pub seqno: Seqno,
    /// The document's key, with a collection prefix where negotiated.
    pub key: &'a [u8],
}

impl<'a> Message<'a> for Abort<'a> {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_ABORT
    }

    fn read(frame: &Frame<'a>) -> Result<Self, Malformed> {
        let Resolution {
            prepared,
            resolved: seqno,
            key,
        } = Resolution::read(frame, Opcode::DCP_ABORT)?;
        Ok(Self {
            prepared,
            seqno,
            key,
        })
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        Resolution::write(self.prepared, self.seqno, out);
    }

    fn key(&self) -> &[u8] {
        self.key
    }
}

/// DCP_SEQNO_ACKNOWLEDGED: the replica has every prepare up to a seqno as its level demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeqnoAcknowledged {
    /// The seqno.
    pub prepared: Seqno,
}

impl Message<'_> for SeqnoAcknowledged {
    fn opcode(&self) -> Opcode {
        Opcode::DCP_SEQNO_ACKNOWLEDGED
    }

    fn read(frame: &Frame<'_>) -> Result<Self, Malformed> {
        match frame.header.opcode {
            Opcode::DCP_SEQNO_ACKNOWLEDGED => Ok(Self {
                prepared: Seqno(Reader::new(frame.extras).u64().ok_or(EXTRAS)?),
            }),
            _ => Err(OTHER_COMMAND),
        }
    }

    fn write_extras(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.prepared.0.to_be_bytes());
    }
}
